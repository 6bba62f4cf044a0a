//! Deadlocks: cycles in the graph of who waits for whom, found when an edge is about to close one.
//!
//! The graph is not stored: the blockers of a waiter follow from its queue. New edges lead to
//! owners that run (a grant, a grown interval), or touch the owner that is being queued (its own
//! edges, and a privileged waiter that overtakes), or the holder whose implicit lock became
//! visible. So every cycle passes through one of the last two when it closes.

use super::interrupt::{Outcome, Owner, Wait, WaitKind};
use super::lock_queue::Mode;
use super::lock_state::{Locks, Wakes};
use std::collections::HashSet;
use std::sync::Arc;

/// Ends all cycles through `owner`, by waking the lightest of each with `Deadlock`.
pub(super) fn resolve(locks: &mut Locks, owner: &Arc<Owner>, wakes: &mut Wakes) {
    while let Some(cycle) = find_cycle(locks, owner) {
        // The cycle begins with `owner`: among equals it is the one, since it woke nobody yet.
        let victim = cycle.iter().min_by_key(|o| o.weight()).expect("a cycle is not empty");
        locks.stats.deadlocks += 1;
        victim.set_outcome(Outcome::Deadlock);
        wakes.push(Arc::clone(victim));
        locks.cancel(victim, wakes);
    }
}

/// The owners of a cycle through `start`, in order of waiting.
fn find_cycle(locks: &Locks, start: &Arc<Owner>) -> Option<Vec<Arc<Owner>>> {
    let mut visited = HashSet::from([start.number]);
    let mut path = vec![(Arc::clone(start), next_blockers(locks, start))];
    while let Some((_, blockers)) = path.last_mut() {
        let Some(blocker) = blockers.pop() else {
            path.pop();
            continue;
        };
        if blocker == *start {
            return Some(path.into_iter().map(|(owner, _)| owner).collect());
        }
        if visited.insert(blocker.number) {
            let further = next_blockers(locks, &blocker);
            path.push((blocker, further));
        }
    }
    None
}

/// Enough of the blockers to reach all of them: a waiter behind an exclusive one that waits in
/// line reaches through it everybody further ahead.
fn next_blockers(locks: &Locks, owner: &Owner) -> Vec<Arc<Owner>> {
    blockers(locks, owner, true)
}

/// Everybody in the way of a waiting owner.
pub(super) fn all_blockers(locks: &Locks, owner: &Owner) -> Vec<Arc<Owner>> {
    blockers(locks, owner, false)
}

fn blockers(locks: &Locks, owner: &Owner, nearest: bool) -> Vec<Arc<Owner>> {
    let wait = owner.held.lock().wait.clone();
    let Some(Wait { ticket, tree, key, kind }) = wait else { return Vec::new() };
    let Some(tree) = locks.trees.get(&tree) else { return Vec::new() };
    let row_mode = match kind {
        WaitKind::Insert => None,
        WaitKind::Row { mode, .. } => Some(mode),
    };
    let mut found: Vec<_> = tree.intervals.against(owner, &key, row_mode).map(Arc::clone).collect();
    let WaitKind::Row { mode, privileged } = kind else { return found };
    let queue = &tree.rows[&key];
    if !privileged {
        let ahead = queue.position(privileged, ticket);
        for waiter in queue.waiters_against(ahead, mode) {
            found.push(Arc::clone(&waiter.owner));
            if nearest && !waiter.privileged && waiter.mode == Mode::Exclusive {
                return found;
            }
        }
    }
    found.extend(queue.holders_against(owner, mode).map(Arc::clone));
    found
}
