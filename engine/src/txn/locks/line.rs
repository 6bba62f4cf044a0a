//! The waiters at the keys of one tree, and whom they wait for: first come, first served.
//!
//! ```text
//! request        in its way (of others)
//! row            holds of the row, spans over it and requests for it further ahead, by mode
//! span           inserts into it that were there first; with a row, also what is in a row's way
//! insert         spans over the key, held or further ahead
//! ```
//! A request whose owner holds a part of it already (a privileged one) waits for holders only:
//! others wait for that owner, and after them it would wait for itself. For the same reason an
//! insert passes a span whose owner waits for it.

use super::key::{Key, Span};
use super::manager::Granted;
use super::owner::{Outcome, Owner, Place};
use super::queue::{Line, LockMode, Waiter, Want};
use super::state::{Effects, TreeLocks};
use crate::base::TreeId;
use crate::os::planted::{self, Bug};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A request as it is compared with others.
struct Ask<'a> {
    owner: &'a Owner,
    slot: Option<u32>,
    key: &'a [u8],
    want: &'a Want,
    ticket: u64,
    privileged: bool,
    /// Enough of those in the way to reach all of them.
    nearest: bool,
}

type Visit<'v, 'a> = &'v mut dyn FnMut(&'a Arc<Owner>) -> ControlFlow<()>;

impl TreeLocks {
    fn ask<'a>(&self, owner: &'a Owner, key: &'a [u8], want: &'a Want) -> Ask<'a> {
        let slot = self.slot(owner);
        let held = || self.row_mode(slot, key).is_some() || self.covering(slot, key).is_some();
        let privileged = want.row_mode().is_some() && slot.is_some() && held();
        // Last in line, unless it has a place.
        let own = |line: &Line| {
            let own = line.waiters.iter().find(|w| w.is_granted && *w.owner == *owner);
            own.map(|w| w.ticket)
        };
        let ticket = self.lines.get(key).and_then(own).unwrap_or(u64::MAX);
        Ask { owner, slot, key, want, ticket, privileged, nearest: false }
    }

    fn ask_of<'a>(&self, key: &'a [u8], waiter: &'a Waiter) -> Ask<'a> {
        let Waiter { ticket, owner, want, privileged, .. } = waiter;
        let (ticket, privileged, slot) = (*ticket, *privileged, self.slot(owner));
        Ask { owner, slot, key, want, ticket, privileged, nearest: false }
    }

    fn visit_blockers<'a>(&'a self, ask: &Ask<'_>, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        if let Some(mode) = ask.want.row_mode() {
            self.visit_at_row(ask, mode, visit)?;
        }
        match ask.want {
            Want::Row(_) => ControlFlow::Continue(()),
            Want::Span { span, .. } => self.visit_inserts(ask, span, visit),
            Want::Insert => {
                self.visit_spans(ask, false, visit)?;
                self.visit_span_waits(ask, visit)
            }
        }
    }

    fn visit_at_row<'a>(
        &'a self,
        ask: &Ask<'_>,
        mode: LockMode,
        visit: Visit<'_, 'a>,
    ) -> ControlFlow<()> {
        let line = self.lines.get(ask.key).filter(|_| !ask.privileged);
        for waiter in line.into_iter().flat_map(|line| line.waiters.iter().rev()) {
            let is_ahead = waiter.privileged || waiter.ticket < ask.ticket;
            let Some(other) = waiter.want.row_mode().filter(|m| m.conflicts(mode)) else {
                continue;
            };
            if !is_ahead || *waiter.owner == *ask.owner {
                continue;
            }
            visit(&waiter.owner)?;
            if ask.nearest && !waiter.privileged && other == LockMode::Exclusive {
                // It waits for everybody further ahead.
                return ControlFlow::Continue(());
            }
        }
        self.holds.holds_of_row(ask.key, &mut |owner, held| {
            if Some(owner) == ask.slot || !held.conflicts(mode) {
                return ControlFlow::Continue(());
            }
            visit(self.owner_at(owner))
        })?;
        self.visit_spans(ask, mode == LockMode::Shared, visit)
    }

    fn visit_spans<'a>(
        &'a self,
        ask: &Ask<'_>,
        exclusive: bool,
        visit: Visit<'_, 'a>,
    ) -> ControlFlow<()> {
        if planted::is(Bug::IntervalNotChecked) {
            return ControlFlow::Continue(());
        }
        self.holds.spans_over(ask.key, exclusive, &mut |owner| {
            if Some(owner) == ask.slot {
                return ControlFlow::Continue(());
            }
            visit(self.owner_at(owner))
        })
    }

    /// Inserts that wait, or may go on, in the way of a span.
    fn visit_inserts<'a>(
        &'a self,
        ask: &Ask<'_>,
        span: &Span,
        visit: Visit<'_, 'a>,
    ) -> ControlFlow<()> {
        if self.lines.is_empty() {
            return ControlFlow::Continue(());
        }
        for (key, line) in self.lines.range::<[u8], _>(span.bounds()) {
            for waiter in line.waiters.iter().filter(|w| w.is_insert() && w.ticket < ask.ticket) {
                if *waiter.owner != *ask.owner && self.covering(ask.slot, key).is_none() {
                    visit(&waiter.owner)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Spans that are waited for, in the way of an insert.
    fn visit_span_waits<'a>(&'a self, ask: &Ask<'_>, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        if self.span_waits.is_empty() || self.covering(ask.slot, ask.key).is_some() {
            return ControlFlow::Continue(());
        }
        for (ticket, key) in self.span_waits.range(..ask.ticket) {
            let line = &self.lines[key];
            let waiter = &line.waiters[line.position(*ticket).expect("a span that is waited for")];
            let over = waiter.want.span().is_some_and(|span| span.contains(ask.key));
            if over && *waiter.owner != *ask.owner && !self.holds_against(ask.slot, key, waiter) {
                visit(&waiter.owner)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Does the waiter wait for a hold of this owner?
    fn holds_against(&self, slot: Option<u32>, key: &[u8], waiter: &Waiter) -> bool {
        let held = self.row_mode(slot, key).max(self.covering(slot, key));
        held.zip(waiter.want.row_mode()).is_some_and(|(held, mode)| held.conflicts(mode))
    }

    fn first_blocker(&self, ask: &Ask<'_>) -> Option<&Arc<Owner>> {
        let mut first = None;
        let _ = self.visit_blockers(ask, &mut |owner| {
            first = Some(owner);
            ControlFlow::Break(())
        });
        first
    }

    /// May a new request go ahead of, or beside, everybody there?
    pub(super) fn admit(
        &self,
        owner: &Owner,
        key: &[u8],
        want: &Want,
    ) -> Result<Granted, &Arc<Owner>> {
        let ask = self.ask(owner, key, want);
        let by_row = self.row_mode(ask.slot, key);
        let mode = want.row_mode();
        if matches!(want, Want::Row(_)) && by_row >= mode {
            return Ok(Granted::Held);
        }
        if let Some(other) = self.first_blocker(&ask) {
            return Err(other);
        }
        Ok(match by_row {
            _ if by_row.max(self.covering(ask.slot, key)) >= mode => Granted::Held,
            Some(_) => Granted::Raised,
            None => Granted::New,
        })
    }

    /// What is left to ask for. An owner of the row goes on, whatever spans of others lie over it:
    /// they came while the key was not there, and only an insert looks for them.
    pub(super) fn narrowed(&self, owner: &Owner, key: &[u8], want: Want) -> Want {
        match want {
            Want::Span { span, mode, row: true } => {
                let row = self.row_mode(self.slot(owner), key) < Some(mode);
                Want::Span { span, mode, row }
            }
            other => other,
        }
    }

    /// Records what was admitted; those who wait learn of it.
    pub(super) fn take(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        want: &Want,
        effects: &mut Effects,
    ) {
        self.record(owner, tree, key, want, effects);
        match want {
            Want::Row(mode) => self.tell_of_row(owner, key, *mode, effects),
            Want::Span { span, mode, .. } => self.tell_of_span(owner, span, *mode, effects),
            Want::Insert => {}
        }
    }

    fn record(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        want: &Want,
        effects: &mut Effects,
    ) {
        match want {
            Want::Row(mode) => self.hold_row(owner, tree, key, |grant| {
                grant.explicit = grant.explicit.max(Some(*mode));
            }),
            Want::Span { span, mode, .. } => self.grow(owner, tree, span, *mode, effects),
            Want::Insert => {}
        }
    }

    /// Puts a request in line; answers the key that it waits at. The caller looks for deadlocks
    /// next.
    pub(super) fn wait(
        &mut self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        want: Want,
        ticket: u64,
        effects: &mut Effects,
    ) {
        let key = match &want {
            Want::Span { span, row: false, .. } => self.insert_within(owner, span),
            _ => Key::from(key),
        };
        let ask = self.ask(owner, &key, &want);
        let privileged = ask.privileged;
        self.row_waits += usize::from(want.row_mode().is_some());
        if want.span().is_some() {
            self.span_waits.insert(ticket, key.clone());
        }
        if let (true, Some(mode)) = (privileged, want.row_mode()) {
            self.tell_of_row(owner, &key, mode, effects);
        }
        owner.set_outcome(Outcome::Waiting);
        owner.has_news.store(false, Ordering::Release);
        let place = Place { ticket, tree, key: key.clone() };
        owner.held.lock().wait = Some(place);
        let owner = Arc::clone(owner);
        let waiter = Waiter { ticket, owner, want, privileged, is_granted: false };
        self.lines.entry(key).or_default().push(waiter);
    }

    /// The first key where an insert is in the way of the span.
    fn insert_within(&self, owner: &Owner, span: &Span) -> Key {
        let slot = self.slot(owner);
        let in_the_way = |(key, line): &(&Key, &Line)| {
            let others = line.waiters.iter().any(|w| w.is_insert() && *w.owner != *owner);
            others && self.covering(slot, key).is_none()
        };
        let found = self.lines.range::<[u8], _>(span.bounds()).find(in_the_way);
        found.map(|(key, _)| key.clone()).expect("an insert is in the way")
    }

    /// An insert that may go on must wait again, at its old place. False: it has none here.
    pub(super) fn wait_again(&mut self, owner: &Arc<Owner>, key: &[u8]) -> bool {
        let Some(line) = self.lines.get_mut(key) else { return false };
        let own = |w: &&mut Waiter| w.is_granted && w.owner == *owner;
        let Some(waiter) = line.waiters.iter_mut().find(own) else { return false };
        waiter.is_granted = false;
        owner.set_outcome(Outcome::Waiting);
        owner.has_insert.store(false, Ordering::Release);
        let mut held = owner.held.lock();
        held.wait = held.insert.take();
        true
    }

    /// Takes a request out of its line; those in whose way it was may go. False: it is not there.
    pub(super) fn leave(&mut self, place: &Place, effects: &mut Effects) -> bool {
        let line = self.lines.get_mut(&*place.key);
        let Some(line) = line else { return false };
        let Some(at) = line.position(place.ticket) else { return false };
        let waiter = line.waiters.remove(at);
        self.row_waits -= usize::from(waiter.want.row_mode().is_some());
        self.span_waits.remove(&place.ticket);
        self.pump(place.tree, &place.key, effects);
        match &waiter.want {
            Want::Row(_) => {}
            Want::Span { span, .. } => self.pump_span(place.tree, span, effects),
            Want::Insert => {
                let over = |key: &&Key| {
                    let mut waiters = self.lines[*key].waiters.iter();
                    waiters.any(|w| w.want.span().is_some_and(|s| s.contains(&place.key)))
                };
                let keys: Vec<Key> = self.span_waits.values().filter(over).cloned().collect();
                keys.iter().for_each(|key| self.pump(place.tree, key, effects));
            }
        }
        true
    }

    /// Grants to every waiter at the key that nothing holds back any more, and forgets an empty
    /// line. Called after every change that may free somebody. A grant frees nobody.
    pub(super) fn pump(&mut self, tree: TreeId, key: &[u8], effects: &mut Effects) {
        let mut strongest_left: Option<LockMode> = None;
        let mut at = 0;
        while let Some(waiter) = self.lines.get(key).and_then(|line| line.waiters.get(at)) {
            let mode = waiter.want.row_mode();
            let behind = !waiter.privileged
                && mode.zip(strongest_left).is_some_and(|(mode, left)| left.conflicts(mode));
            if waiter.is_granted {
                at += 1;
            } else if behind || self.first_blocker(&self.ask_of(key, waiter)).is_some() {
                strongest_left = strongest_left.max(mode);
                at += 1;
            } else {
                at += self.grant(tree, key, at, effects);
            }
        }
        if self.lines.get(key).is_some_and(|line| line.waiters.is_empty()) {
            self.lines.remove(key);
        }
    }

    /// Grants to one waiter. Answers how many places it keeps.
    fn grant(&mut self, tree: TreeId, key: &[u8], at: usize, effects: &mut Effects) -> usize {
        let waiters = &mut self.lines.get_mut(key).expect("a line").waiters;
        if waiters[at].is_insert() {
            waiters[at].is_granted = true;
            let owner = Arc::clone(&waiters[at].owner);
            let mut held = owner.held.lock();
            held.insert = held.wait.take();
            drop(held);
            owner.has_insert.store(true, Ordering::Release);
            owner.set_outcome(Outcome::Granted);
            effects.wakes.push(owner);
            return 1;
        }
        let waiter = waiters.remove(at);
        self.row_waits -= usize::from(waiter.want.row_mode().is_some());
        self.span_waits.remove(&waiter.ticket);
        waiter.owner.held.lock().wait = None;
        // Those after it in the line have it in their way already.
        self.record(&waiter.owner, tree, key, &waiter.want, effects);
        waiter.owner.set_outcome(Outcome::Granted);
        effects.wakes.push(waiter.owner);
        0
    }

    pub(super) fn pump_span(&mut self, tree: TreeId, span: &Span, effects: &mut Effects) {
        let keys = self.lines.range::<[u8], _>(span.bounds());
        let keys: Vec<Key> = keys.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.pump(tree, key, effects));
    }

    /// Wakes those who wait at the row and have a new one in their way, so that they report it.
    pub(super) fn tell_of_row(
        &self,
        owner: &Owner,
        key: &[u8],
        mode: LockMode,
        effects: &mut Effects,
    ) {
        if let Some(line) = self.lines.get(key) {
            tell(line, owner, Some(mode), effects);
        }
    }

    pub(super) fn tell_of_span(
        &self,
        owner: &Owner,
        span: &Span,
        mode: LockMode,
        effects: &mut Effects,
    ) {
        if self.lines.is_empty() {
            return;
        }
        for (_, line) in self.lines.range::<[u8], _>(span.bounds()) {
            tell(line, owner, Some(mode), effects);
            let inserts = line.waiters.iter().filter(|w| w.is_insert() && !w.is_granted);
            inserts.for_each(|w| tell_one(w, owner, effects));
        }
    }

    /// Those in the way of a waiting owner: all, or enough to reach all.
    pub(super) fn blockers(&self, place: &Place, nearest: bool) -> Vec<Arc<Owner>> {
        let mut found = Vec::new();
        let Some(line) = self.lines.get(&*place.key) else { return found };
        let Some(at) = line.position(place.ticket) else { return found };
        let waiter = &line.waiters[at];
        if waiter.is_granted {
            return found;
        }
        let ask = Ask { nearest, ..self.ask_of(&place.key, waiter) };
        let _ = self.visit_blockers(&ask, &mut |owner| {
            found.push(Arc::clone(owner));
            ControlFlow::Continue(())
        });
        found
    }
}

fn tell(line: &Line, owner: &Owner, mode: Option<LockMode>, effects: &mut Effects) {
    for waiter in &line.waiters {
        let is_met = waiter.want.row_mode().zip(mode).is_some_and(|(a, b)| a.conflicts(b));
        if is_met {
            tell_one(waiter, owner, effects);
        }
    }
}

fn tell_one(waiter: &Waiter, owner: &Owner, effects: &mut Effects) {
    if *waiter.owner != *owner && !waiter.owner.has_news.swap(true, Ordering::AcqRel) {
        effects.wakes.push(Arc::clone(&waiter.owner));
    }
}
