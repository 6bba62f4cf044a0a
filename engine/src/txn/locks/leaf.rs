//! A leaf of the tree of holds, and the order of the entries in it. Pure data.

use super::key::{compare, Cut, Key, Side};
use super::queue::{Grant, LockMode};
use super::slab::{Id, NONE};
use std::cmp::Ordering;

pub(super) const LEAF_ENTRIES: usize = 32;

/// A span, by the place of its high end.
pub(super) type SpanId = Id;
/// Spans that end last: of all, and of the exclusive ones.
pub(super) type Reach = [SpanId; 2];

/// At one low end rows come before spans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Row,
    Span(LockMode),
}

/// The place of an entry in the order of the tree. No two entries have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At<'a> {
    pub(super) key: &'a [u8],
    pub(super) side: Side,
    pub(super) kind: Kind,
    pub(super) owner: u32,
}

impl PartialOrd for At<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let rest = |at: &Self| (at.side, at.kind, at.owner);
        compare(self.key, other.key).then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl<'a> At<'a> {
    pub(super) fn row(key: &'a [u8], owner: u32) -> At<'a> {
        At { key, side: Side::Below, kind: Kind::Row, owner }
    }

    pub(super) fn span(low: &'a Cut, mode: LockMode, owner: u32) -> At<'a> {
        At { key: low.key(), side: low.side(), kind: Kind::Span(mode), owner }
    }

    /// After all whose low end lies below the key.
    pub(super) fn after(key: &'a [u8]) -> At<'a> {
        let kind = Kind::Span(LockMode::Exclusive);
        At { key, side: Side::Below, kind, owner: u32::MAX }
    }

    pub(super) fn to_position(self) -> Position {
        let At { key, side, kind, owner } = self;
        Position { key: key.into(), side, kind, owner }
    }
}

#[derive(Clone)]
pub(super) struct Position {
    key: Key,
    side: Side,
    kind: Kind,
    owner: u32,
}

impl Position {
    pub(super) fn at(&self) -> At<'_> {
        let Position { key, side, kind, owner } = self;
        At { key, side: *side, kind: *kind, owner: *owner }
    }
}

pub(super) enum Hold {
    Row(Grant),
    Span {
        side: Side,
        mode: LockMode,
        end: SpanId,
        /// Of the spans of the leaf up to here, the one that ends last.
        reach: SpanId,
    },
}

/// One owner's hold of a row or a span.
pub(super) struct LockEntry {
    pub(super) key: Key,
    pub(super) owner: u32,
    pub(super) hold: Hold,
}

impl Default for LockEntry {
    fn default() -> LockEntry {
        LockEntry { key: Key::default(), owner: u32::MAX, hold: Hold::Row(Grant::default()) }
    }
}

impl LockEntry {
    pub(super) fn row(key: &[u8], owner: u32, grant: Grant) -> LockEntry {
        LockEntry { key: key.into(), owner, hold: Hold::Row(grant) }
    }

    pub(super) fn span(low: &Cut, mode: LockMode, owner: u32, end: SpanId) -> LockEntry {
        let hold = Hold::Span { side: low.side(), mode, end, reach: NONE };
        LockEntry { key: low.key().clone(), owner, hold }
    }

    pub(super) fn at(&self) -> At<'_> {
        let (side, kind) = match &self.hold {
            Hold::Row(_) => (Side::Below, Kind::Row),
            Hold::Span { side, mode, .. } => (*side, Kind::Span(*mode)),
        };
        At { key: &self.key, side, kind, owner: self.owner }
    }

    pub(super) fn grant(&self) -> Option<&Grant> {
        match &self.hold {
            Hold::Row(grant) => Some(grant),
            Hold::Span { .. } => None,
        }
    }

    pub(super) fn end(&self) -> Option<(SpanId, LockMode)> {
        match self.hold {
            Hold::Row(_) => None,
            Hold::Span { end, mode, .. } => Some((end, mode)),
        }
    }
}

/// An owner with rows in a leaf.
pub(super) struct Member {
    pub(super) owner: u32,
    pub(super) rows: u32,
    /// Where the leaf stands in the owner's list.
    pub(super) place: u32,
}

#[derive(Default)]
pub(super) struct Leaf {
    len: usize,
    slots: [LockEntry; LEAF_ENTRIES],
    pub(super) members: Vec<Member>,
}

impl Leaf {
    pub(super) fn entries(&self) -> &[LockEntry] {
        &self.slots[..self.len]
    }

    pub(super) fn entries_mut(&mut self) -> &mut [LockEntry] {
        &mut self.slots[..self.len]
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == LEAF_ENTRIES
    }

    pub(super) fn find(&self, at: &At<'_>) -> Result<usize, usize> {
        self.entries().binary_search_by(|entry| entry.at().cmp(at))
    }

    pub(super) fn insert(&mut self, index: usize, entry: LockEntry) {
        self.slots[self.len] = entry;
        self.len += 1;
        self.slots[index..self.len].rotate_right(1);
    }

    pub(super) fn remove(&mut self, index: usize) -> LockEntry {
        self.slots[index..self.len].rotate_left(1);
        self.len -= 1;
        std::mem::take(&mut self.slots[self.len])
    }

    /// Moves the entries from `from` on to the end of `other`, which has room for them.
    pub(super) fn hand_over(&mut self, from: usize, other: &mut Leaf) {
        let end = other.len + self.len - from;
        for (own, slot) in
            self.slots[from..self.len].iter_mut().zip(&mut other.slots[other.len..end])
        {
            *slot = std::mem::take(own);
        }
        (self.len, other.len) = (from, end);
    }

    /// Takes the rows of the owner out.
    pub(super) fn take_rows(&mut self, owner: u32, keys: &mut Vec<Key>) {
        let mut kept = 0;
        for at in 0..self.len {
            let entry = &mut self.slots[at];
            if entry.owner == owner && entry.grant().is_some() {
                keys.push(std::mem::take(entry).key);
            } else {
                self.slots.swap(kept, at);
                kept += 1;
            }
        }
        self.len = kept;
    }

    pub(super) fn member(&mut self, owner: u32) -> Option<(usize, &mut Member)> {
        self.members.iter_mut().enumerate().find(|(_, member)| member.owner == owner)
    }
}
