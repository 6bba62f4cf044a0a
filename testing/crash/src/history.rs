//! The transactions of one session since a moment, so that its state after any of them is known.

use crate::record::{RowChange, State};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub struct History {
    first: State,
    /// Transactions that `first` holds.
    before: u64,
    changes: Vec<Vec<RowChange>>,
    /// All transactions, for those who look on while the session runs.
    count: Arc<AtomicU64>,
}

impl History {
    pub fn new(first: State, before: u64) -> History {
        History { first, before, changes: Vec::new(), count: Arc::new(before.into()) }
    }

    pub fn push(&mut self, changes: Vec<RowChange>) {
        self.changes.push(changes);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    pub fn counter(&self) -> Arc<AtomicU64> {
        self.count.clone()
    }

    /// The state after the first `count` transactions of the session; none if it began later or there were
    /// not so many.
    pub fn at(&self, count: u64) -> Option<State> {
        let done = usize::try_from(count.checked_sub(self.before)?).ok()?;
        let mut state = self.first.clone();
        self.changes.get(..done)?.iter().for_each(|changes| state.apply(changes));
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_since_the_beginning_is_known() {
        let mut first = State::default();
        first.apply(&[RowChange::Journal(1), RowChange::Journal(2)]);
        let mut history = History::new(first, 2);
        history.push(vec![RowChange::Journal(3)]);
        history.push(vec![RowChange::Journal(4)]);
        let ids = |count| history.at(count).map(|state| state.journal.into_iter().max());
        assert_eq!([ids(1), ids(5)], [None, None], "before its beginning, after its end");
        assert_eq!([ids(2), ids(3), ids(4)], [Some(Some(2)), Some(Some(3)), Some(Some(4))]);
        assert_eq!(history.count(), 4);
    }
}
