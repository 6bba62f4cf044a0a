//! Whose the entries of a load are: nobody's, in a table that others cannot see yet, or a transaction's.

use super::index_build::NOBODY;
use crate::base::{EntryHeader, Result, TreeId};
use crate::btree::{Admit, Builder};
use crate::db::engine::Engine;
use crate::db::rows::Trx;
use crate::db::tables::Table;
use crate::txn::TreeGate;
use std::sync::atomic::AtomicU64;

pub(super) struct Author {
    /// Headers of the entries, one for each index.
    pub of_entries: Vec<EntryHeader>,
    pub of_long_values: EntryHeader,
    /// Long values have higher numbers.
    pub long_sequence: u32,
    /// What asks for the keys of trees that others may read.
    turns: Vec<(TreeId, Box<dyn Admit>)>,
}

impl Author {
    pub fn nobody(indexes: usize) -> Author {
        Author {
            of_entries: vec![NOBODY; indexes],
            of_long_values: NOBODY,
            long_sequence: 0,
            turns: Vec::new(),
        }
    }

    /// The load begins: all that it writes is taken back with the transaction, or to a savepoint before.
    pub fn of(trx: &mut Trx, table: &Table) -> Result<Author> {
        let of_long_values = trx.session.begin_load(&table.long_values)?;
        let begin = |gate| trx.session.begin_load(gate);
        let of_entries =
            table.gates.iter().map(|gate| gate.as_ref()).map(begin).collect::<Result<Vec<_>>>()?;
        let gates = table.gates.iter().chain([&table.long_values]);
        let turns = gates.map(|gate| (gate.id(), trx.session.load_turn(gate))).collect();
        Ok(Author { of_entries, of_long_values, long_sequence: trx.long_sequence, turns })
    }

    /// Asked once for each tree.
    pub fn builder(&mut self, gate: &TreeGate) -> Builder {
        if self.is_nobody() {
            return Builder::new(gate.shared_tree());
        }
        let at = self.turns.iter().position(|(tree, _)| *tree == gate.id());
        let at = at.expect("a tree has one builder");
        Builder::appending(gate.shared_tree(), self.turns.swap_remove(at).1)
    }

    fn is_nobody(&self) -> bool {
        self.of_long_values == NOBODY
    }

    /// What counts the rows.
    pub fn counter<'e>(&self, engine: &'e Engine) -> &'e AtomicU64 {
        match self.is_nobody() {
            true => &engine.loaded_rows,
            false => &engine.bulk_rows,
        }
    }
}
