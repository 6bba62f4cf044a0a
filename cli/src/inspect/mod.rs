//! `sluice inspect`: a stopped data directory, read and never written.
//!
//! Exit codes: 0 clean, 1 damage found, 2 wrong usage or nothing that can be read.

mod json;
mod summary;

use crate::keys::KeyArgs;
use crate::pace::{self, Pace, PacedOs};
use clap::{Args, Subcommand};
use json::Json;
use sluice_engine::base::{Error, Lsn, PageId};
use sluice_engine::db::inspect::{Directory, EntryView, LogItem, LogLine, MapView, PageView};
use sluice_engine::db::Geometry;
use sluice_engine::os::{Os, RealOs};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const DAMAGE: u8 = 1;
const UNREADABLE: u8 = 2;

#[derive(Args)]
pub struct InspectArgs {
    /// Data directory of the engine: `sluice` in the server's data directory, or of a
    /// directory of `sluice server`
    dir: PathBuf,
    /// Directory of the log, when sluice_log_dir names one [default: DIR/log]
    #[arg(long, value_name = "DIR", global = true)]
    log_dir: Option<PathBuf>,
    /// Print JSON: one object, for `log` one a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Inspect,
    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand)]
enum Inspect {
    /// Sum up: versions, the last stop, what the next start does, the binary log, space; reads no table
    Summary,
    /// Check files, pages, log, recovery and all tables; exit code 1 if there is damage
    Verify {
        /// MiB a second that are read at most, of a disk that others use
        #[arg(long, value_name = "N", value_parser = pace::rate_mib())]
        rate_mib: Option<u64>,
    },
    /// List log records
    Log {
        /// First position [default: where recovery would begin]
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// Stop after this many records
        #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
        limit: u64,
    },
    /// Decode a page as the last checkpoint has it
    Page {
        /// Page id
        id: u64,
    },
    /// List where each page lies, and how full the segments are
    Map,
}

type Result<T> = std::result::Result<T, Error>;

pub fn run(args: &InspectArgs) -> ExitCode {
    match inspect(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DAMAGE),
        Err(error @ Error::Corrupt { .. }) => {
            eprintln!("sluice: damage: {error}");
            ExitCode::from(DAMAGE)
        }
        Err(error) => {
            eprintln!("sluice: error: {error}");
            ExitCode::from(UNREADABLE)
        }
    }
}

/// The engine's own directory, also if `dir` is that of a server around it.
fn data_dir(args: &InspectArgs) -> Result<PathBuf> {
    let candidates = [args.dir.clone(), args.dir.join("sluice"), args.dir.join("data/sluice")];
    let is_ours =
        |dir: &&PathBuf| ["superblock", "pages", "log"].iter().any(|name| dir.join(name).exists());
    candidates.iter().find(is_ours).cloned().ok_or_else(|| {
        Error::Refused(format!("{} is not a data directory of the engine", args.dir.display()))
    })
}

/// Answers whether no damage was found.
fn inspect(args: &InspectArgs) -> Result<bool> {
    let os: Arc<dyn Os> = match args.command {
        Inspect::Verify { rate_mib } => {
            PacedOs::new(Pace::new("read", 0, pace::rate_bytes(rate_mib)))
        }
        _ => RealOs::new(),
    };
    let mut dir = Directory::open(os, data_dir(args)?, args.log_dir.clone())?;
    if let Some(keys) = args.keys.read().map_err(Error::Refused)? {
        dir = dir.with_keys(keys)?;
    }
    match &args.command {
        Inspect::Summary => {
            let summary = summary::Summary::of(&dir, &data_dir(args)?)?;
            report!("{}", if args.json { summary.json().to_string() } else { summary.text() });
            Ok(true)
        }
        Inspect::Verify { .. } => verify(&dir, args.json),
        Inspect::Log { from, limit } => list_log(&dir, from.map(Lsn), *limit, args.json),
        Inspect::Page { id } => {
            let page = dir.page(PageId(*id)).map_err(|error| match error {
                Error::NotFound => Error::Refused(format!("the page map has no page {id}")),
                other => other,
            })?;
            if args.json {
                report!("{}", page_json(&page));
            } else {
                print_page(&page);
            }
            Ok(true)
        }
        Inspect::Map => {
            let map = dir.map()?;
            let disk_bytes = pages_disk_bytes(&data_dir(args)?);
            if args.json {
                report!("{}", map_json(&map, disk_bytes));
            } else {
                print_map(&map, disk_bytes);
            }
            Ok(map.faults.is_empty())
        }
    }
}

fn verify(dir: &Directory, as_json: bool) -> Result<bool> {
    let found = dir.verify(Geometry::default())?;
    let clean = found.is_clean();
    if as_json {
        let checks = found.checks.iter().map(|check| {
            Json::Object(vec![
                ("name", check.name.as_str().into()),
                ("items", check.items.into()),
                ("faults", check.faults.clone().into()),
            ])
        });
        let checks = Json::List(checks.collect());
        let object = Json::Object(vec![
            ("clean", Json::Bool(clean)),
            ("checks", checks),
            ("remarks", found.remarks.into()),
        ]);
        report!("{object}");
        return Ok(clean);
    }
    for check in &found.checks {
        let verdict = if check.faults.is_empty() { "ok" } else { "DAMAGED" };
        report!("{verdict:<8} {} ({})", check.name, check.items);
        for fault in &check.faults {
            report!("         {fault}");
        }
    }
    for remark in &found.remarks {
        report!("note     {remark}");
    }
    report!("{}", if clean { "no damage found" } else { "damage found" });
    Ok(clean)
}

fn list_log(dir: &Directory, from: Option<Lsn>, limit: u64, as_json: bool) -> Result<bool> {
    let mut left = limit;
    let end = dir.log(from, &mut |item| {
        match item {
            LogItem::Batch(batch) if as_json => report!(
                "{}",
                Json::Object(vec![
                    ("batch", batch.lsn.0.into()),
                    ("end", batch.end.0.into()),
                    ("stored_bytes", batch.stored_bytes.into()),
                    ("incarnation", batch.incarnation.into()),
                    ("durable_before", batch.durable_before.0.into()),
                ])
            ),
            LogItem::Batch(batch) => report!(
                "batch {} to {}, {} bytes in the file, incarnation {:x}, durable before {}",
                batch.lsn,
                batch.end,
                batch.stored_bytes,
                batch.incarnation,
                batch.durable_before
            ),
            LogItem::Record(line) => {
                if left == 0 {
                    return false;
                }
                left -= 1;
                print_record(&line, as_json);
            }
        }
        left > 0
    })?;
    if !as_json {
        report!("end of what was listed: {end}");
    }
    Ok(true)
}

fn print_record(line: &LogLine, as_json: bool) {
    if as_json {
        let object = Json::Object(vec![
            ("lsn", line.lsn.0.into()),
            ("kind", u64::from(line.kind).into()),
            ("name", line.name.into()),
            ("payload_bytes", line.payload_bytes.into()),
            ("tree", line.tree.map(|tree| u64::from(tree.0)).into()),
            ("txn", line.txn.map(|txn| txn.0).into()),
            ("detail", line.detail.as_str().into()),
        ]);
        report!("{object}");
        return;
    }
    let mut text = format!("{:>12} {} ({} bytes)", line.lsn, line.name, line.payload_bytes);
    if let Some(tree) = line.tree {
        let _ = write!(text, " tree {tree}");
    }
    if let Some(txn) = line.txn {
        let _ = write!(text, " transaction {txn}");
    }
    report!("{text} {}", line.detail.trim_end());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn print_page(page: &PageView) {
    let (place, node) = (&page.place, &page.node);
    report!("page {} of tree {}: {} bytes at {}", node.page, node.tree, place.bytes, place.offset);
    report!("LSN {}, level {}, {} bytes used", node.lsn, node.level, node.used_bytes);
    let high = node.high.as_ref().map_or("the end".to_owned(), |high| hex(high));
    report!("keys from [{}] to [{high}], {} entries", hex(&node.low), page.entries.len());
    for (i, entry) in page.entries.iter().enumerate() {
        report!("{i:>5} {}", describe_entry(entry));
    }
}

fn describe_entry(entry: &EntryView) -> String {
    let key = hex(&entry.key);
    match (entry.child, &entry.header) {
        (Some(child), _) => format!("[{key}] -> page {child}"),
        (None, Some(header)) => format!(
            "[{key}] transaction {} version {}{}{} {} bytes",
            header.txn,
            header.lsn,
            if header.is_deleted() { " deleted" } else { "" },
            if header.is_first() { " first" } else { "" },
            entry.payload.len()
        ),
        (None, None) => format!("[{key}]"),
    }
}

fn page_json(page: &PageView) -> Json {
    let entries = page.entries.iter().map(|entry| {
        let header = entry.header.as_ref();
        Json::Object(vec![
            ("key", hex(&entry.key).into()),
            ("child", entry.child.map(|child| child.0).into()),
            ("txn", header.map(|h| h.txn.0).into()),
            ("version_lsn", header.map(|h| h.lsn.0).into()),
            ("flags", header.map(|h| u64::from(h.flags)).into()),
            ("payload", hex(&entry.payload).into()),
        ])
    });
    let node = &page.node;
    Json::Object(vec![
        ("page", node.page.0.into()),
        ("tree", u64::from(node.tree.0).into()),
        ("lsn", node.lsn.0.into()),
        ("level", u64::from(node.level).into()),
        ("offset", page.place.offset.into()),
        ("bytes", page.place.bytes.into()),
        ("low", hex(&node.low).into()),
        ("high", node.high.as_deref().map(hex).into()),
        ("entries", Json::List(entries.collect())),
    ])
}

/// The disk space of `pages`: less than its length, because free segments may be holes.
fn pages_disk_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join("pages")).map_or(0, |meta| meta.blocks() * 512)
}

fn print_map(map: &MapView, disk_bytes: u64) {
    let header = map.header;
    report!(
        "checkpoint generation {}, map generation {}, change log {} bytes",
        header.generation,
        header.map_generation,
        header.changes_end
    );
    report!("{:>10} {:>8} {:>14} {:>8} {:>14}", "page", "tree", "offset", "bytes", "LSN");
    for page in &map.pages {
        let (id, tree) = (page.page.0, page.tree.0);
        report!("{id:>10} {tree:>8} {:>14} {:>8} {:>14}", page.offset, page.bytes, page.lsn.0);
    }
    let (count, bytes) = (map.segments.len(), map.segments.len() as u64 * header.segment_bytes);
    report!("{count} segments, {bytes} bytes, of which {disk_bytes} are on the disk");
    for segment in &map.segments {
        report!(
            "segment {}: {} records, {} of {} bytes live",
            segment.number,
            segment.records,
            segment.live_bytes,
            header.segment_bytes
        );
    }
    for fault in &map.faults {
        report!("damaged: {fault}");
    }
}

fn map_json(map: &MapView, disk_bytes: u64) -> Json {
    let pages = map.pages.iter().map(|page| {
        Json::Object(vec![
            ("page", page.page.0.into()),
            ("tree", u64::from(page.tree.0).into()),
            ("offset", page.offset.into()),
            ("bytes", page.bytes.into()),
            ("lsn", page.lsn.0.into()),
        ])
    });
    let segments = map.segments.iter().map(|segment| {
        Json::Object(vec![
            ("segment", segment.number.into()),
            ("records", segment.records.into()),
            ("live_bytes", segment.live_bytes.into()),
        ])
    });
    Json::Object(vec![
        ("generation", map.header.generation.into()),
        ("map_generation", map.header.map_generation.into()),
        ("segment_bytes", map.header.segment_bytes.into()),
        ("max_page", map.header.max_page.into()),
        ("pages", Json::List(pages.collect())),
        ("segments", Json::List(segments.collect())),
        ("disk_bytes", disk_bytes.into()),
        ("faults", map.faults.clone().into()),
    ])
}
