//! After a crash: what the log's tail holds of the binlog (rules M13, M14). `complete` goes by it.

use super::events::Walker;
use super::record::{
    decode_bytes, decode_change, Authority, BytesRecord, FileInfo, GroupEnd, State, StateChange,
    Synced, RECORD_BINLOG, RECORD_BINLOG_STATE,
};
use crate::base::{Error, Lsn, Result};
use crate::wal::RecordRef;

/// A file and the part of it that the scanned log holds.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub info: FileInfo,
    /// First logged byte; what lies before was synced.
    pub from: Option<u64>,
    /// After the last logged byte.
    to: u64,
}

/// What the log's tail says of the binlog.
#[derive(Clone, Default)]
pub struct BinlogRecovery {
    pub(super) state: State,
    /// Ids below are known to the note, or were synced before it was written.
    known_below: u64,
    noted_sequence: u64,
    /// In the order of their ids.
    pub(super) traces: Vec<Trace>,
    pub(super) first_lsn: Option<Lsn>,
    /// The last such record.
    pub(super) synced: Option<Synced>,
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
            synced: None,
        })
    }

    /// Paths of the files that a start completes from the log.
    pub fn owed(&self) -> impl Iterator<Item = &str> {
        let has_authority = self.state.authority != Authority::Off;
        self.traces.iter().filter(move |_| has_authority).map(|trace| trace.info.path.as_str())
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
        let Some(trace) = self.traces.iter_mut().rev().find(|t| t.info.id == bytes.id) else {
            // The file was synced and left before the note, or before the authority ended.
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
            self.state.is_relaxed = bytes.is_relaxed;
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

    fn visit_change(&mut self, lsn: Lsn, sequence: u64, change: StateChange) -> Result<()> {
        if let StateChange::Synced(synced) = change {
            if synced.before > lsn {
                return Err(corrupt("a sync of the binlog covers what came after it", lsn));
            }
            self.synced = Some(synced);
        }
        // A large group is applied again whatever the note says: the bytes before it, which the
        // tail may hold in part, are of no use.
        if let StateChange::True { id, from, end, ref seen } = change {
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
            StateChange::Begin(info, census) | StateChange::File(info, census) => {
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
            StateChange::End { settled: false } => self.state.authority = Authority::Ending,
            StateChange::End { settled: true } => self.settle(),
            StateChange::True { .. } | StateChange::Synced(_) => {}
            StateChange::Identity(identity) => self.state.identity = identity,
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

    /// Does the census contain everything up to `end` of the file `id`?
    pub(super) fn has_read(&self, id: u64, end: u64) -> bool {
        let census = &self.state.census;
        !self.reading.is_broken && (census.file, census.at) == (id, end)
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
}

fn corrupt(what: &str, lsn: Lsn) -> Error {
    Error::corrupt(what, format!("log {lsn:?}"))
}
