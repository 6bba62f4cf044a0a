//! The chain of valid batches that recovery follows. A thread reads, verifies and unpacks batches while the
//! caller looks at the records of those before, which takes about as long. The caller sees what one thread
//! would show it: an error comes after all records before it.

use super::format::{BatchHeader, Control};
use super::read::{visit_records, Visit};
use super::scanner::{Scanner, Spot};
use super::segments::Segments;
use crate::base::{Error, Result};
use crate::cipher::Oldest;
use crate::os::rank::Rank;
use crate::os::sync::{self, condition, Condvar, Mutex, Ranked};
use crate::os::SIMULATED;
use std::collections::VecDeque;
use std::sync::Arc;

/// Unpacked batches are handed over when they have so many bytes.
const TOGETHER_BYTES: usize = if SIMULATED || cfg!(test) { 8 << 10 } else { 1 << 20 };
/// Handovers that wait for the caller at most.
const WAITING_MAX: usize = 4;

/// Whether a batch has the identity that this log was created with.
pub(super) fn is_of_this_log(control: &Control, header: &BatchHeader) -> bool {
    header.incarnation >> 32 == control.incarnation >> 32
}

/// Whether a batch may stand at its position, given the newest incarnation and the incarnation
/// of the batch before it.
fn is_in_order(control: &Control, header: &BatchHeader, before: u64) -> bool {
    if !is_of_this_log(control, header) {
        return false;
    }
    match header.lsn >= control.start {
        true => header.incarnation == control.incarnation,
        false => {
            header.incarnation < control.incarnation
                && header.incarnation >= before
                && header.next() <= control.start
        }
    }
}

/// Visits the records from `from` on. Answers where the chain ends.
pub(super) fn follow(
    segments: &Arc<Segments>,
    control: &Control,
    from: u64,
    visit: Visit<'_>,
) -> Result<ChainEnd> {
    let first = match Scanner::new(segments, segments.end()).find_batch(from)? {
        Spot::Batch(note) => note,
        Spot::End(place) => return Ok(ChainEnd { lsn: from, place, oldest: Oldest::None }),
    };
    let mut chain = Chain {
        segments: Arc::clone(segments),
        control: *control,
        lsn: first.lsn,
        place: first.place,
        incarnation: 0,
        oldest: Oldest::None,
    };
    let mut batches = Batches::default();
    let mut end = chain.unpack(&mut batches).visit(from, visit)?;
    if end.is_none() {
        end = follow_beside(&chain, from, visit)?;
    }
    while end.is_none() {
        end = chain.unpack(&mut batches).visit(from, visit)?;
    }
    match end {
        Some(end) if end.lsn >= from => Ok(end),
        // The batch around the start is not in order.
        _ => Err(Error::corrupt("no valid batch", format!("log position {from}"))),
    }
}

/// The rest of the chain, with a thread that goes ahead. None: there was no thread.
fn follow_beside(chain: &Chain, from: u64, visit: Visit<'_>) -> Result<Option<ChainEnd>> {
    let queue = Arc::new(Queue::default());
    let mut sender = Sender { queue: Arc::clone(&queue), chain: chain.clone() };
    let Ok(thread) = sync::spawn("sluice-unpack", move || sender.run()) else { return Ok(None) };
    let end = loop {
        let mut batches = queue.take();
        match batches.visit(from, visit) {
            Ok(None) => queue.give_back(batches),
            end => break end,
        }
    };
    queue.stop();
    thread.join();
    end
}

/// Where the chain ends.
pub(super) struct ChainEnd {
    pub lsn: u64,
    pub place: u64,
    /// The oldest key in it.
    pub oldest: Oldest,
}

/// Some batches, one after the other, as they were in memory.
#[derive(Default)]
struct Batches {
    bytes: Vec<u8>,
    /// Each with the end of its bytes.
    batches: Vec<(BatchHeader, usize)>,
    /// None: there is more.
    end: Option<Result<ChainEnd>>,
}

impl Batches {
    /// Visits its records. Answers the end if it is the last one.
    fn visit(&mut self, from: u64, visit: Visit<'_>) -> Result<Option<ChainEnd>> {
        let mut begin = 0;
        for (header, end) in &self.batches {
            visit_records(header, &self.bytes[begin..*end], from, u64::MAX, visit)?;
            begin = *end;
        }
        self.end.take().transpose()
    }
}

#[derive(Clone)]
struct Chain {
    segments: Arc<Segments>,
    control: Control,
    /// Where the next batch begins, if there is one, and where it stands.
    lsn: u64,
    place: u64,
    /// Of the batch before.
    incarnation: u64,
    oldest: Oldest,
}

impl Chain {
    /// The next batches in place of those in `unpacked`, until they are enough or the chain ends.
    fn unpack<'b>(&mut self, unpacked: &'b mut Batches) -> &'b mut Batches {
        let segments = Arc::clone(&self.segments);
        self.unpack_with(&mut Scanner::new(&segments, segments.end()), unpacked);
        unpacked
    }

    fn unpack_with(&mut self, scanner: &mut Scanner<'_>, unpacked: &mut Batches) {
        unpacked.bytes.clear();
        unpacked.batches.clear();
        while unpacked.end.is_none() && unpacked.bytes.len() < TOGETHER_BYTES {
            match self.add_batch(scanner, unpacked) {
                Ok(true) => {}
                Ok(false) => unpacked.end = Some(Ok(self.end())),
                Err(error) => unpacked.end = Some(Err(error)),
            }
        }
    }

    /// False: the chain ends here.
    fn add_batch(&mut self, scanner: &mut Scanner<'_>, unpacked: &mut Batches) -> Result<bool> {
        let Some(header) = scanner.batch(self.place)? else { return Ok(false) };
        if header.lsn != self.lsn || !is_in_order(&self.control, &header, self.incarnation) {
            return Ok(false);
        }
        self.segments.positions.note(&header);
        scanner.add_bytes(&header, &mut unpacked.bytes)?;
        unpacked.batches.push((header, unpacked.bytes.len()));
        let under = self.segments.cipher.as_ref().and_then(|cipher| cipher.writes_under());
        self.oldest = self.oldest.min(Oldest::of(scanner.key(&header)?, under));
        (self.lsn, self.place) = (header.next(), header.next_place());
        self.incarnation = header.incarnation;
        Ok(true)
    }

    fn end(&self) -> ChainEnd {
        ChainEnd { lsn: self.lsn, place: self.place, oldest: self.oldest }
    }
}

/// Batches on their way to the caller.
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    waiting: VecDeque<Batches>,
    /// The memory of some that the caller has seen.
    seen: Vec<Batches>,
    /// Nobody takes more.
    stopped: bool,
}

impl Default for Queue {
    fn default() -> Queue {
        let state = Mutex::ranked(Rank::LogUnpacked, Waiting::default());
        Queue { state, changed: condition(Rank::LogUnpackedWait) }
    }
}

impl Queue {
    /// Waits for room. False: nobody wants it.
    fn put(&self, batches: Batches) -> bool {
        let mut state = self.state.lock();
        while state.waiting.len() >= WAITING_MAX && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.waiting.push_back(batches);
        self.changed.notify_all();
        !state.stopped
    }

    fn take(&self) -> Batches {
        let mut state = self.state.lock();
        loop {
            if let Some(batches) = state.waiting.pop_front() {
                self.changed.notify_all();
                return batches;
            }
            self.changed.wait(&mut state);
        }
    }

    /// The caller has seen these: their memory goes round.
    fn give_back(&self, batches: Batches) {
        self.state.lock().seen.push(batches);
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// The thread that goes ahead. However it ends, last batches come.
struct Sender {
    queue: Arc<Queue>,
    chain: Chain,
}

impl Sender {
    fn run(&mut self) {
        let segments = Arc::clone(&self.chain.segments);
        let mut scanner = Scanner::new(&segments, segments.end());
        loop {
            let mut batches = self.queue.state.lock().seen.pop().unwrap_or_default();
            self.chain.unpack_with(&mut scanner, &mut batches);
            let is_last = batches.end.is_some();
            if !self.queue.put(batches) || is_last {
                return;
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // After a panic it is the only one that the caller would wait for.
        let why = Error::Refused("reading the log ahead ended without a word".into());
        self.queue.state.lock().stopped = true;
        self.queue.put(Batches { end: Some(Err(why)), ..Batches::default() });
    }
}
