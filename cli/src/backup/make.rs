//! `sluice backup`: the steps, and what each is for.
//!
//! ```text
//! START          the server keeps pages and log           pages are copied, then the log so far
//! BLOCK_DDL      no DDL statement begins or ends          definitions, and the log so far
//! BLOCK_COMMIT   nobody commits, for a moment             position, the rest of the log, mysql, sys
//! END            the server goes on                       sync, verification, the list of files
//! ```

use super::files::{self, Files};
use super::manifest::{Listed, Manifest, Piece, DATA};
use super::pace::Pace;
use super::server::{Foreign, Places, Server};
use crate::db::Dsn;
use crate::Result;
use sluice_engine::base::{Error, Lsn};
use sluice_engine::db::backup::{Copied, Copying, Part};
use sluice_engine::db::inspect::Directory;
use sluice_engine::db::Geometry;
use sluice_engine::os::RealOs;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The engine's directory.
pub const ENGINE: &str = "sluice";
/// Commits are held when no more than this is left to copy of the log, or after so many rounds.
const LOG_LEFT_BYTES: u64 = 2 << 20;
const LOG_ROUNDS_MAX: u32 = 20;
/// Commits are never held while more than this of the log is copied.
const LOG_HELD_MAX_BYTES: u64 = 32 << 20;
/// A backup fails after so many rounds that copied no less than the round before.
const LOG_GROWN_MAX: u32 = 3;
const NAMED_MAX: usize = 5;

pub struct Options<'a> {
    pub to: &'a Path,
    pub only_sluice: bool,
    pub rate_bytes: Option<u64>,
    pub wait: Duration,
    pub verifies: bool,
}

pub fn run(dsn: &Dsn, options: &Options<'_>) -> Result<()> {
    let mut server = Server::connect(dsn, options.wait)?;
    let places = server.places()?;
    refuse_foreign(&server.foreign()?, options.only_sluice)?;
    files::take_empty_dir(options.to)?;
    let data = options.to.join(DATA);
    files::make_dir(&data.join(ENGINE))?;
    let made = make(server, &places, &data, options);
    if made.is_err() {
        // Nobody takes it for a backup, and it may be what has filled the disk.
        let _ = fs::remove_dir_all(&data);
    }
    made
}

fn refuse_foreign(foreign: &[Foreign], only_sluice: bool) -> Result<()> {
    let mut names: Vec<&str> =
        foreign.iter().filter(|t| !t.is_of_server()).map(|t| t.shown.as_str()).collect();
    if only_sluice || names.is_empty() {
        return Ok(());
    }
    let count = names.len();
    names.truncate(NAMED_MAX);
    let more = if count > NAMED_MAX { ", ..." } else { "" };
    Err(format!(
        "{count} tables of other engines cannot be in the backup: {}{more}. Dump them, and leave them out \
         with --only-sluice",
        names.join(", ")
    ))
}

fn plain(error: Error) -> String {
    match error {
        Error::Interrupted => "stopped: there is no backup".into(),
        Error::Full { .. } => "the disk of the backup is full: there is no backup".into(),
        other => other.to_string(),
    }
}

/// The result of the part that needs the server.
struct Made {
    manifest: Manifest,
    held: Duration,
    copied: Copied,
}

fn make(mut server: Server, places: &Places, data: &Path, options: &Options<'_>) -> Result<()> {
    let mut small = Files { from: &places.data_dir, to: data, listed: Vec::new() };
    let Made { mut manifest, held, copied } = copy(&mut server, places, &mut small, options)?;
    drop(server);
    small.sync()?;
    if options.verifies {
        verify(&data.join(ENGINE))?;
    }
    manifest.files = listed(copied);
    manifest.files.append(&mut small.listed);
    manifest.write(options.to)?;
    report!(
        "backup of {} MiB in {}, commits were held for {} ms{}",
        manifest.bytes() >> 20,
        options.to.display(),
        held.as_millis(),
        if options.verifies { "; verified" } else { "" }
    );
    manifest.positions().for_each(|(name, value)| report!("{name} {value}"));
    manifest.facts_of("not_copied").for_each(|name| report!("not copied: {name}"));
    Ok(())
}

/// Everything that the server must keep its files for.
fn copy(
    server: &mut Server,
    places: &Places,
    small: &mut Files<'_>,
    options: &Options<'_>,
) -> Result<Made> {
    let from = Lsn(server.start(&places.data_dir)?);
    let source = (RealOs::new(), &*places.data_dir.join(ENGINE), &*places.log_dir);
    let target = small.to.join(ENGINE);
    let mut copying = Copying::begin(source, (RealOs::new(), &target), from).map_err(plain)?;
    let store = copying.store_parts();
    let total: u64 = store.iter().map(|part| part.bytes).sum();
    let mut pace = Pace::new("copied", total, options.rate_bytes);
    for part in &store {
        let copied = copying.copy_store_part(part, &mut |bytes| look(&mut pace, bytes, server));
        copied.map_err(plain)?;
    }
    // A log that is copied more slowly than the server writes it never ends.
    pace.lift_limit();
    catch_up(server, &mut copying, &mut pace)?;
    server.block_ddl()?;
    let foreign = server.foreign()?;
    refuse_foreign(&foreign, options.only_sluice)?;
    small.copy_databases(&server.databases()?, &foreign)?;
    let mut facts = facts(server, &foreign)?;
    catch_up(server, &mut copying, &mut pace)?;

    let begun = server.block_commit()?;
    let end = server.flush_log()?;
    facts.extend(server.position()?);
    copying.copy_log(Lsn(end), &mut |_| Ok(())).map_err(plain)?;
    small.copy_system(&foreign)?;
    small.copy_aria_log(&places.aria_dir)?;
    server.check()?;
    server.end()?;
    let held = begun.elapsed();

    let copied = copying.finish().map_err(plain)?;
    facts.push(("log_position".into(), end.to_string()));
    Ok(Made { manifest: Manifest { facts, files: Vec::new() }, held, copied })
}

/// Between two pieces: is the server still keeping what is copied?
fn look(pace: &mut Pace, bytes: u64, server: &mut Server) -> sluice_engine::base::Result<()> {
    match pace.step(bytes)? {
        true => server.check().map_err(Error::Refused),
        false => Ok(()),
    }
}

/// Copies the log until little of it is left to copy. Each round copies what the server has written during
/// the one before.
fn catch_up(server: &mut Server, copying: &mut Copying, pace: &mut Pace) -> Result<()> {
    let mut rounds = Rounds::default();
    loop {
        let to = Lsn(server.durable()?);
        let copied = copying.copy_log(to, &mut |bytes| look(pace, bytes, server)).map_err(plain)?;
        server.check()?;
        if rounds.are_enough(copied)? {
            return Ok(());
        }
    }
}

/// Rounds of copying a log that grows meanwhile.
#[derive(Default)]
struct Rounds {
    count: u32,
    grown: u32,
    before_bytes: Option<u64>,
}

impl Rounds {
    /// Is so little left after a round of `copied` bytes that commits can be held for the rest? Fails when
    /// the server writes its log faster than it is copied.
    fn are_enough(&mut self, copied: u64) -> Result<bool> {
        if copied <= LOG_LEFT_BYTES {
            return Ok(true);
        }
        self.count += 1;
        let before = self.before_bytes.replace(copied);
        self.grown += u32::from(before.is_some_and(|before| copied >= before));
        let ends = self.count == LOG_ROUNDS_MAX || self.grown == LOG_GROWN_MAX;
        match copied <= LOG_HELD_MAX_BYTES {
            true => Ok(self.count >= LOG_ROUNDS_MAX),
            false if ends => Err(format!(
                "the server writes its log faster than it is copied: {} MiB while the last {} MiB were \
                 copied. Choose a faster target, or a time with less load",
                copied >> 20,
                before.unwrap_or(copied) >> 20
            )),
            false => Ok(false),
        }
    }
}

fn facts(server: &mut Server, foreign: &[Foreign]) -> Result<Vec<(String, String)>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut facts = vec![
        ("sluice_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("server_version".to_owned(), server.value("SELECT VERSION()")?),
        ("made_at_unix_time".to_owned(), now.to_string()),
    ];
    facts.extend(foreign.iter().map(|table| ("not_copied".to_owned(), table.shown.clone())));
    Ok(facts)
}

/// The engine's files as the list has them.
fn listed(copied: Copied) -> Vec<Listed> {
    let mut pieces: BTreeMap<PathBuf, Vec<Piece>> = BTreeMap::new();
    for Part { name, offset, bytes, check } in copied.parts {
        pieces.entry(name).or_default().push(Piece { offset, bytes, check });
    }
    let listed = |(name, bytes): (&PathBuf, &u64)| {
        let mut pieces = pieces.remove(name).unwrap_or_default();
        pieces.sort_by_key(|piece| piece.offset);
        Listed { name: Path::new(ENGINE).join(name), bytes: *bytes, pieces }
    };
    copied.files.iter().map(listed).collect()
}

/// As `sluice inspect verify` does.
fn verify(dir: &Path) -> Result<()> {
    let verified = Directory::open(RealOs::new(), dir, None)
        .and_then(|directory| directory.verify(Geometry::default()));
    let report = verified.map_err(|e| format!("the copy cannot be verified: {e}"))?;
    let _ = fs::remove_file(dir.join("lock"));
    let mut faults = report.checks.iter().flat_map(|check| &check.faults);
    match faults.next() {
        None => Ok(()),
        Some(first) => Err(format!(
            "the copy is damaged: {first} (and {} more). CHECK TABLE says whether the server's own files are, too",
            faults.count()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of rounds until they are enough; an error ends them as well.
    fn rounds(mut bytes: impl FnMut(u32) -> u64) -> (u32, Result<bool>) {
        let mut rounds = Rounds::default();
        for n in 1.. {
            match rounds.are_enough(bytes(n)) {
                Ok(false) => {}
                end => return (n, end),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_log_that_grows_faster_than_it_is_copied_is_an_error() {
        let (count, end) = rounds(|n| (100 << 20) << n);
        assert_eq!(count, 4);
        assert!(end.unwrap_err().contains("800 MiB"), "the size of the last round but one");
        let (count, end) = rounds(|n| (10 << 30) - (u64::from(n) << 20));
        assert_eq!(count, LOG_ROUNDS_MAX);
        assert!(end.is_err(), "commits would be held for a log that hardly gets shorter");
    }

    #[test]
    fn a_log_that_is_copied_in_time_is_enough() {
        assert_eq!(rounds(|n| (1 << 30) >> n), (9, Ok(true)));
        // It does not get shorter, but is short.
        assert_eq!(rounds(|_| 3 << 20), (LOG_ROUNDS_MAX, Ok(true)));
        // Bursts of others.
        let burst = |n| if n < 3 { (64 << 20) * u64::from(n) } else { 0 };
        assert_eq!(rounds(burst), (3, Ok(true)));
    }
}
