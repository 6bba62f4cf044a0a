//! Locks that transactions surely hold. Whatever the engine grants against one of them is a bug of
//! its, seen at once and not only when rows show it.
//!
//! A session tells of a lock when the call that took it has returned, and takes it off this list
//! before it asks for what lets it go. So all of the list are held, and no two of them may be in
//! conflict. One call lets go by itself: one that ends as the victim of a deadlock. A conflict with a
//! transaction inside a call waits for what that call answers.
//!
//! The list is of the clustered index alone, and not complete: locks of unique keys, of rows that
//! were in the way, of scans that failed and of prepared transactions are not on it.

use crate::model::TableKey;
use std::collections::BTreeMap;

pub type Holder = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A row that was there when it was locked.
    Row { id: u32, exclusive: bool },
    /// A row that the holder has put there. It goes when that is undone.
    Insert { id: u32 },
    /// No row is there, and nobody else puts one there.
    Gap { id: u32 },
    /// All rows of a range, and all gaps in it.
    Range { low: u32, high: u32, exclusive: bool },
}

impl Place {
    fn conflicts(self, other: Place) -> bool {
        use Place::{Gap, Insert, Range, Row};
        match (self, other) {
            (Row { id: a, exclusive: x }, Row { id: b, exclusive: y }) => a == b && (x || y),
            (Row { id: a, .. } | Insert { id: a }, Insert { id: b } | Gap { id: b }) => a == b,
            (Row { id, exclusive: x }, Range { low, high, exclusive: y }) => {
                (low..=high).contains(&id) && (x || y)
            }
            (Insert { id }, Range { low, high, .. }) => (low..=high).contains(&id),
            (Gap { .. } | Range { .. }, Gap { .. } | Range { .. }) => false,
            (a, b) => b.conflicts(a),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    table: TableKey,
    place: Place,
}

#[derive(Default)]
struct Held {
    locks: Vec<Lock>,
    /// Inside a call that may make it the victim of a deadlock.
    is_asking: bool,
    /// What others were granted meanwhile against these locks.
    in_doubt: Vec<String>,
}

#[derive(Default)]
pub struct Locks {
    holders: BTreeMap<Holder, Held>,
    last_holder: Holder,
}

impl Locks {
    pub fn new_holder(&mut self) -> Holder {
        self.last_holder += 1;
        self.last_holder
    }

    /// From now on the holder is in a call that may end as the victim of a deadlock.
    pub fn ask(&mut self, holder: Holder) {
        self.holders.entry(holder).or_default().is_asking = true;
    }

    /// The call has returned. Answers what others should not have been granted meanwhile.
    #[must_use]
    pub fn answered(&mut self, holder: Holder, is_victim: bool) -> Vec<String> {
        if is_victim {
            self.release(holder);
            return Vec::new();
        }
        let held = self.holders.entry(holder).or_default();
        held.is_asking = false;
        std::mem::take(&mut held.in_doubt)
    }

    /// The holder has a lock. Answers why it should not.
    #[must_use]
    pub fn took(&mut self, holder: Holder, table: TableKey, place: Place) -> Option<String> {
        let lock = Lock { table, place };
        let mut found = None;
        for (other, held) in self.holders.iter_mut().filter(|(other, _)| **other != holder) {
            let conflicts = |l: &&Lock| l.table == table && l.place.conflicts(place);
            let Some(against) = held.locks.iter().find(conflicts) else { continue };
            let text = format!("{holder} has {lock:?} beside {other}, which has {against:?}");
            match held.is_asking {
                true => held.in_doubt.push(text),
                false => found = Some(text),
            }
        }
        let held = self.holders.entry(holder).or_default();
        if !held.locks.contains(&lock) {
            held.locks.push(lock);
        }
        found
    }

    /// How many locks the holder has: a place to undo to.
    pub fn mark(&self, holder: Holder) -> usize {
        self.holders.get(&holder).map_or(0, |held| held.locks.len())
    }

    /// What was inserted since `mark` is about to be undone. What was asked for stays.
    pub fn undo_to(&mut self, holder: Holder, mark: usize) {
        let Some(held) = self.holders.get_mut(&holder) else { return };
        let mut at = 0;
        held.locks.retain(|lock| {
            at += 1;
            at <= mark || !matches!(lock.place, Place::Insert { .. })
        });
    }

    /// The transaction is about to end.
    pub fn release(&mut self, holder: Holder) {
        self.holders.remove(&holder);
    }

    pub fn clear(&mut self) {
        self.holders.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_conflicts() {
        let (shared, row) =
            (Place::Row { id: 5, exclusive: false }, Place::Row { id: 5, exclusive: true });
        let (insert, gap) = (Place::Insert { id: 5 }, Place::Gap { id: 5 });
        let range = |low, exclusive| Place::Range { low, high: 9, exclusive };
        for (a, b, conflict) in [
            (shared, shared, false),
            (shared, row, true),
            (insert, gap, true),
            (gap, gap, false),
            (range(5, false), shared, false),
            (range(5, false), row, true),
            (range(5, true), shared, true),
            (range(6, true), row, false),
            (range(5, false), insert, true),
            (range(0, true), gap, false),
        ] {
            assert_eq!((a.conflicts(b), b.conflicts(a)), (conflict, conflict), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_victim_has_let_go() {
        let mut locks = Locks::default();
        let (a, b) = (locks.new_holder(), locks.new_holder());
        let row = Place::Row { id: 1, exclusive: true };
        assert_eq!(locks.took(a, 7, row), None);
        locks.ask(a);
        assert_eq!(locks.took(b, 7, row), None, "in doubt");
        assert!(locks.answered(a, true).is_empty());
        assert!(locks.took(a, 7, row).is_some());
        locks.ask(b);
        assert!(locks.took(a, 7, Place::Gap { id: 1 }).is_none());
        assert_eq!(locks.answered(b, false).len(), 1);
    }

    #[test]
    fn undone_inserts_are_no_locks() {
        let mut locks = Locks::default();
        let (a, b) = (locks.new_holder(), locks.new_holder());
        assert_eq!(locks.took(a, 7, Place::Insert { id: 1 }), None);
        let mark = locks.mark(a);
        assert_eq!(locks.took(a, 7, Place::Insert { id: 2 }), None);
        assert_eq!(locks.took(a, 7, Place::Row { id: 3, exclusive: true }), None);
        locks.undo_to(a, mark);
        assert_eq!(locks.took(b, 7, Place::Insert { id: 2 }), None);
        assert!(locks.took(b, 7, Place::Row { id: 3, exclusive: false }).is_some());
        assert!(locks.took(b, 7, Place::Row { id: 1, exclusive: false }).is_some());
    }
}
