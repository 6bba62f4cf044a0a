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
use super::Place;
use crate::base::{Error, Lsn, Result};
use crate::os::observe::{self, Wait};
use crate::os::planted::{self, Bug};
use crate::os::AlignedBuf;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Batches that are packed before they are written.
const PACKED_MAX: usize = 16;

/// What one write has: bytes that lie in one segment.
struct Stored<'a> {
    place: u64,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    /// Of batches as they are in memory.
    Plain(Piece<'a>),
    /// Of packed batches.
    Packed(Arc<AlignedBuf>, Range<usize>),
}

impl Stored<'_> {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Plain(piece) => piece.bytes(),
            Bytes::Packed(buffer, range) => &buffer[range.clone()],
        }
    }
}

/// A finished batch, where it will stand, and its packed form if it has one.
struct Placed<'a> {
    batch: &'a Sealed,
    header: BatchHeader,
    packed: Option<AlignedBuf>,
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
        if let Some(last) = batches.last() {
            let (next_place, is_durable) =
                self.write_batches(&mut leading, &mut io, mode, &batches)?;
            count(&self.counters.flushes_by_one_write, u64::from(is_durable));
            self.segments.positions.set_next_place(next_place);
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
        let Some(to) = batches.last().map(|b| self.place_at_most(b.next())) else {
            return Ok(None);
        };
        if to <= self.segments.end() {
            return Ok(None);
        }
        count(&self.counters.segments_late, 1);
        match self.segments.ensure(to, self.capacity_bytes()) {
            Ok(()) => Ok(None),
            Err(e @ Error::Full { .. }) => {
                let room = self.segments.end();
                batches.retain(|b| self.place_at_most(b.next()) <= room);
                Ok(Some(e))
            }
            Err(e) => Err(e),
        }
    }

    /// Finishes and writes batches; answers the place after them, and whether they are durable by that.
    fn write_batches(
        &self,
        leading: &mut Leading<'_>,
        io: &mut Io,
        mode: Mode,
        batches: &[Sealed],
    ) -> Result<(u64, bool)> {
        let mut place = self.segments.positions.next_place();
        // A packed batch has a buffer until it is written: not too many at a time.
        let mut groups = batches.chunks(PACKED_MAX).peekable();
        while let Some(group) = groups.next() {
            let mut placed = Vec::with_capacity(group.len());
            for batch in group {
                placed.push(self.placed(leading, io, batch, place)?);
                place = placed.last().map_or(place, |placed| placed.header.next_place());
            }
            let writes = self.stored(leading, placed);
            // A data-sync write covers its own bytes only: what was written ahead needs a sync, and
            // one sync then serves for all.
            if let (Mode::Sync, true, None, [write]) =
                (mode, io.unsynced.is_empty(), groups.peek(), &writes[..])
            {
                self.write(write, true)?;
                return Ok((place, true));
            }
            for write in &writes {
                let number = self.segments.number_of(write.place);
                if !io.unsynced.contains(&number) {
                    io.unsynced.push(number);
                }
                self.write(write, false)?;
            }
        }
        Ok((place, false))
    }

    /// Finishes a batch for `place`, and packs it where that pays.
    fn placed<'a>(
        &self,
        leading: &mut Leading<'_>,
        io: &mut Io,
        batch: &'a Sealed,
        place: u64,
    ) -> Result<Placed<'a>> {
        leading.finish(batch, place, self.incarnation, self.durable().0);
        let (header, packed) = io.packer.pack(leading, batch, place)?;
        count(&self.counters.record_bytes, batch.body_bytes());
        count(&self.counters.record_stored_bytes, batch.stored_bytes(&header));
        self.segments.positions.note(&match planted::is(Bug::PackedTakenForPlain) {
            true => BatchHeader { packed: None, ..header },
            false => header,
        });
        Ok(Placed { batch, header, packed })
    }

    /// What is to be written for batches that follow each other.
    fn stored<'a>(&self, leading: &'a Leading<'_>, placed: Vec<Placed<'_>>) -> Vec<Stored<'a>> {
        let mut out = Vec::new();
        let mut rest = &placed[..];
        while let Some(first) = rest.first() {
            let is_packed = first.packed.is_some();
            let run = rest.iter().take_while(|p| p.packed.is_some() == is_packed).count();
            let (these, after) = rest.split_at(run);
            match is_packed {
                true => self.cut(first.header.place, joined(these), &mut out),
                false => self.cut_plain(leading, these, &mut out),
            }
            rest = after;
        }
        out
    }

    fn cut_plain<'a>(
        &self,
        leading: &'a Leading<'_>,
        placed: &[Placed<'_>],
        out: &mut Vec<Stored<'a>>,
    ) {
        let (Some(first), Some(last)) = (placed.first(), placed.last()) else { return };
        let (mut lsn, mut place) = (first.batch.start, first.header.place);
        let end = last.batch.next();
        while lsn < end {
            let to = end.min(lsn + self.room_in_segment(place));
            for piece in leading.pieces(lsn, to) {
                let piece_place = place + (piece.lsn - lsn);
                out.push(Stored { place: piece_place, bytes: Bytes::Plain(piece) });
            }
            place += to - lsn;
            lsn = to;
        }
    }

    /// Bytes that are not written as they are in memory, a piece for each segment that they are in.
    fn cut(&self, place: u64, bytes: AlignedBuf, out: &mut Vec<Stored<'_>>) {
        let bytes = Arc::new(bytes);
        let mut from = 0;
        while from < bytes.len() {
            let place = place + from as u64;
            let to = bytes.len().min(from + self.room_in_segment(place) as usize);
            out.push(Stored { place, bytes: Bytes::Packed(Arc::clone(&bytes), from..to) });
            from = to;
        }
    }

    fn room_in_segment(&self, place: u64) -> u64 {
        self.segments.segment_bytes - place % self.segments.segment_bytes
    }

    fn write(&self, what: &Stored<'_>, durable: bool) -> Result<()> {
        let Some((file, offset)) = self.segments.locate(what.place) else {
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
        *self.durable_end.lock() = (Lsn(durable), Place(self.segments.positions.next_place()));
        self.durable.store(durable, Ordering::Release);
    }
}

/// One buffer of packed batches.
fn joined(placed: &[Placed<'_>]) -> AlignedBuf {
    let buffers = || placed.iter().filter_map(|placed| placed.packed.as_ref());
    let mut out = AlignedBuf::new(buffers().map(|buffer| buffer.len()).sum());
    let mut at = 0;
    for buffer in buffers() {
        out[at..at + buffer.len()].copy_from_slice(buffer);
        at += buffer.len();
    }
    out
}
