//! After a crash: what the log holds of the binlog, and the file made equal to it (rules M13, M14).
//!
//! The scan of the log's tail tells which bytes of which file the log holds. [`complete`] then
//! reads them again and writes what the file has differently, cuts the file at the last group end
//! and syncs it. A crash on the way repeats all of it.
//!
//! [`complete`]: BinlogRecovery::complete

use super::census::{Decision, Gtid};
use super::events::{self, Walker};
use super::record::{
    decode_bytes, decode_change, Authority, BytesRecord, Change, FileInfo, GroupEnd, State,
    RECORD_BINLOG, RECORD_BINLOG_STATE,
};
use crate::base::{Error, Lsn, Result};
use crate::os::{File, OpenMode, Os};
use crate::wal::{RecordRef, Wal};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file and the part of it that the scanned log holds.
#[derive(Clone, Debug)]
struct Trace {
    info: FileInfo,
    /// First logged byte; what lies before was synced.
    from: Option<u64>,
    /// Behind the last logged byte.
    to: u64,
}

/// What the log's tail says of the binlog.
#[derive(Clone, Default)]
pub struct BinlogRecovery {
    pub(super) state: State,
    /// Ids below are known to the note, or were synced before it was written.
    known_below: u64,
    noted_sequence: u64,
    traces: Vec<Trace>,
    first_lsn: Option<Lsn>,
    reading: Reading,
}

/// Reads on from where the census is.
#[derive(Clone)]
struct Reading {
    walker: Walker,
    at: u64,
    /// Not all bytes are in the log that was scanned.
    is_broken: bool,
}

impl Reading {
    fn new(at: u64) -> Reading {
        Reading { walker: Walker::new(at), at, is_broken: false }
    }
}

impl Default for Reading {
    fn default() -> Reading {
        Reading::new(0)
    }
}

/// What the log knows of the last file, which the server would scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub path: String,
    /// The GTID state at its end; of a domain the most recent last.
    pub gtids: Vec<Gtid>,
    xids: HashSet<u64>,
    /// XIDs in bytes that were logged from here on are all in `xids`.
    all_from: Lsn,
}

impl Known {
    pub(super) fn decide(&self, xid: u64, prepared_from: Lsn) -> Decision {
        match self.xids.contains(&xid) {
            true => Decision::Commit,
            false if prepared_from >= self.all_from => Decision::Rollback,
            false => Decision::Unknown,
        }
    }
}

/// What [`BinlogRecovery::complete`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub files: u64,
    /// Bytes that were missing or different.
    pub completed_bytes: u64,
    pub cut_bytes: u64,
    /// For the error log: what was left alone and why.
    pub warnings: Vec<String>,
    /// Or why the server has to scan the last file.
    pub known: std::result::Result<Known, &'static str>,
}

impl Default for Completion {
    fn default() -> Completion {
        Completion {
            files: 0,
            completed_bytes: 0,
            cut_bytes: 0,
            warnings: Vec::new(),
            known: Err("the log had no authority over it"),
        }
    }
}

impl BinlogRecovery {
    /// Starts from the checkpoint's note.
    pub fn new(note: &[u8]) -> Result<BinlogRecovery> {
        let state = State::decode(note)?;
        let trace = |info: &FileInfo| Trace { to: info.end, info: info.clone(), from: None };
        Ok(BinlogRecovery {
            known_below: state.next_id,
            noted_sequence: state.sequence,
            traces: state.files.iter().map(trace).collect(),
            reading: Reading::new(state.census.at),
            state,
            first_lsn: None,
        })
    }

    /// Is the record one of this room?
    pub fn owns(kind: u8) -> bool {
        kind == RECORD_BINLOG || kind == RECORD_BINLOG_STATE
    }

    pub fn visit(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        if record.kind == RECORD_BINLOG_STATE {
            let (sequence, change) = decode_change(record.payload)?;
            return self.visit_change(lsn, sequence, change);
        }
        let bytes = decode_bytes(record.payload)?;
        let known_below = self.known_below;
        let Some(trace) = self.traces.iter_mut().find(|t| t.info.id == bytes.id) else {
            // Of a file that was synced and left before the note, or before the authority ended.
            return match bytes.id < known_below.max(self.state.next_id) {
                true => Ok(()),
                false => Err(corrupt("binlog bytes of an unknown file", lsn)),
            };
        };
        let end = bytes.pos + bytes.bytes.len() as u64;
        if trace.from.is_some() && bytes.pos != trace.to {
            return Err(corrupt("gap in the binlog's bytes", lsn));
        }
        trace.from.get_or_insert(bytes.pos);
        trace.to = end;
        if bytes.group_end.is_some() {
            trace.info.end = trace.info.end.max(end);
        }
        self.first_lsn.get_or_insert(lsn);
        self.read_events(&bytes);
        Ok(())
    }

    /// Bytes that the census does not contain yet.
    fn read_events(&mut self, bytes: &BytesRecord<'_>) {
        let (census, reading) = (&mut self.state.census, &mut self.reading);
        let end = bytes.pos + bytes.bytes.len() as u64;
        if bytes.id != census.file || end <= census.at || census.gtids().is_none() {
            return;
        }
        reading.is_broken |= bytes.pos != reading.at;
        reading.is_broken |= reading.is_broken || !reading.walker.pass(bytes.pos, bytes.bytes);
        reading.at = end;
        if bytes.group_end == Some(GroupEnd::Certain) && !reading.is_broken {
            census.end_group(end, &reading.walker.take_seen());
        }
    }

    fn visit_change(&mut self, lsn: Lsn, sequence: u64, change: Change) -> Result<()> {
        // A large group is applied again whatever the note says: the bytes before it, which the
        // tail may hold in part, are of no use.
        if let Change::True { id, from, end, ref seen } = change {
            let census = &mut self.state.census;
            if id == census.file && end > census.at {
                let follows = from == census.at && seen.is_some();
                self.reading = Reading { is_broken: !follows, ..Reading::new(end) };
                if let (true, Some(seen)) = (follows, seen) {
                    census.end_group(end, seen);
                }
            }
            if let Some(trace) = self.traces.iter_mut().find(|t| t.info.id == id) {
                (trace.from, trace.to) = (None, end);
                trace.info.end = trace.info.end.max(end);
            }
        }
        if sequence <= self.noted_sequence {
            return Ok(());
        }
        if sequence != self.state.sequence + 1 {
            return Err(corrupt("a change of the binlog's state is missing", lsn));
        }
        self.state.sequence = sequence;
        match change {
            Change::Begin(info, census) | Change::File(info, census) => {
                self.reading = Reading::new(census.at);
                self.state.census = census;
                if self.state.authority != Authority::On {
                    self.traces.clear();
                    self.first_lsn = None;
                    self.state.begin_lsn = lsn;
                }
                self.state.authority = Authority::On;
                self.state.next_id = self.state.next_id.max(info.id + 1);
                self.traces.push(Trace { to: info.end, info, from: None });
            }
            Change::End { settled: false } => self.state.authority = Authority::Ending,
            Change::End { settled: true } => self.settle(),
            Change::True { .. } => {}
            Change::Identity(identity) => self.state.identity = identity,
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.state.authority = Authority::Off;
        self.state.census = Default::default();
        self.traces.clear();
        self.first_lsn = None;
    }

    pub fn identity(&self) -> u64 {
        self.state.identity
    }

    /// Nothing to complete and nothing to cut.
    pub fn is_settled(&self) -> bool {
        self.state.authority == Authority::Off
    }

    /// The log from here is needed until the files are complete.
    pub(super) fn pin(&self) -> Option<Lsn> {
        self.first_lsn
    }

    pub(super) fn files(&self) -> Vec<FileInfo> {
        self.traces.iter().map(|t| t.info.clone()).collect()
    }

    /// Makes the files equal to the log. `index` are the names in the server's index, in order.
    pub fn complete(&self, os: &dyn Os, wal: &Wal, index: &[String]) -> Result<Completion> {
        let mut done = Completion::default();
        if self.is_settled() {
            return Ok(done);
        }
        let mut targets = Vec::new();
        for trace in &self.traces {
            if let Some(target) = self.target(os, trace, index, &mut done)? {
                targets.push(target);
            }
        }
        if let Some(foreign) = self.foreign_file(os, index)? {
            self.refuse_foreign(&targets, &foreign, &mut done)?;
            return Ok(done);
        }
        if let Some(from) = self.first_lsn {
            wal.scan(from, wal.end(), &mut |_, record| {
                if record.kind != RECORD_BINLOG {
                    return Ok(());
                }
                let bytes = decode_bytes(record.payload)?;
                match targets.iter_mut().find(|t| t.trace.info.id == bytes.id) {
                    Some(target) => target.write(bytes.pos, bytes.bytes, &mut done),
                    None => Ok(()),
                }
            })?;
        }
        for target in &targets {
            target.finish(self.state.authority == Authority::On, &mut done)?;
        }
        done.known = self.known(&targets, index);
        Ok(done)
    }

    /// What the server would find out by a scan.
    fn known(
        &self,
        targets: &[Target<'_>],
        index: &[String],
    ) -> std::result::Result<Known, &'static str> {
        let census = &self.state.census;
        if self.state.authority != Authority::On {
            return Err("a fault had ended the log's authority over it");
        }
        let target = targets.iter().find(|t| t.trace.info.id == census.file);
        let Some(target) = target.filter(|t| index.last() == Some(&t.trace.info.path)) else {
            return Err("the log does not know the last file in the index");
        };
        let gtids = census.gtids().ok_or("its GTID state is not known, or it is encrypted")?;
        if self.reading.is_broken || census.at != target.trace.info.end {
            return Err("not all of its events were read");
        }
        let path = target.trace.info.path.clone();
        let (xids, all_from) = census.xids();
        Ok(Known { path, gtids: gtids.to_vec(), xids, all_from })
    }

    /// The file of a trace, if it is still the same and may be touched.
    fn target<'a>(
        &self,
        os: &dyn Os,
        trace: &'a Trace,
        index: &[String],
        done: &mut Completion,
    ) -> Result<Option<Target<'a>>> {
        let info = &trace.info;
        let newer = self.traces.iter().any(|t| t.info.id > info.id && t.info.path == info.path);
        // A file that is not in the index was purged, or never finished: nobody reads it.
        if newer || !index.contains(&info.path) {
            return Ok(None);
        }
        let path = PathBuf::from(&info.path);
        if !os.exists(&path)? {
            done.warnings.push(format!("{} is in the index but does not exist", info.path));
            return Ok(None);
        }
        let file = os.open(&path, OpenMode::default())?;
        if events::generation(&*file).ok() != Some(info.generation) {
            let text = format!("{} is not the file that the log knows by this name", info.path);
            done.warnings.push(text);
            return Ok(None);
        }
        let synced = trace.from.unwrap_or(info.end);
        if file.len()? < synced {
            return Err(Error::Refused(format!(
                "{} has {} bytes, but {synced} were synced, and the log does not hold them any \
                 more: restore the file, or remove it from the index",
                info.path,
                file.len()?
            )));
        }
        Ok(Some(Target { trace, file }))
    }

    /// The first file in the index behind the last one of ours that has events of somebody else.
    fn foreign_file(&self, os: &dyn Os, index: &[String]) -> Result<Option<String>> {
        let ours = index.iter().rposition(|n| self.traces.iter().any(|t| t.info.path == *n));
        let Some(last) = ours else { return Ok(None) };
        for name in &index[last + 1..] {
            if !os.exists(Path::new(name))? {
                continue;
            }
            let file = os.open(Path::new(name), OpenMode::default())?;
            if !events::is_header_only(&*file)? {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    fn refuse_foreign(
        &self,
        targets: &[Target<'_>],
        foreign: &str,
        done: &mut Completion,
    ) -> Result<()> {
        for target in targets {
            let info = &target.trace.info;
            let missing = info.end.saturating_sub(target.file.len()?);
            done.warnings.push(format!(
                "the server wrote {foreign} without Sluice's part in it: {} is left as it is; \
                 {missing} bytes at its end are in the log only and are not restored",
                info.path
            ));
        }
        Ok(())
    }
}

fn corrupt(what: &str, lsn: Lsn) -> Error {
    Error::corrupt(what, format!("log {lsn:?}"))
}

struct Target<'a> {
    trace: &'a Trace,
    file: Arc<dyn File>,
}

impl Target<'_> {
    /// Writes logged bytes where the file has others.
    fn write(&mut self, pos: u64, bytes: &[u8], done: &mut Completion) -> Result<()> {
        let end = self.trace.info.end;
        if self.trace.from.is_none_or(|from| pos < from) || pos >= end {
            return Ok(());
        }
        let bytes = &bytes[..bytes.len().min((end - pos) as usize)];
        let mut found = vec![0; bytes.len()];
        let length = self.file.len()?;
        let there = length >= pos + bytes.len() as u64;
        if there {
            self.file.read_at(&mut found, pos)?;
        }
        if !there || found != bytes {
            self.file.write_at(bytes, pos)?;
            done.completed_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(&self, may_cut: bool, done: &mut Completion) -> Result<()> {
        let (end, length) = (self.trace.info.end, self.file.len()?);
        if length > end && may_cut {
            self.file.set_len(end)?;
            done.cut_bytes += length - end;
        }
        self.file.sync()?;
        done.files += 1;
        Ok(())
    }
}
