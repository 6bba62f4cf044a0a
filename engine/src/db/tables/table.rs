//! An open table: its trees and its counters.

use super::hidden_key::HiddenKey;
use super::remembered::{Mark, Remembered};
use crate::base::codec::put_varint;
use crate::base::{Csn, Result, TreeId};
use crate::catalog::TableDef;
use crate::db::callbacks::{KeyParts, RowNames};
use crate::db::records::RECORD_COUNTER;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::store::Store;
use crate::txn::TreeGate;
use crate::wal::Wal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a caller says about a table that it creates.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// `[0]` is the clustered index.
    pub indexes: Vec<IndexSpec>,
    /// The caller's own description; the engine keeps it and never looks inside.
    pub definition: Vec<u8>,
    /// The first AUTO_INCREMENT value; 0 counts as 1.
    pub autoinc_start: u64,
    /// `None` takes the engine's default.
    pub compression: Option<crate::store::Compression>,
    /// The table must be encrypted. Refused if nothing is.
    pub is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    pub unique: bool,
}

/// AUTO_INCREMENT values: the next one, and the next one if the server restarted now.
struct Autoinc {
    next: u64,
    kept: u64,
}

/// Counters of a table; a renamed table keeps them.
pub(crate) struct Counters {
    autoinc: Mutex<Autoinc>,
    hidden_key: HiddenKey,
    /// Truncated or dropped: the name means another table now, or none.
    retired: AtomicBool,
    /// The trees were made in this life of the engine, and were empty when these counters began.
    pub(crate) trees_are_new: bool,
    /// The table belongs to one session, and is gone after a restart.
    pub(crate) is_temporary: bool,
    pub(crate) remembered: Remembered,
}

/// One table that the catalog names. A rename or truncate makes a new one.
pub struct Table {
    pub(crate) name: String,
    pub(crate) def: TableDef,
    pub(crate) gates: Vec<Arc<TreeGate>>,
    pub(crate) long_values: Arc<TreeGate>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) row_names: OnceLock<Arc<RowNames>>,
    pub(crate) key_parts: OnceLock<Arc<dyn KeyParts>>,
    /// Snapshots before this one do not know the table.
    pub(crate) created: AtomicU64,
    pub(crate) wal: Arc<Wal>,
    pub(crate) store: Arc<Store>,
}

impl Counters {
    /// Of a table that was just made.
    pub(crate) fn of_new_trees(autoinc: u64) -> Self {
        Counters { trees_are_new: true, ..Counters::new(autoinc, HiddenKey::first()) }
    }

    pub(crate) fn new(autoinc: u64, hidden_key: HiddenKey) -> Self {
        Counters {
            autoinc: Mutex::ranked(
                Rank::Autoinc,
                Autoinc { next: autoinc.max(1), kept: autoinc.max(1) },
            ),
            hidden_key,
            retired: AtomicBool::new(false),
            trees_are_new: false,
            is_temporary: false,
            remembered: Remembered::default(),
        }
    }

    /// Those of the same rows under other indexes.
    pub(crate) fn of_altered(&self) -> Counters {
        let Autoinc { next, kept } = *self.autoinc.lock();
        Counters {
            autoinc: Mutex::ranked(Rank::Autoinc, Autoinc { next, kept }),
            hidden_key: self.hidden_key.carried_over(),
            retired: AtomicBool::new(false),
            trees_are_new: self.trees_are_new && self.remembered.mark() == Mark::default(),
            is_temporary: self.is_temporary,
            remembered: Remembered::default(),
        }
    }

    pub(crate) fn temporary(mut self, is_temporary: bool) -> Self {
        self.is_temporary = is_temporary;
        self
    }
}

impl Table {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The caller's description, as given at creation.
    pub fn definition(&self) -> &[u8] {
        &self.def.definition
    }

    /// Grows with every create and truncate.
    pub fn id(&self) -> u64 {
        self.def.id
    }

    pub(crate) fn clustered(&self) -> TreeId {
        self.def.indexes[0].tree
    }

    /// False once the table was dropped or truncated: look it up again.
    pub fn is_current(&self) -> bool {
        !self.counters.retired.load(Ordering::Acquire)
    }

    /// Snapshots before this one get an error.
    pub(crate) fn created(&self) -> Csn {
        Csn(self.created.load(Ordering::Acquire))
    }

    pub(crate) fn retire(&self) {
        self.counters.retired.store(true, Ordering::Release);
    }

    /// A row went in or out since the table was made or opened.
    pub(crate) fn has_changed(&self) -> bool {
        self.counters.remembered.mark() != Mark::default()
    }

    pub fn index_count(&self) -> usize {
        self.gates.len()
    }

    /// The next AUTO_INCREMENT value.
    pub fn autoinc_peek(&self) -> u64 {
        self.counters.autoinc.lock().next
    }

    /// The next value after a restart: after all that rows were given, not after values that
    /// were reserved and not used.
    pub(crate) fn autoinc_kept(&self) -> u64 {
        self.counters.autoinc.lock().kept
    }

    /// Raises the next value to the answer of `next`, which is given the present one. Nobody else
    /// reserves meanwhile.
    pub fn autoinc_update(&self, next: impl FnOnce(u64) -> u64) {
        let mut counter = self.counters.autoinc.lock();
        counter.next = next(counter.next).max(counter.next);
    }

    /// The value after a restart is at least `next`. The record rides in front of the commit of
    /// the row that has the value below it.
    pub fn autoinc_keep(&self, next: u64) {
        let mut counter = self.counters.autoinc.lock();
        if next <= counter.kept {
            return;
        }
        counter.kept = next;
        let mut payload = Vec::with_capacity(20);
        put_varint(&mut payload, self.def.id);
        put_varint(&mut payload, next);
        self.wal.append(RECORD_COUNTER, &[&payload]);
    }

    /// A key for a row of a table without a primary key; never given twice.
    pub fn next_hidden_key(&self) -> Result<u64> {
        self.counters.hidden_key.next(&self.gates[0])
    }

    /// The same table under another name.
    pub(crate) fn renamed(&self, name: &str) -> Table {
        Table {
            name: name.to_owned(),
            def: self.def.clone(),
            gates: self.gates.clone(),
            long_values: Arc::clone(&self.long_values),
            counters: Arc::clone(&self.counters),
            row_names: self.row_names.clone(),
            key_parts: self.key_parts.clone(),
            created: AtomicU64::new(self.created().0),
            wal: Arc::clone(&self.wal),
            store: Arc::clone(&self.store),
        }
    }
}
