//! `sluice backup`: the steps, and what each is for.
//!
//! ```text
//! START          the server keeps pages and log           pages are copied, then the log so far
//! BLOCK_DDL      no DDL statement begins or ends          definitions, and the log so far
//! BLOCK_COMMIT   nobody commits, for a moment             position, the rest of the log, mysql, sys
//! END            the server goes on                       sync, verification, the list of files
//! ```

use super::base::Base;
use super::files::{self, Files, Sink};
use super::identity::{self, RESTORE_ID};
use super::manifest::{Listed, Manifest, Piece, DATA, ID, SETTING};
use super::pacing::Pacing;
use super::server::{Foreign, Places, Server};
use super::stream::{Stream, StreamOs};
use crate::db::Dsn;
use crate::pace::{self, Pace, PacedOs};
use crate::{signals, Result};
use sluice_engine::base::Error;
use sluice_engine::db::backup::{key_id, Copied, CopiedPart, Copying};
use sluice_engine::db::inspect::Directory;
use sluice_engine::db::{Geometry, Keys};
use sluice_engine::os::{Os, RealOs};
use std::collections::BTreeMap;
use std::fs;
use std::io::{stdout, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
/// How far a verification stands back when processors are wanted (nice, 0 to 19).
const VERIFY_NICE: i32 = 10;
/// Settings that a server on the copy must share to read its files, and to apply the binary log to them.
const SETTINGS: [&str; 4] = [
    "default_storage_engine",
    "innodb_data_file_path",
    "innodb_page_size",
    "lower_case_table_names",
];

/// Where the backup goes.
pub enum To<'a> {
    Dir(&'a Path),
    /// To standard output, compressed by zstd at this level.
    Stream(Option<i32>),
}

pub struct Options<'a> {
    pub to: To<'a>,
    /// The backup that this is an increment on.
    pub base: Option<Base>,
    pub only_sluice: bool,
    pub pacing: Pacing<'a>,
    pub wait: Duration,
    pub verifies: bool,
    /// Of an encrypted server, to verify the copy.
    pub keys: Option<Arc<dyn Keys>>,
}

impl Options<'_> {
    /// A stream is verified where it is restored.
    fn verifies_here(&self) -> bool {
        self.verifies && matches!(self.to, To::Dir(_))
    }

    /// The images of an increment are verified as they are on disk.
    fn needs_keys(&self) -> bool {
        self.verifies_here() && self.base.is_none() && self.keys.is_none()
    }
}

pub fn run(dsn: &Dsn, options: &Options<'_>) -> Result<()> {
    if matches!(options.to, To::Stream(_)) && stdout().is_terminal() {
        return Err("standard output is a terminal: hand the stream to a file or a program".into());
    }
    let mut server = Server::connect(dsn, options.wait)?;
    let places = server.places()?;
    refuse_foreign(&server.foreign()?, options.only_sluice)?;
    let is_encrypted = || key_id(&*RealOs::new(), &places.data_dir.join(ENGINE)).is_some();
    if options.needs_keys() && is_encrypted() {
        return Err(
            "the tables are encrypted, so the copy cannot be verified without their keys: give \
                    --key-file or --no-verify"
                .into(),
        );
    }
    match options.to {
        To::Stream(level) => {
            let stream = Stream::begin(Box::new(stdout()), level)?;
            let made = make(server, &places, &Sink::Stream(stream.clone()), options);
            // The engine's copy knows the error of the stream by its text only.
            made.map_err(|reason| stream.error().unwrap_or(reason))
        }
        To::Dir(to) => {
            files::take_empty_dir(to)?;
            let data = to.join(DATA);
            files::make_dir(&data.join(ENGINE))?;
            let made = make(server, &places, &Sink::Dir(data.clone()), options);
            if made.is_err() {
                // Nobody takes it for a backup, and it may be what has filled the disk.
                let _ = fs::remove_dir_all(&data);
            }
            made
        }
    }
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

/// Errors of the copy in words.
fn plain<'a>(to: &'a To<'a>) -> impl Fn(Error) -> String + Copy + 'a {
    move |error| match (error, to) {
        (Error::Interrupted, _) => "stopped: there is no backup".into(),
        (error @ Error::Full { .. }, To::Dir(dir)) => {
            format!("{}: there is no backup", files::shown(dir, error))
        }
        (other, _) => other.to_string(),
    }
}

/// The result of the part that needs the server.
struct Made {
    manifest: Manifest,
    held: Duration,
    copied: Copied,
}

fn make(mut server: Server, places: &Places, sink: &Sink, options: &Options<'_>) -> Result<()> {
    let mut small = Files { from: &places.data_dir, to: sink, listed: Vec::new() };
    let made = copy(&mut server, places, &mut small, options);
    let Made { mut manifest, held, copied } = made.map_err(|reason| server.explained(reason))?;
    drop(server);
    small.sync()?;
    let verifies = options.verifies_here();
    if let (true, Sink::Dir(data)) = (verifies, sink) {
        yield_processors();
        verify_paced(&data.join(ENGINE), &copied, options)?;
    }
    manifest.files = listed(copied);
    manifest.files.append(&mut small.listed);
    match sink {
        Sink::Stream(stream) => stream.finish(&manifest.encode()?)?,
        Sink::Dir(data) => manifest.write(data.parent().unwrap_or(data))?,
    }
    say(&manifest, held, options);
    Ok(())
}

/// The server's disk may be the one that the copy is read from, so the rate holds here, too.
fn verify_paced(dir: &Path, copied: &Copied, options: &Options<'_>) -> Result<()> {
    pace::phase("verifying the copy");
    let os = PacedOs::new(options.pacing.pace("read to verify", 0));
    let verified = match &options.base {
        Some(base) => base.verify(&*os, dir, copied),
        None => verify(os, dir, options.keys.clone()),
    };
    // It may take the end of its reads for damage.
    match signals::stopped() {
        true => Err(plain(&options.to)(Error::Interrupted)),
        false => verified,
    }
}

/// The server needs nothing more of this thread, so the threads of the server go first. Before that it holds
/// commits. Threads that it begins are like it.
fn yield_processors() {
    // A refusal costs speed only.
    let _ = rustix::process::nice(VERIFY_NICE);
}

/// To standard error, if standard output is the backup.
fn say(manifest: &Manifest, held: Duration, options: &Options<'_>) {
    let place = match options.to {
        To::Dir(dir) => dir.display().to_string(),
        To::Stream(_) => "the stream".into(),
    };
    let (kind, on) = match &options.base {
        Some(base) => ("increment", format!(", on {}", base.shown())),
        None => ("backup", String::new()),
    };
    let mut lines = vec![format!(
        "{kind} of {} MiB in {place}{on}, commits were held for {} ms{}",
        manifest.bytes() >> 20,
        held.as_millis(),
        if options.verifies_here() { "; verified" } else { "" }
    )];
    lines.extend(manifest.positions().map(|(name, value)| format!("{name} {value}")));
    lines.extend(manifest.facts_of("not_copied").map(|name| format!("not copied: {name}")));
    for line in lines {
        match options.to {
            To::Dir(_) => report!("{line}"),
            To::Stream(_) => eprintln!("{line}"),
        }
    }
}

/// Everything that the server must keep its files for.
fn copy(
    server: &mut Server,
    places: &Places,
    small: &mut Files<'_>,
    options: &Options<'_>,
) -> Result<Made> {
    let plain = plain(&options.to);
    let from = server.start(&places.data_dir)?;
    let source = (RealOs::new(), &*places.data_dir.join(ENGINE), &*places.log_dir);
    let (os, target): (Arc<dyn Os>, PathBuf) = match small.to {
        Sink::Dir(data) => (RealOs::new(), data.join(ENGINE)),
        Sink::Stream(stream) => (StreamOs::new(stream.clone(), PathBuf::new()), ENGINE.into()),
    };
    let restore = identity::of_directory(&places.data_dir)?;
    let mut copying = Copying::begin(source, (os, &target), from).map_err(plain)?;
    let store = match &options.base {
        Some(base) => {
            base.check_server(restore.as_deref(), server.durable()?.0)?;
            base.parts(&mut copying)?
        }
        None => copying.store_parts(),
    };
    let total: u64 = store.iter().map(|part| part.bytes).sum();
    let pace = options.pacing.pace("pages and log", total);
    let (begun, log_begun) = (Instant::now(), server.durable()?.1);
    for part in &store {
        let copied = copying.copy_store_part(part, &mut |bytes| look(&pace, bytes, server));
        copied.map_err(plain)?;
    }
    let grown = server.durable()?.1 .0.saturating_sub(log_begun.0);
    pace.lift_limit_below(2 * per_second(grown, begun.elapsed()));
    catch_up(server, &mut copying, &pace, plain)?;
    pace.end();
    pace::phase("waiting for DDL statements; definitions and log");
    server.block_ddl()?;
    let foreign = server.foreign()?;
    refuse_foreign(&foreign, options.only_sluice)?;
    small.copy_databases(&server.databases()?, &foreign)?;
    let mut facts = facts(server, &foreign)?;
    // Others wait.
    pace.lift_limit();
    catch_up(server, &mut copying, &pace, plain)?;

    pace::phase("waiting for commits; the rest");
    let begun = server.block_commit()?;
    if let Sink::Stream(stream) = small.to {
        stream.hold();
    }
    let (end, place) = server.flush_log()?;
    facts.extend(server.position()?);
    copying.copy_log(place, &mut |_| Ok(())).map_err(plain)?;
    small.copy_system(&foreign)?;
    small.copy_aria_log(&places.aria_dir)?;
    server.check()?;
    server.end()?;
    let held = begun.elapsed();
    if let Sink::Stream(stream) = small.to {
        stream.release()?;
    }

    let copied = copying.finish().map_err(plain)?;
    facts.push(("log_position".into(), end.to_string()));
    facts.extend(restore.map(|id| (RESTORE_ID.to_owned(), id)));
    facts.extend(options.base.iter().flat_map(Base::facts));
    Ok(Made { manifest: Manifest { facts, files: Vec::new() }, held, copied })
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(0.001)) as u64
}

/// Between two pieces: is the server still keeping what is copied?
fn look(pace: &Pace, bytes: u64, server: &mut Server) -> sluice_engine::base::Result<()> {
    match pace.step(bytes)? {
        true => server.check().map_err(Error::Refused),
        false => Ok(()),
    }
}

/// Copies the log until little of it is left to copy. Each round copies what the server has written during
/// the one before.
fn catch_up(
    server: &mut Server,
    copying: &mut Copying,
    pace: &Pace,
    plain: impl Fn(Error) -> String,
) -> Result<()> {
    let mut rounds = Rounds::default();
    loop {
        let (_, to) = server.durable()?;
        let copied =
            copying.copy_log(to, &mut |bytes| look(pace, bytes, server)).map_err(&plain)?;
        server.check()?;
        if rounds.are_enough(copied)? {
            return Ok(());
        }
        // A log that is copied more slowly than the server writes it never ends.
        if !rounds.gain {
            pace.lift_limit();
        }
    }
}

/// Rounds of copying a log that grows meanwhile.
#[derive(Default)]
struct Rounds {
    count: u32,
    grown: u32,
    before_bytes: Option<u64>,
    /// The newest copied at most half of what the one before did.
    gain: bool,
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
        self.gain = before.is_none_or(|before| copied <= before / 2);
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
        (ID.to_owned(), identity::draw()?),
        ("sluice_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("server_version".to_owned(), server.value("SELECT VERSION()")?),
        ("made_at_unix_time".to_owned(), now.to_string()),
    ];
    for name in SETTINGS {
        let value = server.value(&format!("SELECT @@GLOBAL.{name}"))?;
        facts.push((SETTING.into(), format!("{}={value}", name.replace('_', "-"))));
    }
    facts.extend(foreign.iter().map(|table| ("not_copied".to_owned(), table.shown.clone())));
    Ok(facts)
}

/// The engine's files as the list has them.
fn listed(copied: Copied) -> Vec<Listed> {
    let mut pieces: BTreeMap<PathBuf, Vec<Piece>> = BTreeMap::new();
    for CopiedPart { name, offset, bytes, check } in copied.parts {
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
pub fn verify(os: Arc<dyn Os>, dir: &Path, keys: Option<Arc<dyn Keys>>) -> Result<()> {
    let verified = Directory::open(os, dir, None)
        .and_then(|directory| match keys {
            Some(keys) => directory.with_keys(keys),
            None => Ok(directory),
        })
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

    #[test]
    fn a_rate_is_kept_while_the_rest_of_the_log_gets_half_as_long() {
        let mut rounds = Rounds::default();
        let mut gains = |mib: u64| rounds.are_enough(mib << 20).map(|_| rounds.gain);
        assert_eq!(gains(2000), Ok(true));
        assert_eq!(gains(1000), Ok(true));
        assert_eq!(gains(501), Ok(false));
    }
}
