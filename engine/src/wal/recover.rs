//! Opening an existing log: find its end, prove that nothing acknowledged is behind it, and
//! begin a new incarnation there.
//!
//! 1. The control file tells the newest incarnation and where it began; all below was durable.
//! 2. The chain of valid batches from the anchor on is visited; its end is the log's end.
//! 3. An end below what is known durable is refused, and so is one with a batch of the newest
//!    incarnation behind it that says more was durable.
//! 4. What the scan accepted is synced: after a mere end of the process some of it may still be
//!    volatile, and all that follows will rely on it.
//! 5. The new incarnation is made durable; only then appends begin behind the end.

use super::append::{check_options, control_path, write_control, Wal};
use super::format::{decode_segment_header, BatchHeader, Control, BLOCK, STREAM_START};
use super::read::{visit_records, Scanner, Visit};
use super::segments::{segment_number, Segments};
use super::{WalAnchor, WalOptions};
use crate::base::{Error, Result};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::collections::{BTreeMap, VecDeque};
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
        let (first, run, strays) = choose_files(files, from, control.segment_bytes)?;
        let segment_bytes = control.segment_bytes;
        let segments =
            Segments::new(Arc::clone(&os), options.dir.clone(), segment_bytes, first, run);

        let end = follow_chain(&segments, &control, from, visit)?;
        let known_durable = anchor.durable.0.max(control.start);
        if end < known_durable {
            return Err(Error::corrupt(
                format!("the log ends at {end} but was durable up to {known_durable}"),
                options.dir.display().to_string(),
            ));
        }
        check_behind_end(&segments, &control, end)?;
        for stray in strays.iter().filter(|s| s.number >= end / segment_bytes) {
            check_stray(&control, stray, end, segment_bytes)?;
        }
        sync_tail(&segments, from)?;
        remove_strays(&*os, &options.dir, &strays)?;
        let Some(incarnation) = control.incarnation.checked_add(1) else {
            return Err(Error::corrupt("incarnation number", "log control file"));
        };
        let control = Control { incarnation, start: end, ..control };
        write_control(&*control_file, &control)?;
        Ok(Wal::assemble(os, options, control, segments))
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
        (_, Some(e @ Error::Refused(_))) => Err(e),
        (Some(control), _) => Ok(control),
        (None, e) => Err(e.unwrap_or_else(|| Error::corrupt("no copy", "log control file"))),
    }
}

/// A segment file as found in the directory.
pub(super) struct Found {
    pub number: u64,
    pub file: Arc<dyn File>,
    /// Its header and its length are those of segment `number`.
    pub intact: bool,
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
        let mut intact = bytes == BLOCK + segment_bytes;
        if bytes >= BLOCK {
            file.read_at(&mut block, 0)?;
            intact &= match decode_segment_header(&block) {
                Ok(header) => header == (number, segment_bytes),
                Err(e @ Error::Refused(_)) => return Err(e),
                Err(_) => false,
            };
        }
        files.insert(number, Found { number, file, intact });
    }
    Ok(files)
}

/// Number of the first file of a run, the run, and all other files.
type Chosen = (u64, VecDeque<Arc<dyn File>>, Vec<Found>);

/// The longest run of intact consecutive files around the position `from`, and all other files.
fn choose_files(mut files: BTreeMap<u64, Found>, from: u64, segment_bytes: u64) -> Result<Chosen> {
    let is_intact = |n: u64| files.get(&n).is_some_and(|f| f.intact);
    let mut first = from / segment_bytes;
    // The log may end exactly where a segment does.
    if !is_intact(first) && from % segment_bytes == 0 && first > 0 {
        first -= 1;
    }
    if !is_intact(first) {
        return Err(Error::corrupt("the segment where recovery starts is missing or damaged", {
            format!("log position {from}, segment {}", from / segment_bytes)
        }));
    }
    let mut end = first + 1;
    while is_intact(end) {
        end += 1;
    }
    while first > 0 && is_intact(first - 1) {
        first -= 1;
    }
    let run = (first..end).filter_map(|n| files.remove(&n)).map(|f| f.file).collect();
    Ok((first, run, files.into_values().collect()))
}

/// Whether a batch may stand at its position, given the newest incarnation and the incarnation
/// of the batch before it.
fn is_in_order(control: &Control, header: &BatchHeader, before: u64) -> bool {
    match header.lsn >= control.start {
        true => header.incarnation == control.incarnation,
        false => {
            header.incarnation < control.incarnation
                && header.incarnation >= before
                && header.next() <= control.start
        }
    }
}

fn follow_chain(
    segments: &Segments,
    control: &Control,
    from: u64,
    visit: Visit<'_>,
) -> Result<u64> {
    let mut scanner = Scanner::new(segments, segments.end());
    let Some(mut at) = scanner.find_batch(from)? else { return Ok(from) };
    let mut incarnation = 0;
    while let Some(header) = scanner.batch(at)? {
        if !is_in_order(control, &header, incarnation) {
            break;
        }
        incarnation = header.incarnation;
        visit_records(&header, scanner.bytes(&header)?, from, u64::MAX, visit)?;
        at = header.next();
    }
    if at < from {
        // The batch around the start is not in order.
        return Err(Error::corrupt("no valid batch", format!("log position {from}")));
    }
    Ok(at)
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

/// Looks at every block behind the end for a batch that proves the end wrong. Batches that were
/// in flight together with the torn one are no proof.
fn check_behind_end(segments: &Segments, control: &Control, end: u64) -> Result<()> {
    let mut scanner = Scanner::new(segments, segments.end());
    let mut at = end;
    while at < segments.end() {
        if let Some(header) = scanner.batch(at)? {
            let newest = header.incarnation == control.incarnation;
            if header.incarnation > control.incarnation || newest && header.durable_before > end {
                return Err(acknowledged_behind(&header, end));
            }
        }
        at += BLOCK;
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
        let intact = rest.get(..header.length as usize).is_none_or(|b| header.verify(b));
        if intact && header.incarnation >= control.incarnation {
            return Err(acknowledged_behind(&header, end));
        }
    }
    Ok(())
}

/// Spares too: their headers may be as volatile as the last batches.
fn sync_tail(segments: &Segments, from: u64) -> Result<()> {
    for number in segments.number_of(from)..segments.number_of(segments.end()) {
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
