//! Opening an existing log: find its end, prove that nothing acknowledged is after it, and
//! begin a new incarnation there.
//!
//! 1. The control file tells the newest incarnation and where it began; all below was durable.
//! 2. The chain of valid batches from the anchor on is visited; its end is the log's end.
//! 3. An end below what is known durable is refused, and so is one with a batch of the newest
//!    incarnation after it that says more was durable.
//! 4. Batches after the end are cleared, and those that the scan accepted are synced: after a mere end of the
//!    process some may still be volatile, and all that follows will rely on it.
//! 5. The new incarnation is made durable; only then appends begin after the end.

use super::append::{check_options, control_path, encrypts, write_control, Wal};
use super::chain::{follow, is_of_this_log, ChainEnd};
use super::format::{decode_segment_header, BatchHeader, Control, BLOCK, STREAM_START};
use super::read::Visit;
use super::scanner::{find_starts, Scanner};
use super::segments::{segment_number, segment_path, shown, Segments};
use super::{WalAnchor, WalOptions};
use crate::base::{Error, Result};
use crate::cipher::Cipher;
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl Wal {
    /// Opens the log and visits its records from `anchor.scan_from` on: a record's start, or a
    /// value of [`Wal::end`].
    pub fn recover(
        os: Arc<dyn Os>,
        options: WalOptions,
        anchor: WalAnchor,
        visit: Visit<'_>,
    ) -> Result<Arc<Wal>> {
        check_options(&options)?;
        let control_file = open_control(&*os, &options.dir)?;
        let control = read_control(&*control_file)?;
        let from = anchor.scan_from.0;
        if from < STREAM_START || anchor.scan_from > anchor.durable {
            return Err(Error::corrupt("log anchor out of order", format!("{anchor:?}")));
        }
        let files = open_files(&*os, &options.dir, control.segment_bytes)?;
        let Chosen { segments, strays } =
            choose_files(&os, &options.dir, files, from, control.segment_bytes, &options.cipher)?;
        let segment_bytes = control.segment_bytes;

        let ChainEnd { lsn: end, place, oldest } = follow(&segments, &control, from, visit)
            .map_err(|error| segments.at_place(from, error))?;
        let known_durable = anchor.durable.0.max(control.start);
        if end < known_durable {
            return Err(Error::corrupt(
                format!("the log ends at {end} but was durable up to {known_durable}"),
                shown(&options.dir, segment_bytes, place, end),
            ));
        }
        check_no_gap(&options.dir, segment_bytes, &segments, &strays)?;
        let named = |error| segments.at_place(end, error);
        let after_end = check_behind_end(&segments, &control, end, place).map_err(named)?;
        for stray in strays.iter().filter(|s| s.number >= place / segment_bytes) {
            check_stray(&control, stray, end, segment_bytes).map_err(named)?;
        }
        clear_behind_end(&segments, &after_end)?;
        sync_tail(&segments, from)?;
        segments.positions.begin_at(place);
        remove_strays(&*os, &options.dir, &strays)?;
        let Some(incarnation) = control.incarnation.checked_add(1) else {
            return Err(Error::corrupt("incarnation number", "log control file"));
        };
        let encrypted = control.encrypted || encrypts(&options).is_some();
        let control = Control { incarnation, start: end, encrypted, ..control };
        write_control(&*control_file, &control)?;
        let tail_keys = (oldest, anchor.scan_from);
        Ok(Wal::assemble(os, options, control, segments, tail_keys))
    }
}

fn open_control(os: &dyn Os, dir: &Path) -> Result<Arc<dyn File>> {
    let path = control_path(dir);
    if !os.exists(&path)? {
        return Err(Error::Refused(format!(
            "{} is missing: restore the whole log directory, or the backup it belongs to",
            path.display()
        )));
    }
    os.open(&path, OpenMode { create: false, direct: true })
}

/// The newest valid of the two copies.
pub(super) fn read_control(file: &dyn File) -> Result<Control> {
    let mut block = AlignedBuf::new(BLOCK as usize);
    let mut newest: Option<Control> = None;
    let mut failure = None;
    for slot in 0..2 {
        match file.read_at(&mut block, slot * BLOCK).and_then(|()| Control::decode(&block)) {
            Ok(c) if newest.is_none_or(|n| n.incarnation < c.incarnation) => newest = Some(c),
            Ok(_) => {}
            Err(e @ (Error::Corrupt { .. } | Error::Refused(_))) => failure = Some(e),
            Err(e) => return Err(e),
        }
    }
    match (newest, failure) {
        (_, Some(Error::Refused(why))) => {
            Err(Error::Refused(format!("{}: {why}", file.path().display())))
        }
        (Some(control), _) => Ok(control),
        (None, e) => {
            let why = e.map_or_else(String::new, |e| format!(" ({e})"));
            let what = format!("both copies of the log control file are damaged{why}");
            Err(Error::corrupt(what, file.path().display().to_string()))
        }
    }
}

/// A segment file as found in the directory.
pub(super) struct Found {
    pub number: u64,
    pub file: Arc<dyn File>,
    /// Its header and its length are those of segment `number`.
    pub intact: bool,
    /// The number in its header.
    pub named: Option<u64>,
}

pub(super) fn open_files(
    os: &dyn Os,
    dir: &Path,
    segment_bytes: u64,
) -> Result<BTreeMap<u64, Found>> {
    let mut files = BTreeMap::new();
    let mut block = AlignedBuf::new(BLOCK as usize);
    for path in os.list(dir)? {
        let Some(number) = segment_number(&path) else { continue };
        if (number + 1).checked_mul(segment_bytes).is_none() {
            return Err(Error::corrupt("segment number", path.display().to_string()));
        }
        let file = os.open(&path, OpenMode { create: false, direct: true })?;
        let bytes = file.len()?;
        let (mut intact, mut named) = (bytes == BLOCK + segment_bytes, None);
        if bytes >= BLOCK {
            file.read_at(&mut block, 0)?;
            intact &= match decode_segment_header(&block) {
                Ok(header) => {
                    named = Some(header.0);
                    header == (number, segment_bytes)
                }
                Err(Error::Refused(why)) => {
                    return Err(Error::Refused(format!("{}: {why}", path.display())))
                }
                Err(_) => false,
            };
        }
        files.insert(number, Found { number, file, intact, named });
    }
    Ok(files)
}

/// A file gets a higher number when nobody needs it, and a crash may undo its new name; one that is
/// needed never has the header of a later segment.
fn check_names(files: &BTreeMap<u64, Found>, needed: u64) -> Result<()> {
    for found in files.range(needed..).map(|(_, found)| found) {
        if let Some(other) = found.named.filter(|&other| other > found.number) {
            let what = format!("log segment {other} under the name of segment {}", found.number);
            return Err(Error::corrupt(what, found.file.path().display().to_string()));
        }
    }
    Ok(())
}

/// The files of a log, and all others.
pub(super) struct Chosen {
    pub segments: Arc<Segments>,
    pub strays: Vec<Found>,
}

/// Of the runs of intact consecutive files the one in which the batch around `from` starts.
pub(super) fn choose_files(
    os: &Arc<dyn Os>,
    dir: &Path,
    files: BTreeMap<u64, Found>,
    from: u64,
    segment_bytes: u64,
    cipher: &Option<Arc<Cipher>>,
) -> Result<Chosen> {
    let mut best: Option<(u64, Arc<Segments>)> = None;
    for run in runs(&files) {
        let opened =
            run.clone().filter_map(|n| files.get(&n)).map(|f| Arc::clone(&f.file)).collect();
        let segments =
            Segments::new(Arc::clone(os), dir.to_owned(), segment_bytes, run.start, opened)
                .with_cipher(cipher.clone());
        find_starts(&segments)?;
        // A log in which nothing was written yet has no batch there.
        let is_new = run.start == 0 && from == STREAM_START;
        let place = segments.positions.start_before(from).or(is_new.then_some(STREAM_START));
        if let Some(place) = place.filter(|&p| best.as_ref().is_none_or(|(before, _)| *before < p))
        {
            best = Some((place, Arc::new(segments)));
        }
    }
    let Some((place, segments)) = best else {
        let what = "the segment where recovery starts is missing or damaged";
        return Err(Error::corrupt(what, format!("log position {from} in {}", dir.display())));
    };
    let numbers = segments.numbers();
    check_names(&files, place / segment_bytes)?;
    let strays = files.into_iter().filter(|(n, _)| !numbers.contains(n)).map(|(_, f)| f).collect();
    Ok(Chosen { segments, strays })
}

/// Runs of intact files with consecutive numbers.
fn runs(files: &BTreeMap<u64, Found>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &number in files.iter().filter(|(_, found)| found.intact).map(|(number, _)| number) {
        match runs.last_mut().filter(|run| run.end == number) {
            Some(run) => run.end += 1,
            None => runs.push(number..number + 1),
        }
    }
    runs
}

/// Segments come into being one after the other, each with a durable name before the next. So one
/// that is missing below an intact one was lost, with whatever was in it.
fn check_no_gap(
    dir: &Path,
    segment_bytes: u64,
    segments: &Segments,
    strays: &[Found],
) -> Result<()> {
    let missing = segments.number_of(segments.end());
    match strays.iter().find(|stray| stray.intact && stray.number > missing) {
        None => Ok(()),
        Some(later) => Err(Error::corrupt(
            format!(
                "log segment missing or damaged, but a later one is there, {}",
                later.file.path().display()
            ),
            format!("{} (segments of {segment_bytes} bytes)", segment_path(dir, missing).display()),
        )),
    }
}

fn acknowledged_behind(header: &BatchHeader, end: u64) -> Error {
    Error::corrupt(
        format!(
            "the log ends at {end}, but its batch at {} says that it was durable up to {}",
            header.lsn, header.durable_before
        ),
        format!("log position {end}"),
    )
}

/// Looks at every block after the end for a batch that proves the end wrong. Batches that were
/// in flight together with the torn one are no proof: answers their places.
fn check_behind_end(
    segments: &Segments,
    control: &Control,
    end: u64,
    place: u64,
) -> Result<Vec<u64>> {
    let mut scanner = Scanner::new(segments, segments.end());
    let (mut at, mut found) = (place, Vec::new());
    while at < segments.end() {
        if let Some(header) = scanner.batch(at)? {
            if !is_of_this_log(control, &header) {
                let place = format!("log position {}", header.lsn);
                return Err(Error::corrupt("a batch of another log", place));
            }
            let newest = header.incarnation == control.incarnation;
            if header.incarnation > control.incarnation || newest && header.durable_before > end {
                return Err(acknowledged_behind(&header, end));
            }
            found.push(at);
        }
        at += BLOCK;
    }
    Ok(found)
}

/// Makes batches after the end unreadable. Their positions will be given to others, at other places: so what is
/// in a segment would not tell any more which positions it holds.
fn clear_behind_end(segments: &Segments, places: &[u64]) -> Result<()> {
    let zeros = AlignedBuf::new(BLOCK as usize);
    for &place in places {
        if let Some((file, offset)) = segments.locate(place) {
            file.write_at(&zeros, offset)?;
        }
    }
    Ok(())
}

/// The same for a file outside the run. A segment's header is durable before any batch in it is
/// written, so in a damaged file any valid batch of the newest incarnation proves a loss.
fn check_stray(control: &Control, stray: &Found, end: u64, segment_bytes: u64) -> Result<()> {
    let base = stray.number * segment_bytes;
    let bytes = stray.file.len()?.saturating_sub(BLOCK).min(segment_bytes) / BLOCK * BLOCK;
    let mut buf = AlignedBuf::new(bytes as usize);
    if bytes == 0 {
        return Ok(());
    }
    stray.file.read_at(&mut buf[..bytes as usize], BLOCK)?;
    for at in (0..bytes).step_by(BLOCK as usize) {
        let rest = &buf[at as usize..bytes as usize];
        let Some(header) = BatchHeader::decode(rest, base + at) else { continue };
        // One that goes on in the next file cannot be verified; its header is proof enough.
        let stored = rest.get(..header.stored_bytes() as usize);
        let intact = stored.is_none_or(|bytes| header.verify(bytes));
        if intact && header.incarnation >= control.incarnation {
            return Err(acknowledged_behind(&header, end));
        }
    }
    Ok(())
}

/// Spares too: their headers may be as volatile as the last batches.
fn sync_tail(segments: &Segments, from: u64) -> Result<()> {
    for number in segments.positions.segment_around(from)..segments.number_of(segments.end()) {
        segments.sync(number)?;
    }
    Ok(())
}

fn remove_strays(os: &dyn Os, dir: &Path, strays: &[Found]) -> Result<()> {
    for stray in strays {
        os.remove(stray.file.path())?;
    }
    // Also for the names that stay: the process may have ended before they were durable.
    os.sync_dir(dir)
}
