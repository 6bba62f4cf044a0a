//! What is held and what is waited for. Pure data.

use super::key::Span;
use super::owner::Owner;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    Shared,
    Exclusive,
}

impl LockMode {
    pub(super) fn conflicts(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// What an owner's hold of a row rests on.
#[derive(Clone, Copy, Default)]
pub(super) struct Grant {
    /// Asked for by the owner.
    pub(super) explicit: Option<LockMode>,
    /// The owner's id in the entry, made visible here by the first who waits for it.
    pub(super) implicit: bool,
    /// When the owner asked first ([`Owner::epoch`]).
    pub(super) epoch: u32,
}

impl Grant {
    pub(super) fn mode(&self) -> LockMode {
        match self.explicit {
            Some(mode) if !self.implicit => mode,
            _ => LockMode::Exclusive,
        }
    }
}

/// What a request asks for at its key.
#[derive(Clone)]
pub(super) enum Want {
    Row(LockMode),
    /// A span, and with `row` the row of the key, which lies in it (a next-key lock). Without it
    /// the key is that of an insert in the way.
    Span {
        span: Span,
        mode: LockMode,
        row: bool,
    },
    /// To insert the key: the end of all spans of others over it.
    Insert,
}

impl Want {
    /// The mode in which the row is asked for.
    pub(super) fn row_mode(&self) -> Option<LockMode> {
        match self {
            Want::Row(mode) | Want::Span { mode, row: true, .. } => Some(*mode),
            Want::Span { row: false, .. } | Want::Insert => None,
        }
    }

    pub(super) fn span(&self) -> Option<&Span> {
        match self {
            Want::Span { span, .. } => Some(span),
            Want::Row(_) | Want::Insert => None,
        }
    }
}

/// A place in line.
pub(super) struct Waiter {
    /// Tickets are numbered through all trees; the lower goes first.
    pub(super) ticket: u64,
    pub(super) owner: Arc<Owner>,
    pub(super) want: Want,
    /// It holds the row or a span over it, and waits only for other holders.
    pub(super) privileged: bool,
    /// An insert that may go on: it keeps its place until it is done, so that nobody who came
    /// later locks the gap before its entry is there.
    pub(super) is_granted: bool,
}

impl Waiter {
    /// The order of a line: privileged waiters first, then by arrival.
    fn order(&self) -> (bool, u64) {
        (!self.privileged, self.ticket)
    }

    pub(super) fn is_insert(&self) -> bool {
        matches!(self.want, Want::Insert)
    }
}

/// The waiters at one key, in order.
#[derive(Default)]
pub(super) struct Line {
    pub(super) waiters: Vec<Waiter>,
}

impl Line {
    pub(super) fn push(&mut self, waiter: Waiter) {
        let at = self.waiters.partition_point(|w| w.order() < waiter.order());
        self.waiters.insert(at, waiter);
    }

    pub(super) fn position(&self, ticket: u64) -> Option<usize> {
        self.waiters.iter().position(|w| w.ticket == ticket)
    }
}
