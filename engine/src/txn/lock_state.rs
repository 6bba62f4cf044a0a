//! The locks of one tree, under its mutex: what is held. Who waits, and for whom, is in
//! `lock_line.rs`.

use super::interrupt::{Held, Owner};
use super::lock_key::{Cut, Key, Span};
use super::lock_queue::{Grant, Line, Mode};
use super::lock_tree::{LockTree, Node, NodeId, NONE};
use crate::base::TreeId;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Keyed without entropy: the same run takes the same course.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// A tree's memory is given back when it is idle and grew beyond this.
const NODES_KEPT: usize = 1024;
/// So many holds are released at a time, then others get the mutex.
const RELEASE_BATCH: usize = 128;

/// What is to be done once the mutex is released: waking, and freeing memory.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) wakes: Vec<Arc<Owner>>,
    nodes: Vec<Node>,
    cut: Option<Cut>,
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
    /// The first of its rows.
    rows: NodeId,
    /// Its spans by their low ends, shared and exclusive. Of one mode none touches another.
    spans: [BTreeMap<Cut, NodeId>; 2],
}

#[derive(Default)]
pub(super) struct TreeLocks {
    pub(super) holds: LockTree,
    spans: usize,
    owners: Vec<Option<OwnerHere>>,
    free_owners: Vec<u32>,
    slots: Map<u64, u32>,
    /// Who waits, by key.
    pub(super) lines: BTreeMap<Key, Line>,
    /// The keys at which spans are waited for, by ticket.
    pub(super) span_waits: BTreeMap<u64, Key>,
    /// How many wait for a row.
    pub(super) row_waits: usize,
}

impl TreeLocks {
    /// Rows and spans that are held or waited for: what writers look at without the mutex.
    pub(super) fn counts(&self) -> (u32, u32) {
        let rows = self.holds.len() - self.spans + self.row_waits;
        (rows as u32, (self.spans + self.span_waits.len()) as u32)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.len() == 0 && self.lines.is_empty() && self.slots.is_empty()
    }

    pub(super) fn keeps_much(&self) -> bool {
        self.holds.capacity() > NODES_KEPT
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
        let here = OwnerHere { owner: Arc::clone(owner), rows: NONE, spans: Default::default() };
        self.owners[slot as usize] = Some(here);
        self.slots.insert(owner.number, slot);
        slot
    }

    /// The owner's own hold of the row.
    pub(super) fn row_mode(&self, slot: Option<u32>, key: &[u8]) -> Option<Mode> {
        let id = self.holds.row(key)?;
        self.holds.node(id).grant_of(slot?).map(Grant::mode)
    }

    /// The strongest mode in which the owner's spans cover the key.
    pub(super) fn covering(&self, slot: Option<u32>, key: &[u8]) -> Option<Mode> {
        let spans = &self.here(slot?).spans;
        let covers = |mode: &Mode| {
            let below = spans[*mode as usize].range(..=Cut::below(key)).next_back();
            below.is_some_and(|(_, &id)| {
                self.holds.node(id).high().is_some_and(|high| !high.is_below(key))
            })
        };
        [Mode::Exclusive, Mode::Shared].into_iter().find(covers)
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
        let found = self.holds.row(key);
        let own = found.and_then(|id| self.holds.node_mut(id).grant_of_mut(slot));
        if let Some(grant) = own {
            return record(grant);
        }
        let next = self.here(slot).rows;
        let mut grant = Grant { owner: slot, epoch: owner.epoch(), next, ..Grant::default() };
        record(&mut grant);
        let id = match found {
            Some(id) => {
                self.holds.node_mut(id).push(grant);
                id
            }
            None => self.holds.insert(Cut::below(key), None, grant),
        };
        self.grant_mut(next, slot, |grant| grant.previous = id);
        self.here_mut(slot).rows = id;
        owner.locks.fetch_add(1, Ordering::Relaxed);
    }

    fn grant_mut(&mut self, id: NodeId, slot: u32, f: impl FnOnce(&mut Grant)) {
        if id != NONE {
            f(self.holds.node_mut(id).grant_of_mut(slot).expect("in the owner's list"));
        }
    }

    /// Takes the owner's hold of a row away, whatever it rests on.
    fn revoke_row(&mut self, slot: u32, id: NodeId, effects: &mut Effects) {
        let grant = self.holds.node(id).grant_of(slot).expect("a held row");
        let (previous, next) = (grant.previous, grant.next);
        self.grant_mut(previous, slot, |grant| grant.next = next);
        self.grant_mut(next, slot, |grant| grant.previous = previous);
        if previous == NONE {
            self.here_mut(slot).rows = next;
        }
        self.here(slot).owner.locks.fetch_sub(1, Ordering::Relaxed);
        if !self.holds.node_mut(id).revoke(slot) {
            effects.nodes.push(self.holds.remove(id));
        }
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
        let (Some(slot), Some(id)) = (self.slot(owner), self.holds.row(key)) else { return };
        let Some(grant) = self.holds.node_mut(id).grant_of_mut(slot) else { return };
        weaken(grant);
        if grant.explicit.is_none() && !grant.implicit {
            self.revoke_row(slot, id, effects);
        }
        self.pump(tree, key, effects);
    }

    /// The owner has written the row: a lock that it took for that, since the last place that it
    /// can be rolled back to, goes. The id in the entry is the lock.
    pub(super) fn let_go(&mut self, owner: &Owner, key: &[u8], effects: &mut Effects) {
        let (Some(slot), Some(id)) = (self.slot(owner), self.holds.row(key)) else { return };
        let is_awaited = self.lines.contains_key(key);
        let Some(grant) = self.holds.node_mut(id).grant_of_mut(slot) else { return };
        if grant.epoch != owner.epoch() {
            return;
        }
        grant.explicit = None;
        // Those who wait here go on waiting for the writer.
        grant.implicit |= is_awaited;
        if !grant.implicit {
            self.revoke_row(slot, id, effects);
        }
    }

    /// Adds a span to the owner's, joining all of the same mode that it touches.
    pub(super) fn grow(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        span: &Span,
        mode: Mode,
        effects: &mut Effects,
    ) {
        let slot = self.enter(owner, tree);
        let own = &self.here(slot).spans[mode as usize];
        let high_of = |id: NodeId| self.holds.node(id).high().expect("a span");
        let before = own.range(..=&span.low).next_back().map(|(_, &id)| id);
        let before = before.filter(|&id| *high_of(id) >= span.low);
        if before.is_some_and(|id| *high_of(id) >= span.high) {
            return;
        }
        let behind = (std::ops::Bound::Excluded(&span.low), std::ops::Bound::Included(&span.high));
        let joined: Vec<NodeId> = own.range::<Cut, _>(behind).map(|(_, &id)| id).collect();
        // Own spans do not touch each other, so the last one reaches furthest.
        let last = joined.last().map(|&id| high_of(id));
        let high = last.max(Some(&span.high)).expect("one is given").clone();
        for id in joined {
            self.remove_span(slot, mode, id, effects);
        }
        match before {
            Some(id) => effects.cut = self.holds.set_high(id, high),
            None => self.add_span(slot, mode, &span.low, high),
        }
    }

    fn add_span(&mut self, slot: u32, mode: Mode, low: &Cut, high: Cut) {
        let grant = Grant { owner: slot, explicit: Some(mode), ..Grant::default() };
        let id = self.holds.insert(low.clone(), Some(high), grant);
        self.spans += 1;
        let here = self.here_mut(slot);
        here.spans[mode as usize].insert(low.clone(), id);
        here.owner.locks.fetch_add(1, Ordering::Relaxed);
    }

    fn remove_span(&mut self, slot: u32, mode: Mode, id: NodeId, effects: &mut Effects) {
        let node = self.holds.remove(id);
        self.spans -= 1;
        let here = self.here_mut(slot);
        here.spans[mode as usize].remove(node.low());
        here.owner.locks.fetch_sub(1, Ordering::Relaxed);
        effects.nodes.push(node);
    }

    /// Releases some of what the owner holds; false when nothing is left and the owner has left.
    /// `spans`: those that are still to be released, empty at the first call.
    pub(super) fn release_some(
        &mut self,
        owner: &Owner,
        tree: TreeId,
        spans: &mut Vec<NodeId>,
        effects: &mut Effects,
    ) -> bool {
        let Some(slot) = self.slot(owner) else { return false };
        for _ in 0..RELEASE_BATCH {
            let id = self.here(slot).rows;
            if id == NONE {
                break;
            }
            let key = (!self.lines.is_empty()).then(|| self.holds.node(id).key());
            self.revoke_row(slot, id, effects);
            if let Some(key) = key {
                self.pump(tree, &key, effects);
            }
        }
        let here = self.here_mut(slot);
        if here.rows != NONE {
            return true;
        }
        if spans.is_empty() {
            spans.extend(here.spans.iter().flat_map(BTreeMap::values));
        }
        self.release_spans(tree, spans, effects);
        if !spans.is_empty() {
            return true;
        }
        effects.owner = self.owners[slot as usize].take();
        self.slots.remove(&owner.number);
        self.free_owners.push(slot);
        false
    }

    fn release_spans(&mut self, tree: TreeId, ids: &mut Vec<NodeId>, effects: &mut Effects) {
        for id in ids.drain(ids.len().saturating_sub(RELEASE_BATCH)..) {
            let node = self.holds.remove(id);
            self.spans -= 1;
            if let (false, Some(high)) = (self.lines.is_empty(), node.high()) {
                let span = Span { low: node.low().clone(), high: high.clone() };
                self.pump_span(tree, &span, effects);
            }
            effects.nodes.push(node);
        }
    }
}
