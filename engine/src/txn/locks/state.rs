//! The locks of one tree, under its mutex: what is held. The waiters, and whom they wait
//! for, are in `line.rs`.

use super::key::{Cut, Key, Span};
use super::leaf::SpanId;
use super::owner::{Held, Owner};
use super::queue::{Grant, Line, LockMode};
use super::tree::{Gone, LockTree};
use crate::base::{IdMap, TreeId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A tree's memory is given back when it is idle and grew beyond this.
const HOLDS_KEPT: usize = 1024;
/// So many holds are released at a time, then others get the mutex.
const RELEASE_BATCH: usize = 128;

/// What is to be done once the mutex is released: waking, and freeing memory.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) wakes: Vec<Arc<Owner>>,
    gone: Gone,
    owner: Option<OwnerHere>,
    pub(super) tree: Option<Box<TreeLocks>>,
}

impl Effects {
    /// Call it with no mutex held.
    pub(super) fn finish(self) {
        for owner in &self.wakes {
            owner.parker.unpark();
        }
    }
}

/// An owner in one tree.
struct OwnerHere {
    owner: Arc<Owner>,
    /// Its spans by their low ends, shared and exclusive. Of one mode none touches another.
    spans: [BTreeMap<Cut, SpanId>; 2],
}

#[derive(Default)]
pub(super) struct TreeLocks {
    pub(super) holds: LockTree,
    owners: Vec<Option<OwnerHere>>,
    free_owners: Vec<u32>,
    slots: IdMap<u64, u32>,
    /// The waiters, by key.
    pub(super) lines: BTreeMap<Key, Line>,
    /// The keys at which spans are waited for, by ticket.
    pub(super) span_waits: BTreeMap<u64, Key>,
    /// How many wait for a row.
    pub(super) row_waits: usize,
}

impl TreeLocks {
    /// Rows and spans that are held or waited for: what writers look at without the mutex.
    pub(super) fn counts(&self) -> (u32, u32) {
        let spans = self.holds.spans();
        let rows = self.holds.len() - spans + self.row_waits;
        (rows as u32, (spans + self.span_waits.len()) as u32)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.len() == 0 && self.lines.is_empty() && self.slots.is_empty()
    }

    pub(super) fn keeps_much(&self) -> bool {
        self.holds.capacity() > HOLDS_KEPT
    }

    pub(super) fn slot(&self, owner: &Owner) -> Option<u32> {
        self.slots.get(&owner.number).copied()
    }

    fn here(&self, slot: u32) -> &OwnerHere {
        self.owners[slot as usize].as_ref().expect("an owner of this tree")
    }

    fn here_mut(&mut self, slot: u32) -> &mut OwnerHere {
        self.owners[slot as usize].as_mut().expect("an owner of this tree")
    }

    pub(super) fn owner_at(&self, slot: u32) -> &Arc<Owner> {
        &self.here(slot).owner
    }

    /// The owner's place in this tree; it is left when the transaction ends.
    fn enter(&mut self, owner: &Arc<Owner>, tree: TreeId) -> u32 {
        match self.slot(owner) {
            Some(slot) => slot,
            None => self.enter_anew(owner, &mut owner.held.lock(), tree),
        }
    }

    pub(super) fn enter_anew(&mut self, owner: &Arc<Owner>, held: &mut Held, tree: TreeId) -> u32 {
        held.trees.push(tree);
        let slot = self.free_owners.pop().unwrap_or_else(|| {
            self.owners.push(None);
            (self.owners.len() - 1) as u32
        });
        let here = OwnerHere { owner: Arc::clone(owner), spans: Default::default() };
        self.owners[slot as usize] = Some(here);
        self.slots.insert(owner.number, slot);
        slot
    }

    /// The owner's own hold of the row.
    pub(super) fn row_mode(&self, slot: Option<u32>, key: &[u8]) -> Option<LockMode> {
        self.holds.row(key, slot?).map(Grant::mode)
    }

    /// The strongest mode in which the owner's spans cover the key.
    pub(super) fn covering(&self, slot: Option<u32>, key: &[u8]) -> Option<LockMode> {
        let spans = &self.here(slot?).spans;
        let covers = |mode: &LockMode| {
            let below = spans[*mode as usize].range(..=Cut::below(key)).next_back();
            below.is_some_and(|(_, &id)| !self.holds.high(id).is_below(key))
        };
        [LockMode::Exclusive, LockMode::Shared].into_iter().find(covers)
    }

    /// Records a hold of the row: `record` says what it rests on.
    pub(super) fn hold_row(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        record: impl FnOnce(&mut Grant),
    ) {
        let slot = self.enter(owner, tree);
        if let Some(grant) = self.holds.row_mut(key, slot) {
            return record(grant);
        }
        let mut grant = Grant { epoch: owner.epoch(), ..Grant::default() };
        record(&mut grant);
        self.holds.insert_row(key, slot, grant);
        owner.locks.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the owner's hold of a row away, whatever it rests on.
    fn revoke_row(&mut self, slot: u32, key: &[u8], effects: &mut Effects) {
        self.holds.remove_row(key, slot, &mut effects.gone);
        self.here(slot).owner.locks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes away a part of what the owner's hold of the row rests on; the hold goes when
    /// nothing is left.
    pub(super) fn weaken_row(
        &mut self,
        owner: &Owner,
        tree: TreeId,
        key: &[u8],
        weaken: impl Fn(&mut Grant),
        effects: &mut Effects,
    ) {
        let Some(slot) = self.slot(owner) else { return };
        let Some(grant) = self.holds.row_mut(key, slot) else { return };
        weaken(grant);
        if grant.explicit.is_none() && !grant.implicit {
            self.revoke_row(slot, key, effects);
        }
        self.pump(tree, key, effects);
    }

    /// The owner has written the row: a lock that it took for that, since the last place that it
    /// can be rolled back to, goes. The id in the entry is the lock.
    pub(super) fn let_go(&mut self, owner: &Owner, key: &[u8], effects: &mut Effects) {
        let Some(slot) = self.slot(owner) else { return };
        let is_awaited = self.lines.contains_key(key);
        let Some(grant) = self.holds.row_mut(key, slot) else { return };
        if grant.epoch != owner.epoch() {
            return;
        }
        grant.explicit = None;
        // Those who wait here go on waiting for the writer.
        grant.implicit |= is_awaited;
        if !grant.implicit {
            self.revoke_row(slot, key, effects);
        }
    }

    /// Adds a span to the owner's, joining all of the same mode that it touches.
    pub(super) fn grow(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        span: &Span,
        mode: LockMode,
        effects: &mut Effects,
    ) {
        let slot = self.enter(owner, tree);
        let own = &self.here(slot).spans[mode as usize];
        let high_of = |id: SpanId| self.holds.high(id);
        let before = own.range(..=&span.low).next_back();
        let before = before.filter(|(_, &id)| *high_of(id) >= span.low);
        if before.is_some_and(|(_, &id)| *high_of(id) >= span.high) {
            return;
        }
        let before = before.map(|(low, _)| low.clone());
        let behind = (std::ops::Bound::Excluded(&span.low), std::ops::Bound::Included(&span.high));
        let joined: Vec<(Cut, SpanId)> =
            own.range::<Cut, _>(behind).map(|(low, &id)| (low.clone(), id)).collect();
        // Own spans do not touch each other, so the last one reaches furthest.
        let last = joined.last().map(|&(_, id)| high_of(id));
        let high = last.max(Some(&span.high)).expect("one is given").clone();
        for (low, _) in joined {
            let listed = self.here_mut(slot).spans[mode as usize].remove_entry(&low);
            effects.gone.cuts.extend(listed.map(|(low, _)| low));
            self.remove_span(slot, mode, low, effects);
        }
        match before {
            Some(low) => {
                effects.gone.cuts.extend([self.holds.set_high(&low, mode, slot, high), low]);
            }
            None => self.add_span(slot, mode, &span.low, high),
        }
    }

    fn add_span(&mut self, slot: u32, mode: LockMode, low: &Cut, high: Cut) {
        let id = self.holds.insert_span(low, high, mode, slot);
        let here = self.here_mut(slot);
        here.spans[mode as usize].insert(low.clone(), id);
        here.owner.locks.fetch_add(1, Ordering::Relaxed);
    }

    /// The span has left the owner's list before.
    fn remove_span(&mut self, slot: u32, mode: LockMode, low: Cut, effects: &mut Effects) {
        let high = self.holds.remove_span(&low, mode, slot, &mut effects.gone);
        self.here(slot).owner.locks.fetch_sub(1, Ordering::Relaxed);
        effects.gone.cuts.extend([low, high]);
    }

    /// Releases some of what the owner holds; false when nothing is left and the owner has left.
    pub(super) fn release_some(
        &mut self,
        owner: &Owner,
        tree: TreeId,
        effects: &mut Effects,
    ) -> bool {
        let Some(slot) = self.slot(owner) else { return false };
        // Those of a transaction that has let all its rows go are none.
        let held = owner.locks.load(Ordering::Relaxed) as usize;
        let mut keys = Vec::with_capacity(held.min(2 * RELEASE_BATCH));
        let gone = &mut effects.gone;
        while keys.len() < RELEASE_BATCH && self.holds.take_rows(slot, &mut keys, gone) {}
        owner.locks.fetch_sub(keys.len() as u64, Ordering::Relaxed);
        if !self.lines.is_empty() {
            keys.iter().for_each(|key| self.pump(tree, key, effects));
        }
        let is_full = keys.len() >= RELEASE_BATCH;
        std::mem::swap(&mut effects.gone.keys, &mut keys);
        effects.gone.keys.append(&mut keys);
        if is_full || self.release_spans(slot, tree, effects) {
            return true;
        }
        self.holds.forget_owner(slot, &mut effects.gone);
        effects.owner = self.owners[slot as usize].take();
        self.slots.remove(&owner.number);
        self.free_owners.push(slot);
        false
    }

    /// Releases some of the owner's spans; answers whether there may be more.
    fn release_spans(&mut self, slot: u32, tree: TreeId, effects: &mut Effects) -> bool {
        for _ in 0..RELEASE_BATCH {
            let spans = &mut self.here_mut(slot).spans;
            let first =
                |mode: LockMode| spans[mode as usize].pop_first().map(|(low, _)| (low, mode));
            let Some((low, mode)) =
                [LockMode::Shared, LockMode::Exclusive].into_iter().find_map(first)
            else {
                return false;
            };
            self.remove_span(slot, mode, low, effects);
            if let (false, Some([low, high])) =
                (self.lines.is_empty(), effects.gone.cuts.last_chunk())
            {
                let span = Span { low: low.clone(), high: high.clone() };
                self.pump_span(tree, &span, effects);
            }
        }
        true
    }
}
