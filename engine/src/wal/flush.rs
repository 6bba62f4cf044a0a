//! Group flush: one leader writes for all, the others sleep until their LSN is reached.
//!
//! A session that needs bytes durable becomes the leader if there is none, else it queues with
//! its LSN. A leader takes everything sealed and the open batch, so one that queued before the
//! leader sealed is served by it. When done it wakes those whose LSN is reached, and hands the
//! lead to the oldest of the rest: nobody is woken to find out that it must wait again.

use super::append::{Io, Wal};
use super::election::{Mode, Need, Progress};
use super::format::BatchHeader;
use super::ring::{Leading, Piece, Sealed};
use super::stats::count;
use super::waiter::{Answer, Waiter};
use crate::base::{Error, Lsn, Result};
use crate::os::observe::{self, Wait};
use crate::os::planted::{self, Bug};
use crate::os::AlignedBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Batches that are packed before they are written.
const PACKED_MAX: usize = 16;

/// What one write has.
enum Stored<'a> {
    /// Batches as they are in memory.
    Plain(Piece<'a>),
    Packed {
        lsn: u64,
        bytes: AlignedBuf,
    },
}

impl Stored<'_> {
    fn lsn(&self) -> u64 {
        match self {
            Stored::Plain(piece) => piece.lsn,
            Stored::Packed { lsn, .. } => *lsn,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Stored::Plain(piece) => piece.bytes(),
            Stored::Packed { bytes, .. } => bytes,
        }
    }
}

/// Gives up the lead on every way out, also by a panic.
struct Lead<'a> {
    wal: &'a Wal,
    error: Option<Error>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.wal.poison("a flush leader panicked");
        }
        self.wal.hand_over(self.error.take());
    }
}

impl Wal {
    /// Returns when all bytes below `end` are durable.
    pub fn flush_to(&self, end: Lsn) -> Result<()> {
        self.reach(end, Mode::Sync)
    }

    /// Returns when all bytes below `end` are handed to the operating system: they survive the
    /// end of this process, not that of the machine.
    pub fn write_to(&self, end: Lsn) -> Result<()> {
        self.reach(end, Mode::Write)
    }

    /// Background work: writes full batches ahead of the next flush. Answers whether it did.
    pub fn write_step(&self) -> Result<bool> {
        self.check_poison()?;
        if !self.ring.has_sealed() {
            return Ok(false);
        }
        if !self.election.lock().try_lead() {
            return Ok(false);
        }
        self.lead(Mode::Ahead)?;
        Ok(true)
    }

    fn progress(&self) -> Progress {
        Progress { written: self.ring.written(), durable: self.durable().0 }
    }

    fn reach(&self, end: Lsn, mode: Mode) -> Result<()> {
        let need = Need { end: end.0, mode };
        if self.progress().reaches(need) {
            return Ok(());
        }
        if end > self.end() {
            // Such a position can only come from damaged bytes.
            return Err(Error::corrupt("position after the log's end", format!("lsn {end}")));
        }
        let began_ns = self.os.now_ns();
        let result = self.wait_or_lead(need);
        count(&self.counters.flush_waits, 1);
        count(&self.counters.flush_wait_ns, self.os.now_ns().saturating_sub(began_ns));
        result
    }

    fn wait_or_lead(&self, need: Need) -> Result<()> {
        let waiter = {
            let mut election = self.election.lock();
            if self.progress().reaches(need) {
                return Ok(());
            }
            self.check_poison()?;
            election.join(need, || Arc::new(Waiter::new()))
        };
        let answer =
            waiter.map_or(Answer::Leads, |w| observe::waiting(Wait::LogFlush, || w.wait()));
        match answer {
            Answer::Served => Ok(()),
            Answer::Failed(error) => Err(error),
            Answer::Leads => {
                let result = self.lead(need.mode);
                if self.progress().reaches(need) {
                    // There may have been no room for what others appended after it.
                    return Ok(());
                }
                assert!(result.is_err());
                result
            }
        }
    }

    /// One round as the leader; the caller was elected.
    fn lead(&self, mode: Mode) -> Result<()> {
        let mut lead = Lead { wal: self, error: None };
        let result = self.check_poison().and_then(|()| self.round(mode));
        if let Err(e) = &result {
            if !matches!(e, Error::Full { .. } | Error::Poisoned { .. }) {
                self.poison(&e.to_string());
            }
            lead.error = Some(e.clone());
        }
        result
    }

    /// Answers those that are served, all on an error, and the next leader.
    fn hand_over(&self, error: Option<Error>) {
        let answers = {
            let mut election = self.election.lock();
            election.hand_over(self.progress(), error.is_some())
        };
        // The next leader first: the device is idle until it runs.
        answers.leads.iter().for_each(|waiter| waiter.answer(Answer::Leads));
        answers.served.iter().for_each(|waiter| waiter.answer(Answer::Served));
        if let Some(error) = error {
            answers.failed.iter().for_each(|waiter| waiter.answer(Answer::Failed(error.clone())));
        }
    }

    fn round(&self, mode: Mode) -> Result<()> {
        let mut io = self.io.lock();
        if mode != Mode::Ahead {
            self.ring.seal();
        }
        let mut leading = self.ring.lead();
        let mut batches = leading.sealed();
        let full = self.cut_to_room(&mut batches)?;
        for batch in &batches {
            leading.finish(batch, self.incarnation, self.durable().0);
        }
        if let Some(last) = batches.last() {
            if self.write_batches(&leading, &mut io, mode, &batches)? {
                count(&self.counters.flushes_by_one_write, 1);
            }
            leading.written(last.next());
        }
        if mode == Mode::Sync {
            for &number in &io.unsynced {
                self.segments.sync(number)?;
            }
            io.unsynced.clear();
            // Somebody else may have stopped everything meanwhile: nothing is acknowledged then.
            self.check_poison()?;
            self.publish(self.ring.written());
        }
        full.map_or(Ok(()), Err)
    }

    /// Makes missing segments; drops from the end the batches for which there is no room. The
    /// answer is the error of those, which stay sealed for a later round.
    fn cut_to_room(&self, batches: &mut Vec<Sealed>) -> Result<Option<Error>> {
        let Some(to) = batches.last().map(Sealed::next) else { return Ok(None) };
        if to <= self.segments.end() {
            return Ok(None);
        }
        count(&self.counters.segments_late, 1);
        match self.segments.ensure(to, self.capacity_bytes()) {
            Ok(()) => Ok(None),
            Err(e @ Error::Full { .. }) => {
                let room = self.segments.end();
                batches.retain(|b| b.next() <= room);
                Ok(Some(e))
            }
            Err(e) => Err(e),
        }
    }

    /// Writes finished batches; answers whether that made them durable.
    fn write_batches(
        &self,
        leading: &Leading<'_>,
        io: &mut Io,
        mode: Mode,
        batches: &[Sealed],
    ) -> Result<bool> {
        // A packed batch has a buffer until it is written: not too many at a time.
        let mut groups = batches.chunks(PACKED_MAX).peekable();
        while let Some(group) = groups.next() {
            let writes = self.stored(leading, io, group)?;
            // A data-sync write covers its own bytes only: what was written ahead needs a sync, and
            // one sync then serves for all.
            if let (Mode::Sync, true, None, [write]) =
                (mode, io.unsynced.is_empty(), groups.peek(), &writes[..])
            {
                self.write(write, true)?;
                return Ok(true);
            }
            for write in &writes {
                let number = self.segments.number_of(write.lsn());
                if !io.unsynced.contains(&number) {
                    io.unsynced.push(number);
                }
                self.write(write, false)?;
            }
        }
        Ok(false)
    }

    /// Finished batches as they go to the files, packed where that pays.
    fn stored<'a>(
        &self,
        leading: &'a Leading<'_>,
        io: &mut Io,
        batches: &[Sealed],
    ) -> Result<Vec<Stored<'a>>> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        let mut plain_from = first.start;
        let plain = |from, to| leading.pieces(from, to).into_iter().map(Stored::Plain);
        for batch in batches {
            let (header, packed) = io.packer.pack(leading, batch)?;
            count(&self.counters.record_bytes, batch.body_bytes());
            count(&self.counters.record_stored_bytes, batch.stored_bytes(&header));
            self.segments.note(&match planted::is(Bug::PackedTakenForPlain) {
                true => BatchHeader { packed: None, ..header },
                false => header,
            });
            let Some(bytes) = packed else { continue };
            out.extend(plain(plain_from, batch.start));
            out.extend(self.cut(batch.start, bytes));
            plain_from = batch.next();
        }
        out.extend(plain(plain_from, last.next()));
        Ok(out)
    }

    /// A batch that is not written as it is in memory, a piece for each segment that it is in.
    fn cut(&self, mut lsn: u64, bytes: AlignedBuf) -> Vec<Stored<'static>> {
        let segment_bytes = self.segments.segment_bytes;
        let room = |lsn: u64| (segment_bytes - lsn % segment_bytes) as usize;
        if bytes.len() <= room(lsn) {
            return vec![Stored::Packed { lsn, bytes }];
        }
        let mut out = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(room(lsn)));
            let mut bytes = AlignedBuf::new(piece.len());
            bytes.copy_from_slice(piece);
            out.push(Stored::Packed { lsn, bytes });
            (lsn, rest) = (lsn + piece.len() as u64, after);
        }
        out
    }

    fn write(&self, what: &Stored<'_>, durable: bool) -> Result<()> {
        let Some((file, offset)) = self.segments.locate(what.lsn()) else {
            unreachable!("room was made before")
        };
        let bytes = what.bytes();
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes.len() as u64);
        let result = match durable && !planted::is(Bug::LogWriteNotDurable) {
            true => file.write_durable(bytes, offset),
            false => file.write_at(bytes, offset),
        };
        // The blocks were there: even a full disk is a failed write here, not a missing segment.
        let result = match result {
            Err(Error::Full { .. }) if planted::is(Bug::HalfGroupWritten) => Ok(()),
            other => other,
        };
        result.map_err(|e| match e {
            Error::Full { .. } => {
                Error::io("write", file.path(), std::io::ErrorKind::StorageFull.into())
            }
            other => other,
        })
    }

    fn publish(&self, durable: u64) {
        assert!(durable >= self.durable().0);
        count(&self.counters.flushes, 1);
        self.durable.store(durable, Ordering::Release);
    }
}
