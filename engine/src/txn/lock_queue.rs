//! The queue of one row: who holds it and who waits, first come first served. Pure data.

use super::interrupt::Owner;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    pub(super) fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// One owner's hold on the row.
pub(super) struct Grant {
    pub(super) owner: Arc<Owner>,
    /// Asked for by the owner.
    pub(super) explicit: Option<Mode>,
    /// The owner's id in the entry, made visible here by the first who waits for it.
    pub(super) implicit: bool,
}

impl Grant {
    pub(super) fn mode(&self) -> Mode {
        match self.explicit {
            Some(mode) if !self.implicit => mode,
            _ => Mode::Exclusive,
        }
    }
}

pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) owner: Arc<Owner>,
    pub(super) mode: Mode,
    pub(super) privileged: bool,
}

impl Waiter {
    /// The order of the queue: privileged waiters first, then by arrival.
    fn order(&self) -> (bool, u64) {
        (!self.privileged, self.ticket)
    }
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) granted: Vec<Grant>,
    pub(super) waiting: VecDeque<Waiter>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn grant_of(&self, owner: &Owner) -> Option<&Grant> {
        self.granted.iter().find(|g| *g.owner == *owner)
    }

    /// Others' holds that are in the way of `mode`.
    pub(super) fn holders_against<'a>(
        &'a self,
        owner: &'a Owner,
        mode: Mode,
    ) -> impl Iterator<Item = &'a Arc<Owner>> {
        let in_the_way = move |g: &&Grant| *g.owner != *owner && g.mode().conflicts(mode);
        self.granted.iter().filter(in_the_way).map(|g| &g.owner)
    }

    /// The first `count` waiters that an unprivileged request of `mode` may not overtake, last
    /// first.
    pub(super) fn waiters_against(
        &self,
        count: usize,
        mode: Mode,
    ) -> impl Iterator<Item = &Waiter> {
        self.waiting.range(..count).rev().filter(move |w| w.mode.conflicts(mode))
    }

    /// Records the hold; true when it is a new row for the owner.
    pub(super) fn grant(&mut self, owner: &Arc<Owner>, mode: Mode) -> bool {
        if let Some(grant) = self.granted.iter_mut().find(|g| g.owner == *owner) {
            grant.explicit = grant.explicit.max(Some(mode));
            return false;
        }
        let owner = Arc::clone(owner);
        self.granted.push(Grant { owner, explicit: Some(mode), implicit: false });
        true
    }

    /// Records the hold that the owner has by its id in the entry; true when it is a new row.
    pub(super) fn grant_implicit(&mut self, owner: &Arc<Owner>) -> bool {
        if let Some(grant) = self.granted.iter_mut().find(|g| g.owner == *owner) {
            grant.implicit = true;
            return false;
        }
        self.granted.push(Grant { owner: Arc::clone(owner), explicit: None, implicit: true });
        true
    }

    pub(super) fn revoke(&mut self, owner: &Owner) -> bool {
        let before = self.granted.len();
        self.granted.retain(|g| *g.owner != *owner);
        self.granted.len() < before
    }

    pub(super) fn position(&self, privileged: bool, ticket: u64) -> usize {
        self.waiting.partition_point(|w| w.order() < (!privileged, ticket))
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let at = self.position(waiter.privileged, waiter.ticket);
        self.waiting.insert(at, waiter);
    }
}
