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

use super::owner::Owner;
use crate::os::hash::HashSet;
use std::sync::Arc;

/// The lightest owner on a cycle through `start`; `blockers` are the owners that one waits for.
pub(super) fn victim(
    start: &Arc<Owner>,
    blockers: impl Fn(&Owner) -> Vec<Arc<Owner>>,
) -> Option<Arc<Owner>> {
    // The cycle begins with `start`: among equals it is the one, since it woke nobody yet.
    find_cycle(start, blockers)?.into_iter().min_by_key(|owner| owner.weight())
}

/// The owners of a cycle through `start`, in order of waiting.
fn find_cycle(
    start: &Arc<Owner>,
    blockers: impl Fn(&Owner) -> Vec<Arc<Owner>>,
) -> Option<Vec<Arc<Owner>>> {
    let mut visited = HashSet::from_iter([start.number]);
    let mut path = vec![(Arc::clone(start), blockers(start))];
    while let Some((_, open)) = path.last_mut() {
        let Some(blocker) = open.pop() else {
            path.pop();
            continue;
        };
        if blocker == *start {
            return Some(path.into_iter().map(|(owner, _)| owner).collect());
        }
        if visited.insert(blocker.number) {
            let further = blockers(&blocker);
            path.push((blocker, further));
        }
    }
    None
}
