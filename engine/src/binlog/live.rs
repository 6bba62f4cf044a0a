//! The binlog while the server runs: what the hook calls, the background sync, the note.

use super::census::{Census, Decisions};
use super::complete::Known;
use super::events::{generation, header_gtids, Seen, Walker, MAGIC_BYTES};
use super::planted::{self, Bug};
use super::record::{
    bytes_head, encode_change, Authority, FileInfo, GroupEnd, State, StateChange, Synced,
    RECORD_BINLOG, RECORD_BINLOG_STATE,
};
use super::recover::BinlogRecovery;
use super::stats::{add, value, Counters, Fallback};
use crate::base::{Lsn, Result};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::{File, OpenMode, Os};
use crate::wal::Wal;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// A group of more bytes is not copied: the file is synced instead. To pack so many takes about 0.6 ms
/// with LZ4 and 0.9 ms with zstd; decision 0014 has what a flush takes.
pub(super) const GROUP_COPY_BYTES_MAX: u64 = if cfg!(test) { 32 << 10 } else { 256 << 10 };
/// The same where the log is not synced at a group's end: a sync of the file would be.
pub(super) const RELAXED_COPY_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 4 << 20 };
/// More bytes that no sync has covered are not left to the next interval: a restart reads them.
const UNSYNCED_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };
/// After so much log a sync is noted in it: a restart need not compare what came before.
const SYNCED_NOTE_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 8 << 20 };
/// Bytes of one log record.
const PIECE_BYTES: usize = 256 << 10;
/// Events that the record of a large group can carry.
const SEEN_MAX: usize = 16 << 10;
/// Files whose covered position is remembered, for commits that come late.
const COVERED_FILES: usize = 8;

/// One call of the server's write function for its binlog file, after the fact.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub pos: u64,
    pub bytes: &'a [u8],
    /// Not through the buffer: more of the same event follows.
    pub is_direct: bool,
    /// The buffer was full: maybe an overflow in the middle of a group.
    pub is_full: bool,
    pub has_failed: bool,
    /// The log has to be durable at a group's end, not only written.
    pub durable: bool,
}

/// What the server may do after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the middle of a group: nothing is durable, nothing may be shown.
    Inside,
    /// The group is durable; the file need not be synced.
    Durable,
    /// The server's own rule for syncing the file applies.
    Server,
}

/// A file with bytes that may not be synced.
struct Tail {
    info: FileInfo,
    handle: Arc<dyn File>,
    /// After what was written through the hook.
    written: u64,
    /// First record with bytes that no sync covers, and the same for the sync under way.
    dirty_from: Option<Lsn>,
    syncing_from: Option<Lsn>,
    /// Has unsynced bytes of a large group, which are not in the log.
    is_filling: bool,
}

/// The group being written.
#[derive(Default)]
struct Group {
    from: u64,
    bytes: u64,
    /// Recovery must see its events from the first on.
    first_lsn: Option<Lsn>,
    /// After its last record; the prepare records of its transactions lie below.
    end_lsn: Lsn,
    is_large: bool,
    /// The first after whose end the log is not flushed any more: it is, once more, so that
    /// recovery knows.
    is_first_relaxed: bool,
    fault: Option<Fallback>,
}

/// The file that the server writes.
struct Current {
    id: u64,
    path: String,
    generation: u64,
    handle: Arc<dyn File>,
    /// Where the next write must begin.
    expected: u64,
    walker: Walker,
    group: Group,
    /// A write failed: nothing is certain any more before the next file.
    is_lost: bool,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Its `files` are made from `tails` when it is encoded.
    pub(super) state: State,
    pub(super) wanted: bool,
    current: Option<Current>,
    tails: Vec<Tail>,
    groups_at_idle_check: u64,
    /// The server wrote events that did not pass here.
    has_unread: bool,
    /// Of the last [`StateChange::Synced`].
    noted_synced: Lsn,
}

/// See the room's invariants.
pub struct Binlog {
    pub(super) os: Arc<dyn Os>,
    pub(super) wal: Arc<Wal>,
    pub(super) inner: Mutex<Inner>,
    /// What the last crash left to be completed; it stays until that is done.
    pub(super) recovered: Mutex<Option<BinlogRecovery>>,
    /// What the log says of the file that the server would scan.
    pub(super) known: Mutex<Option<Known>>,
    pub(super) decisions: Mutex<Decisions>,
    /// The name of the binlog's files without their number, from the start to the stop.
    pub(super) base: Mutex<Option<PathBuf>>,
    syncing: Mutex<()>,
    /// After the last prepare record that nobody waited for.
    unflushed_prepare: AtomicU64,
    covered: Mutex<VecDeque<(String, u64)>>,
    is_on: AtomicBool,
    last_sync_ns: AtomicU64,
    /// Copied since the last sync.
    unsynced_bytes: AtomicU64,
    pub(super) counters: Counters,
}

impl Binlog {
    pub fn new(os: Arc<dyn Os>, wal: Arc<Wal>, recovered: BinlogRecovery) -> Arc<Binlog> {
        let last_sync_ns = AtomicU64::new(os.now_ns());
        // XIDs of an earlier life of the server mean nothing in this one.
        let state = State { census: Census::default(), ..recovered.state.clone() };
        let inner = Inner { state, ..Inner::default() };
        Arc::new(Binlog {
            os,
            wal,
            inner: Mutex::ranked(Rank::BinlogState, inner),
            recovered: Mutex::ranked(
                Rank::BinlogRecovered,
                (!recovered.is_settled()).then_some(recovered),
            ),
            known: Mutex::ranked(Rank::BinlogKnown, None),
            decisions: Mutex::ranked(Rank::BinlogDecisions, Decisions::default()),
            base: Mutex::ranked(Rank::BinlogBase, None),
            syncing: Mutex::ranked(Rank::BinlogSyncing, ()),
            unflushed_prepare: AtomicU64::new(0),
            covered: Mutex::ranked(Rank::BinlogCovered, VecDeque::new()),
            is_on: AtomicBool::new(false),
            last_sync_ns,
            unsynced_bytes: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// The server writes to this file from `pos` on, an event boundary, and nothing of it is in
    /// its buffer. Everything before `pos` is made durable here.
    pub fn opened(&self, path: &str, pos: u64) -> Result<()> {
        let handle = self.os.open(Path::new(path), OpenMode::default())?;
        handle.sync()?;
        let generation = generation(&*handle)?;
        let gtids = header_gtids(&*handle, pos)?;
        let mut inner = self.inner.lock();
        if gtids.is_none() || inner.has_unread {
            inner.state.census.lose(self.wal.end());
        }
        inner.has_unread = false;
        inner.state.census.begin_file(0, pos, gtids);
        let mut walker = Walker::new(pos);
        walker.is_encrypted = super::events::is_encrypted(&*handle, MAGIC_BYTES, pos)?;
        inner.current = Some(Current {
            id: 0,
            path: path.to_owned(),
            generation,
            handle,
            expected: pos,
            walker,
            group: Group::default(),
            is_lost: false,
        });
        if inner.state.authority == Authority::Ending {
            drop(inner);
            self.settle()?;
            inner = self.inner.lock();
        }
        if inner.wanted {
            self.begin(&mut inner);
        }
        drop(inner);
        self.set_covered(path, pos);
        // Now the index may name the file: the log knows it.
        self.flush()
    }

    /// The server writes no more through the hook; what it wrote is synced.
    pub fn detach(&self) -> Result<()> {
        self.settle()?;
        let mut inner = self.inner.lock();
        inner.current = None;
        inner.has_unread = true;
        Ok(())
    }

    /// The switch. Takes effect with the next group.
    pub fn set_wanted(&self, wanted: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.wanted = wanted;
        let is_on = inner.state.authority == Authority::On;
        if !wanted {
            drop(inner);
            return self.settle();
        }
        if !is_on {
            let Some(current) = &inner.current else { return Ok(()) };
            if current.is_lost {
                return Ok(());
            }
            current.handle.sync()?;
            self.begin(&mut inner);
            drop(inner);
            return self.flush();
        }
        Ok(())
    }

    /// Are bytes copied now?
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The current file's bytes are the log's from here on; they are synced so far.
    fn begin(&self, inner: &mut Inner) {
        let id = inner.state.next_id;
        let Some(current) = &mut inner.current else { return };
        current.id = id;
        current.group = Group::default();
        let (path, end) = (current.path.clone(), current.expected);
        let info = FileInfo { id, path, generation: current.generation, end };
        let handle = Arc::clone(&current.handle);
        let first = inner.state.authority != Authority::On;
        inner.state.census.file = id;
        let census = inner.state.census.clone();
        let change = match first {
            true => StateChange::Begin(info.clone(), census),
            false => StateChange::File(info.clone(), census),
        };
        let tail = Tail {
            info,
            handle,
            written: end,
            dirty_from: None,
            syncing_from: None,
            is_filling: false,
        };
        inner.tails.retain(|t| t.dirty_from.is_some() || t.syncing_from.is_some());
        inner.tails.push(tail);
        self.change(inner, change);
    }

    /// Appends a state record. The note that is made next contains it.
    pub(super) fn change(&self, inner: &mut Inner, change: StateChange) {
        inner.state.sequence += 1;
        let payload = encode_change(inner.state.sequence, &change);
        let lsn = self.wal.append(RECORD_BINLOG_STATE, &[&payload]).lsn;
        let state = &mut inner.state;
        match change {
            StateChange::Begin(info, _) | StateChange::File(info, _) => {
                if state.authority != Authority::On {
                    state.begin_lsn = lsn;
                }
                state.authority = Authority::On;
                state.next_id = state.next_id.max(info.id + 1);
            }
            StateChange::End { settled } => {
                state.authority = if settled { Authority::Off } else { Authority::Ending };
            }
            StateChange::True { .. } | StateChange::Synced(_) => {}
            StateChange::Identity(identity) => state.identity = identity,
        }
        self.is_on.store(state.authority == Authority::On, Ordering::Release);
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.wal.flush_to(self.wal.end())
    }

    /// Ends authority: every file is synced first.
    fn settle(&self) -> Result<()> {
        self.sync_files()?;
        let mut inner = self.inner.lock();
        if inner.state.authority == Authority::Off {
            return Ok(());
        }
        self.change(&mut inner, StateChange::End { settled: true });
        inner.tails.clear();
        drop(inner);
        self.flush()
    }

    /// A prepare record ends at `end` and nobody waits for it: the hook will.
    pub fn note_unflushed_prepare(&self, end: Lsn) {
        self.unflushed_prepare.fetch_max(end.0, Ordering::AcqRel);
    }

    /// Before the server writes: an XID must not reach a file that is not cut after a crash
    /// before its prepare record is durable.
    pub fn before_write(&self) -> Result<()> {
        if self.is_on() {
            return Ok(());
        }
        self.wal.flush_to(Lsn(self.unflushed_prepare.load(Ordering::Acquire)))
    }

    /// The server wrote to its file. At a group's end the log is flushed here.
    pub fn wrote(&self, write: Write<'_>) -> Result<Verdict> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(current) = &mut inner.current else { return Ok(Verdict::Server) };
        let fault = current.check(&write);
        current.expected = write.pos + write.bytes.len() as u64;
        if current.group.bytes == 0 {
            current.group.from = write.pos;
        }
        current.group.bytes += write.bytes.len() as u64;
        let is_boundary = current.walker.is_boundary(current.expected);
        let overflow = write.is_full && !(is_boundary && current.walker.may_end_group());
        let is_end = !write.is_direct && !overflow;
        let stray = is_end && !is_boundary;
        let end = is_end.then_some(match write.is_full && !current.walker.ends_group() {
            true => GroupEnd::Maybe,
            false => GroupEnd::Certain,
        });
        if let Some(reason) = fault.or(stray.then_some(Fallback::Events)) {
            self.fault(inner, reason);
        }
        let doubt = inner.current.as_ref().filter(|c| overflow && c.group.fault.is_some());
        if let Some(handle) = doubt.map(|c| Arc::clone(&c.handle)) {
            drop(guard);
            return self.end_in_doubt(&*handle);
        }
        if inner.state.authority == Authority::On {
            self.copy(inner, &write, end);
        }
        let Some(end) = end else { return Ok(Verdict::Inside) };
        drop(guard);
        self.end_group(write.durable, end)
    }

    /// After a fault it is not known whether a full buffer is the end of a group: all is made durable,
    /// and the group goes on.
    fn end_in_doubt(&self, handle: &dyn File) -> Result<Verdict> {
        self.flush()?;
        handle.sync()?;
        Ok(Verdict::Server)
    }

    /// Ends authority because of `reason`; the group's end syncs the file.
    fn fault(&self, inner: &mut Inner, reason: Fallback) {
        if let Some(current) = &mut inner.current {
            current.group.fault.get_or_insert(reason);
            current.is_lost |= reason == Fallback::Write;
        }
        inner.state.census.lose(self.wal.end());
        if inner.state.authority == Authority::On {
            self.change(inner, StateChange::End { settled: false });
        }
    }

    /// Appends the bytes to the log, unless the group is too large or the log has no room.
    fn copy(&self, inner: &mut Inner, write: &Write<'_>, end: Option<GroupEnd>) {
        let Some(current) = &mut inner.current else { return };
        let id = current.id;
        let Some(tail) = inner.tails.iter_mut().find(|t| t.info.id == id) else { return };
        tail.written = current.expected;
        let group = &mut current.group;
        // The header of a long event tells its end before the rest comes.
        let bytes = group.bytes.max(current.walker.event_end().saturating_sub(group.from));
        let bytes_max = if write.durable { GROUP_COPY_BYTES_MAX } else { RELAXED_COPY_BYTES_MAX };
        group.is_large |= bytes > bytes_max || self.wal.admit().is_err();
        add(&self.unsynced_bytes, write.bytes.len() as u64);
        if group.is_large {
            // Its record in the log will replace what was copied. The background syncs it as it
            // grows: little is left for its end, under the server's lock.
            group.first_lsn = None;
            tail.is_filling = true;
            return;
        }
        add(&self.counters.copied_bytes, write.bytes.len() as u64);
        let mut pos = write.pos;
        for piece in write.bytes.chunks(PIECE_BYTES) {
            let next = pos + piece.len() as u64;
            let is_last = next == current.expected;
            let head = bytes_head(id, pos, end.filter(|_| is_last), !write.durable);
            let appended = self.wal.append(RECORD_BINLOG, &[&head, piece]);
            tail.dirty_from.get_or_insert(appended.lsn);
            group.first_lsn.get_or_insert(appended.lsn);
            group.end_lsn = appended.end;
            pos = next;
        }
        if end.is_some() {
            tail.info.end = current.expected;
            group.is_first_relaxed = !write.durable && !inner.state.is_relaxed;
            inner.state.is_relaxed = !write.durable;
        }
    }

    /// Makes the group durable, by whichever way is open for it.
    fn end_group(&self, durable: bool, group_end: GroupEnd) -> Result<Verdict> {
        let began_ns = self.os.now_ns();
        let mut inner = self.inner.lock();
        let is_on = inner.state.authority == Authority::On;
        let Some(current) = &mut inner.current else { return Ok(Verdict::Server) };
        let (path, end) = (current.path.clone(), current.expected);
        let group = std::mem::take(&mut current.group);
        let is_stop = current.walker.is_stop();
        let (id, is_lost) = (current.id, current.is_lost);
        let handle = Arc::clone(&current.handle);
        let transactions = current.walker.take_transactions();
        let is_certain = group_end == GroupEnd::Certain && group.fault.is_none();
        let seen = is_certain.then(|| current.walker.take_seen());
        let is_true = is_on && group.is_large && group.fault.is_none();
        if !is_true {
            self.count_events(&mut inner, end, seen.as_deref());
        }
        drop(inner);
        let verdict = match (is_on, group.fault) {
            (_, Some(reason)) => self.end_faulty(reason, is_lost)?,
            (true, None) if group.is_large => {
                self.end_large(id, (group.from, end), seen, &*handle)?
            }
            (true, None) => {
                match durable || group.is_first_relaxed {
                    true => self.wal.flush_to(group.end_lsn)?,
                    false => self.wal.write_to(group.end_lsn)?,
                }
                Verdict::Durable
            }
            (false, None) => {
                add(&self.counters.plain_groups, 1);
                // After a clean stop the server does not look for prepared transactions.
                if is_stop {
                    self.flush()?;
                }
                Verdict::Server
            }
        };
        self.set_covered(&path, end);
        self.counters.waits.add_ns(self.os.now_ns().saturating_sub(began_ns));
        self.count_group(transactions);
        Ok(verdict)
    }

    /// The census takes in a group whose end is certain.
    fn count_events(&self, inner: &mut Inner, end: u64, seen: Option<&[Seen]>) {
        if let Some(seen) = seen {
            inner.state.census.end_group(end, seen);
            inner.state.census.trim(self.wal.end());
        }
    }

    fn count_group(&self, transactions: u64) {
        add(&self.counters.groups, 1);
        add(&self.counters.transactions, transactions);
        self.counters.group_transactions_max.fetch_max(transactions, Ordering::Relaxed);
    }

    /// First the prepare records, then the file, then the log may go on with it.
    fn end_faulty(&self, reason: Fallback, is_lost: bool) -> Result<Verdict> {
        add(&self.counters.fallbacks[reason as usize], 1);
        self.flush()?;
        let handle = self.inner.lock().current.as_ref().map(|c| Arc::clone(&c.handle));
        if let Some(handle) = handle {
            handle.sync()?;
        }
        self.settle()?;
        let mut inner = self.inner.lock();
        if let Some(current) = &mut inner.current {
            let encrypted = current.walker.is_encrypted;
            current.walker = Walker::new(current.expected);
            current.walker.is_encrypted = encrypted;
        }
        if inner.wanted && !is_lost {
            self.begin(&mut inner);
        }
        drop(inner);
        // The events that follow in the file may lack their prepare records only if they can be cut.
        self.flush()?;
        Ok(Verdict::Server)
    }

    /// The file holds what the log does not: it is synced, then the log says so.
    fn end_large(
        &self,
        id: u64,
        (from, end): (u64, u64),
        seen: Option<Vec<Seen>>,
        handle: &dyn File,
    ) -> Result<Verdict> {
        add(&self.counters.large_groups, 1);
        handle.sync()?;
        let mut inner = self.inner.lock();
        self.count_events(&mut inner, end, seen.as_deref());
        let seen = seen.filter(|list| list.len() <= SEEN_MAX);
        self.change(&mut inner, StateChange::True { id, from, end, seen });
        if let Some(tail) = inner.tails.iter_mut().find(|t| t.info.id == id) {
            tail.info.end = end;
            (tail.dirty_from, tail.is_filling) = (None, false);
        }
        drop(inner);
        self.flush()?;
        Ok(Verdict::Durable)
    }

    fn set_covered(&self, path: &str, pos: u64) {
        let mut covered = self.covered.lock();
        match covered.back_mut() {
            Some(last) if last.0 == path => last.1 = pos,
            _ => {
                covered.push_back((path.to_owned(), pos));
                if covered.len() > COVERED_FILES {
                    covered.pop_front();
                }
            }
        }
    }

    /// Did the hook see the events up to `pos` of this file? Then the prepare records of their
    /// transactions are durable, and the events as the switch promises.
    pub fn covers(&self, path: &str, pos: u64) -> bool {
        let covered = self.covered.lock();
        let found = covered.iter().rev().find(|(name, _)| name == path);
        let covers = found.is_some_and(|(_, end)| pos <= *end);
        if !covers {
            add(&self.counters.uncovered_commits, 1);
        }
        covers
    }

    /// The server writes to a file that nobody hooked, or may soon: counted, and what was hooked
    /// so far is synced and left.
    pub fn lost_hook(&self, reason: Fallback) -> Result<()> {
        add(&self.counters.fallbacks[reason as usize], 1);
        self.detach()
    }

    /// Is a sync due before the interval has passed?
    pub fn wants_sync(&self) -> bool {
        value(&self.unsynced_bytes) >= UNSYNCED_BYTES_MAX
    }

    /// Background work: syncs the files, then their bytes' pin goes. Before, an idle log is
    /// flushed, so that commit records become durable soon.
    pub fn sync_step(&self) -> Result<()> {
        let groups = value(&self.counters.groups);
        let was = std::mem::replace(&mut self.inner.lock().groups_at_idle_check, groups);
        if was == groups && self.wal.durable() < self.wal.end() {
            self.flush()?;
        }
        self.sync_files()
    }

    fn sync_files(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let mut work = Vec::new();
        self.unsynced_bytes.store(0, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        let synced = self.synced_after_this(&inner);
        for tail in &mut inner.tails {
            let dirty_from = tail.dirty_from.take();
            if let Some(from) = dirty_from {
                // One that failed stays: its bytes are in the log only.
                tail.syncing_from.get_or_insert(from);
            }
            if std::mem::take(&mut tail.is_filling) || dirty_from.is_some() {
                work.push((tail.info.id, Arc::clone(&tail.handle)));
            }
        }
        drop(inner);
        for (id, handle) in work {
            if !planted::is(Bug::NotedUnsynced) {
                handle.sync()?;
            }
            add(&self.counters.file_syncs, 1);
            let mut inner = self.inner.lock();
            if let Some(tail) = inner.tails.iter_mut().find(|t| t.info.id == id) {
                tail.syncing_from = None;
            }
        }
        let mut inner = self.inner.lock();
        let now = inner.current.as_ref().map(|c| c.id);
        let is_needed = |t: &Tail| {
            Some(t.info.id) == now
                || t.dirty_from.is_some()
                || t.syncing_from.is_some()
                || t.is_filling
        };
        inner.tails.retain(is_needed);
        if let Some(synced) = synced.filter(|_| inner.state.authority == Authority::On) {
            inner.noted_synced = synced.before;
            self.change(&mut inner, StateChange::Synced(synced));
        }
        self.last_sync_ns.store(self.os.now_ns(), Ordering::Relaxed);
        Ok(())
    }

    /// The record of a sync of all files that begins now, if enough has come since the last one: a log
    /// that is hardly written shall not grow by it.
    fn synced_after_this(&self, inner: &Inner) -> Option<Synced> {
        let current = inner.current.as_ref()?;
        let tail = inner.tails.iter().find(|t| t.info.id == current.id)?;
        let before = self.wal.end();
        let is_news = before.0 >= inner.noted_synced.0 + SYNCED_NOTE_BYTES;
        is_news.then_some(Synced { before, id: current.id, pos: tail.written })
    }

    /// For a checkpoint: the state, and where the scan of the log must start at the latest.
    pub fn note_and_pin(&self) -> (Vec<u8>, Option<Lsn>) {
        let recovered = self.recovered.lock();
        let inner = self.inner.lock();
        let mut state = inner.state.clone();
        if let Some(recovered) = &*recovered {
            state.census = recovered.state.census.clone();
            state.files = recovered.files();
            return (state.encode(), recovered.pin());
        }
        state.files = inner.tails.iter().map(|t| t.info.clone()).collect();
        let pins = inner.tails.iter().flat_map(|t| [t.dirty_from, t.syncing_from]);
        let group = inner.current.as_ref().and_then(|c| c.group.first_lsn);
        (state.encode(), pins.flatten().chain(group).min())
    }

    /// Name and value, as `Engine::status`.
    pub fn status(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counters;
        let (groups, transactions) = (value(&c.groups), value(&c.transactions));
        let is_dirty = self.inner.lock().tails.iter().any(|t| t.dirty_from.is_some());
        let since_ns = self.os.now_ns().saturating_sub(self.last_sync_ns.load(Ordering::Relaxed));
        let mut out = vec![
            ("binlog_in_log", u64::from(self.is_on())),
            ("binlog_groups", groups),
            ("binlog_transactions", transactions),
            ("binlog_group_size_avg", (transactions + groups / 2).checked_div(groups).unwrap_or(0)),
            ("binlog_group_size_max", value(&c.group_transactions_max)),
            ("binlog_hook_wait_us_p50", c.waits.percentile_us(50)),
            ("binlog_hook_wait_us_p99", c.waits.percentile_us(99)),
            ("binlog_copied_bytes", value(&c.copied_bytes)),
            ("binlog_large_groups", value(&c.large_groups)),
            ("binlog_server_synced_groups", value(&c.plain_groups)),
            ("binlog_file_syncs", value(&c.file_syncs)),
            ("binlog_sync_lag_us", if is_dirty { since_ns / 1000 } else { 0 }),
            ("binlog_uncovered_commits", value(&c.uncovered_commits)),
            ("binlog_completed_bytes", value(&c.completed_bytes)),
            ("binlog_cut_bytes", value(&c.cut_bytes)),
        ];
        out.extend(
            Fallback::ALL.map(|(reason, name)| (name, value(&c.fallbacks[reason as usize]))),
        );
        out
    }
}

impl Current {
    fn check(&mut self, write: &Write<'_>) -> Option<Fallback> {
        if write.has_failed {
            return Some(Fallback::Write);
        }
        if write.pos != self.expected {
            return Some(Fallback::Gap);
        }
        (!self.walker.pass(write.pos, write.bytes)).then_some(Fallback::Events)
    }
}
