//! What only the simulator asks of an engine (feature `sim`).

use super::config::FlushAtCommit;
use super::engine::Engine;
use super::rows::Trx;
use crate::base::{Csn, EntryHeader, Lsn, Result, TreeId};
use crate::btree::{Direction, LeafEnd};
use crate::txn::TreeGate;
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

thread_local! {
    static DDL_ENDS: RefCell<Vec<Lsn>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn note_ddl(end: Lsn) {
    DDL_ENDS.with_borrow_mut(|ends| ends.push(end));
}

/// The ends of the DDL commits of this thread since the last call. Two of one statement: the second
/// takes the first one back.
pub fn take_ddl_ends() -> Vec<Lsn> {
    DDL_ENDS.take()
}

impl Trx {
    /// The place in the order of commits, between `commit_ordered` and `commit`: number, and end
    /// of the record.
    pub fn published(&self) -> Option<(Csn, Lsn)> {
        self.session.published()
    }

    /// Up to which commit the snapshot, taken now if there is none, sees.
    pub fn snapshot_csn(&mut self) -> Csn {
        self.session.snapshot().csn()
    }
}

impl Engine {
    pub fn flush_at_commit(&self) -> FlushAtCommit {
        self.config.flush_at_commit
    }

    /// Commits a prepared transaction, and tells of its place in the order before others can see
    /// that it has ended.
    pub fn commit_prepared_told(&self, xid: &[u8], tell: impl FnOnce(Csn, Lsn)) -> Result<bool> {
        self.commit_adopted(xid, |session| {
            if let Some((csn, end)) = session.published() {
                tell(csn, end);
            }
        })
    }

    /// Delete marks that nobody purges any more, because what names them could not be read: at
    /// least so many.
    pub fn marks_left(&self) -> u64 {
        self.ctx.marks_left.load(Ordering::Relaxed)
    }

    pub fn given_up_pages(&self) -> usize {
        self.pool.given_up().len()
    }

    /// Those of one table.
    pub fn given_up_in(&self, name: &str) -> Result<usize> {
        let Some(table) = self.table(name)? else { return Ok(0) };
        let trees: Vec<TreeId> = table.def.trees().map(|index| index.tree).collect();
        Ok(self.pool.given_up().iter().filter(|(_, tree)| trees.contains(tree)).count())
    }

    /// The id of the next tree.
    pub fn next_tree(&self) -> TreeId {
        TreeId(self.schema.next_tree.load(Ordering::SeqCst))
    }

    /// Trees of tables that must be encrypted.
    pub fn promised_trees(&self) -> Vec<TreeId> {
        let tables = self.schema.tables.read();
        let promised = tables.values().filter(|table| table.def.is_encrypted);
        promised.flat_map(|table| table.def.trees().map(|index| index.tree)).collect()
    }

    /// Trees with a page that is plain and must not be, or the other way round.
    pub fn badly_kept_trees(&self) -> Result<Vec<TreeId>> {
        self.store.badly_kept_trees()
    }

    /// A checkpoint for space only, as the background makes it.
    pub fn checkpoint_map_now(&self) -> Result<()> {
        self.checkpoint_map()
    }

    /// Some garbage collection, wanted or not.
    pub fn collect_garbage(&self, budget_bytes: u64) -> Result<u64> {
        self.store.gc_step(budget_bytes)
    }

    /// Trees that have pages in the store but belong to no table.
    pub fn unknown_trees(&self) -> Vec<TreeId> {
        let known = self.ctx.trees.ids();
        self.store.trees().into_iter().filter(|id| !known.contains(id)).collect()
    }

    /// Entries of a table that are delete marks.
    pub fn delete_marks(&self, name: &str) -> Result<usize> {
        let Some(table) = self.table(name)? else { return Ok(0) };
        let mut found = 0;
        for gate in &table.gates {
            found += delete_marks_of(gate)?;
        }
        Ok(found)
    }
}

fn delete_marks_of(gate: &TreeGate) -> Result<usize> {
    let mut found = 0;
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let near = from.as_ref().map(|key| &key[..]);
        let end = gate.tree().scan_leaf(near, Direction::Forward, &mut |_, entry| {
            found += usize::from(EntryHeader::split(entry).is_ok_and(|(h, _)| h.is_deleted()));
            ControlFlow::Continue(())
        })?;
        match end {
            LeafEnd::Next(fence) => from = Bound::Included(fence),
            _ => return Ok(found),
        }
    }
}
