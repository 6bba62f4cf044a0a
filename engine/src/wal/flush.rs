//! Group flush: one leader writes for all, the others sleep until their LSN is reached.
//!
//! A session that needs bytes durable becomes the leader if there is none, else it queues with
//! its LSN. A leader takes everything sealed and the open batch, so one that queued before the
//! leader sealed is served by it. When done it wakes those whose LSN is reached, and hands the
//! lead to the oldest of the rest: nobody is woken to find out that it must wait again.

use super::append::Wal;
use super::ring::{Leading, Piece, Sealed};
use super::stats::count;
use crate::base::{Error, Lsn, Result};
use crate::os::observe::{self, Wait};
use crate::os::planted::{self, Bug};
use crate::os::rank::{self, Rank};
use crate::os::sync::{self, Mutex, Ranked, Thread};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

/// How far a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Write sealed batches only, sync nothing.
    Ahead,
    /// Seal and write, sync nothing.
    Write,
    /// Seal, write and make durable.
    Sync,
}

const WAITING: u8 = 0;
const REACHED: u8 = 1;
const LEAD: u8 = 2;
const FAILED: u8 = 3;

struct Waiter {
    end: u64,
    mode: Mode,
    state: AtomicU8,
    error: Mutex<Option<Error>>,
    thread: Thread,
}

impl Waiter {
    fn wait(&self) -> u8 {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => {
                    rank::may_wait(Rank::LogFlushWait);
                    sync::park();
                }
                state => return state,
            }
        }
    }
}

/// Who leads and who waits.
#[derive(Default)]
pub(super) struct Election {
    leading: bool,
    /// In order of arrival.
    waiters: Vec<Arc<Waiter>>,
}

/// What only the leader touches.
#[derive(Default)]
pub(super) struct Io {
    /// Segments with plain writes that no sync has covered yet.
    unsynced: Vec<u64>,
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
        {
            let mut election = self.election.lock();
            if election.leading {
                return Ok(false);
            }
            election.leading = true;
        }
        self.lead(Mode::Ahead)?;
        Ok(true)
    }

    fn reached(&self, end: u64, mode: Mode) -> bool {
        match mode {
            Mode::Sync => self.durable().0 >= end,
            Mode::Ahead | Mode::Write => self.ring.written() >= end,
        }
    }

    fn reach(&self, end: Lsn, mode: Mode) -> Result<()> {
        if self.reached(end.0, mode) {
            return Ok(());
        }
        if end > self.end() {
            // Such a position can only come from damaged bytes.
            return Err(Error::corrupt("position behind the log's end", format!("lsn {end}")));
        }
        let began_ns = self.os.now_ns();
        let result = self.wait_or_lead(end.0, mode);
        count(&self.counters.flush_waits, 1);
        count(&self.counters.flush_wait_ns, self.os.now_ns().saturating_sub(began_ns));
        result
    }

    fn wait_or_lead(&self, end: u64, mode: Mode) -> Result<()> {
        let waiter = {
            let mut election = self.election.lock();
            if self.reached(end, mode) {
                return Ok(());
            }
            self.check_poison()?;
            if election.leading {
                let waiter = Arc::new(Waiter {
                    end,
                    mode,
                    state: AtomicU8::new(WAITING),
                    error: Mutex::ranked(Rank::LogWaiter, None),
                    thread: sync::current(),
                });
                election.waiters.push(Arc::clone(&waiter));
                Some(waiter)
            } else {
                election.leading = true;
                None
            }
        };
        match waiter.as_ref().map_or(LEAD, |w| observe::waiting(Wait::LogFlush, || w.wait())) {
            REACHED => Ok(()),
            FAILED => {
                let error = waiter.and_then(|w| w.error.lock().take());
                Err(error.unwrap_or(Error::Full { what: "log" }))
            }
            _ => {
                let result = self.lead(mode);
                if self.reached(end, mode) {
                    // There may have been no room for what others appended behind.
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

    /// Wakes who is served, or everybody on an error, and names the next leader.
    fn hand_over(&self, error: Option<Error>) {
        let mut next = None;
        let mut woken = Vec::new();
        {
            let mut election = self.election.lock();
            election.waiters.retain(|waiter| {
                let state = if self.reached(waiter.end, waiter.mode) {
                    REACHED
                } else if error.is_some() {
                    *waiter.error.lock() = error.clone();
                    FAILED
                } else if next.is_none() {
                    next = Some(Arc::clone(waiter));
                    return false;
                } else {
                    return true;
                };
                woken.push((Arc::clone(waiter), state));
                false
            });
            election.leading = next.is_some();
            assert!(election.leading || election.waiters.is_empty());
        }
        // The next leader first: the device is idle until it runs.
        for (waiter, state) in next.map(|w| (w, LEAD)).into_iter().chain(woken) {
            waiter.state.store(state, Ordering::Release);
            waiter.thread.unpark();
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
        if let (Some(first), Some(last)) = (batches.first(), batches.last()) {
            let (from, to) = (first.start, last.next());
            if self.write_batches(&leading, &mut io, mode, from, to)? {
                count(&self.counters.flushes_by_one_write, 1);
            }
            leading.written(to);
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
        match self.segments.ensure(to) {
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
        from: u64,
        to: u64,
    ) -> Result<bool> {
        let pieces = leading.pieces(from, to);
        assert_eq!(pieces.iter().map(|p| p.bytes().len() as u64).sum::<u64>(), to - from);
        count(&self.counters.writes, pieces.len() as u64);
        count(&self.counters.written_bytes, to - from);
        // A data-sync write covers its own bytes only: what was written ahead needs a sync, and
        // one sync then serves for all.
        if let (Mode::Sync, true, [piece]) = (mode, io.unsynced.is_empty(), &pieces[..]) {
            self.write_piece(piece, true)?;
            return Ok(true);
        }
        for piece in &pieces {
            let number = self.segments.number_of(piece.lsn);
            if !io.unsynced.contains(&number) {
                io.unsynced.push(number);
            }
            self.write_piece(piece, false)?;
        }
        Ok(false)
    }

    fn write_piece(&self, piece: &Piece<'_>, durable: bool) -> Result<()> {
        let Some((file, offset)) = self.segments.locate(piece.lsn) else {
            unreachable!("room was made before")
        };
        let result = match durable && !planted::is(Bug::LogWriteNotDurable) {
            true => file.write_durable(piece.bytes(), offset),
            false => file.write_at(piece.bytes(), offset),
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
