//! Pages under old keys are written anew: a segment with such a record is read, and its live records move to
//! another one, as GC moves them. All that is written is under the newest key, so segments say by
//! themselves when nothing is left; a [`KeyClaim`](super::superblock::KeyClaim) says it to the next life.

use super::counters::add;
use super::engine::Store;
use super::entry::MapEntry;
use super::pages::StreamKind;
use super::record;
use super::segments::Life;
use super::victim::Victim;
use crate::base::{Error, Lsn, Result};
use crate::cipher::{self, Oldest, Scope};
use crate::os::planted::{self, Bug};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Where the keys of pages stand.
#[derive(Clone, Copy, Debug)]
pub struct PageKeys {
    /// The newest version of the key; 0: records are written plain.
    pub newest: u32,
    /// Of the keys that a start needs for pages, map and note.
    pub oldest: Oldest,
    /// Live bytes of segments with a record that is not under the newest version; and of those
    /// among them that nobody has looked at.
    pub old_bytes: u64,
    pub unknown_bytes: u64,
    pub rewritten_pages: u64,
    pub rewritten_bytes: u64,
}

impl Store {
    /// Asks for the newest version of the key, unless a checkpoint is under way, whose note and
    /// proof are to be under one version. Answers the version; 0: records are written plain.
    pub fn refresh_key(&self) -> u32 {
        let Some(cipher) = &self.cipher else { return 0 };
        if let Some(_between_checkpoints) = self.checkpointer.try_lock() {
            cipher.refresh();
        }
        // Nobody moves records meanwhile.
        let mut collector = self.collector.lock();
        let newest = self.newest_version();
        if collector.key_seen.0 != newest {
            collector.key_seen = (newest, self.packing.now());
        }
        if self.settled_key.load(Relaxed) != newest && self.packing.has_passed(collector.key_seen.1)
        {
            self.settled_key.store(newest, Release);
        }
        newest
    }

    pub(super) fn newest_version(&self) -> u32 {
        let newest = self.cipher.as_ref().and_then(|cipher| cipher.newest());
        newest.map_or(0, |name| name.version)
    }

    pub(super) fn scope(&self) -> Scope {
        self.state.read().choices.scope()
    }

    pub(super) fn under(&self) -> Option<u32> {
        self.cipher.as_ref().and_then(|cipher| cipher.writes_under())
    }

    /// Looks at segments with records that are `age` or more versions behind, plain though they should
    /// not be, or encrypted so; and moves those that are. Answers about how many bytes it read and moved;
    /// 0: nothing is left to do.
    pub fn rotate_step(&self, age: u32, budget_bytes: u64) -> Result<u64> {
        let least = Oldest::bearable(self.newest_version(), age);
        if age == 0 || self.state.read().oldest_needed() >= least {
            return Ok(0);
        }
        let mut collector = self.collector.lock();
        self.check_poison()?;
        self.close_older(least);
        let mut done_bytes = 0;
        while done_bytes < budget_bytes {
            if collector.rotating.as_ref().is_none_or(|victim| victim.live.is_empty()) {
                collector.rotating = None;
                let Some(life) = self.state.read().segments.with_older(least) else { break };
                let mut victim = self.load_victim(life)?;
                done_bytes += self.segment_bytes;
                let oldest = self.oldest_of(&victim);
                if oldest >= least {
                    self.note_looked_at(&victim, oldest);
                    victim.live.clear();
                }
                collector.rotating = Some(victim);
            }
            let Some(victim) = &mut collector.rotating else { break };
            let before = victim.live.len();
            let budget = budget_bytes.saturating_sub(done_bytes).max(1);
            let moved_bytes = match self.move_some(victim, budget, true) {
                Ok(moved_bytes) => moved_bytes,
                Err(error) => {
                    self.leave_locked(victim.life, &error);
                    collector.rotating = None;
                    return Err(error);
                }
            };
            if moved_bytes > 0 {
                add(&self.counters.rewritten_pages, (before - victim.live.len()) as u64);
            }
            add(&self.counters.rewritten_bytes, moved_bytes);
            done_bytes += moved_bytes;
        }
        if done_bytes == 0 {
            // What is left was put off, and without a checkpoint nobody would try it again.
            self.state.write().segments.take_up();
        }
        self.refresh_debt();
        Ok(done_bytes)
    }

    /// A record does not open: it is tried again when nothing else is left, or after a checkpoint.
    fn leave_locked(&self, life: Life, error: &Error) {
        if matches!(error, Error::Refused(_)) {
            self.state.write().segments.put_off(life);
        }
    }

    /// The oldest key that the victim's records need. Records of dropped trees need none: nobody reads them.
    fn oldest_of(&self, victim: &Victim) -> Oldest {
        let state = self.state.read();
        let of = |entry: MapEntry| {
            state.choices.oldest_of(entry.tree(), record::key_of(victim.record(entry)))
        };
        let read =
            victim.live.iter().filter(|(_, entry)| !state.dropped.contains_key(&entry.tree()));
        read.map(|&(_, entry)| of(entry)).min().unwrap_or_default()
    }

    /// If fewer live bytes were found than there are now, some records are hidden: nobody knows their keys.
    fn note_looked_at(&self, victim: &Victim, oldest: Oldest) {
        let found_bytes: u64 = victim.live.iter().map(|(_, e)| e.record_bytes() as u64).sum();
        let mut state = self.state.write();
        if state.segments.live_bytes(victim.life).is_some_and(|there| there <= found_bytes) {
            state.segments.looked_at(victim.life, oldest);
        }
    }

    /// Closes the open segments that have such records, so that they can be moved.
    fn close_older(&self, least: Oldest) {
        for kind in [StreamKind::Fresh, StreamKind::Survivors] {
            let mut stream = self.pages.stream(kind);
            let mut state = self.state.write();
            let Some(segment) = stream.segment() else { continue };
            if state.segments.oldest_in(segment) < least {
                self.pages.close_segment(kind, &mut stream);
                state.segments.close(segment);
            }
        }
    }

    /// Pages are left that are not as `age` wants them.
    pub fn has_older(&self, age: u32) -> bool {
        let least = Oldest::bearable(self.newest_version(), age);
        age > 0 && self.state.read().segments.oldest() < least
    }

    /// All pages are as `age` wants them, and no checkpoint has said so yet.
    pub fn has_keys_to_claim(&self, age: u32) -> bool {
        let least = Oldest::bearable(self.newest_version(), age);
        let state = self.state.read();
        age > 0 && state.durable_oldest < least && state.segments.oldest() >= least
    }

    /// Nothing in the log is under an older version than this from the position on: the next checkpoint says
    /// so.
    pub fn claim_log(&self, claim: Option<(u32, Lsn)>) {
        self.state.write().log_claim = claim;
    }

    /// What the last checkpoint of the life before said of the log.
    pub fn log_claim(&self) -> Option<(Oldest, Lsn)> {
        let cp = self.checkpointer.lock();
        cp.current().claim.oldest_of_log(self.under())
    }

    /// For a store that was opened without a look at keys, because its pages need none. Refused if log from
    /// this position on may need them, and they are not there.
    pub fn check_keys_of_log(&self, from: Lsn) -> Result<()> {
        let sb = self.checkpointer.lock().current();
        match (sb.proof, sb.claim.log) {
            (Some(proof), Some((_, plain_from))) if from < plain_from => {
                cipher::check_proof_with(self.cipher.as_deref(), &proof)
            }
            _ => Ok(()),
        }
    }

    pub fn page_keys(&self) -> PageKeys {
        let newest = self.newest_version();
        // Before the segments: a thread that packed under an older key has published by then.
        let settled = self.settled_key.load(Acquire);
        let state = self.state.read();
        let (old_bytes, unknown_bytes) = state.segments.older_bytes(Oldest::Version(newest));
        let oldest = match planted::is(Bug::KeyGivenUpEarly) {
            true => state.segments.oldest().min(Oldest::Version(newest)),
            false => state.oldest_needed().min(Oldest::Version(settled)),
        };
        PageKeys {
            newest,
            oldest,
            old_bytes,
            unknown_bytes,
            rewritten_pages: self.counters.rewritten_pages.load(Relaxed),
            rewritten_bytes: self.counters.rewritten_bytes.load(Relaxed),
        }
    }
}
