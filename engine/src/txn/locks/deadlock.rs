//! Deadlocks: cycles in the graph of waiters, found when an edge is about to close one.
//!
//! The graph is not stored: the blockers of a waiter follow from the locks of its tree. New edges
//! lead to owners that run (a grant, a grown interval), or touch the owner that is being queued
//! (its own edges, and a privileged waiter that overtakes), or the holder whose implicit lock
//! became visible. So every cycle passes through one of the last two when it closes.
//!
//! The search takes the mutex of one tree at a time. That is enough: its caller holds the mutex
//! that every beginning of a wait takes, and every end but a grant. An owner that is met waiting
//! has waited all along and released nothing, so an edge that was seen stands until its waiter is
//! granted, and nobody on a cycle is.

use super::interrupt::Owner;
use super::manager::LockManager;
use super::state::Effects;
use std::collections::HashSet;
use std::sync::Arc;

/// Ends all cycles through `owner`, by waking the lightest of each with `Deadlock`.
pub(super) fn resolve(manager: &LockManager, owner: &Arc<Owner>, effects: &mut Effects) {
    while let Some(cycle) = find_cycle(manager, owner) {
        // The cycle begins with `owner`: among equals it is the one, since it woke nobody yet.
        let victim = cycle.iter().min_by_key(|o| o.weight()).expect("a cycle is not empty");
        manager.end_in_deadlock(victim, effects);
    }
}

/// The owners of a cycle through `start`, in order of waiting.
fn find_cycle(manager: &LockManager, start: &Arc<Owner>) -> Option<Vec<Arc<Owner>>> {
    let mut visited = HashSet::from([start.number]);
    let mut path = vec![(Arc::clone(start), manager.blockers(start, true))];
    while let Some((_, blockers)) = path.last_mut() {
        let Some(blocker) = blockers.pop() else {
            path.pop();
            continue;
        };
        if blocker == *start {
            return Some(path.into_iter().map(|(owner, _)| owner).collect());
        }
        if visited.insert(blocker.number) {
            let further = manager.blockers(&blocker, true);
            path.push((blocker, further));
        }
    }
    None
}
