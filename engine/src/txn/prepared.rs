//! Prepared transactions and the trees they wrote: their sessions may be gone, and with them the
//! server's metadata locks. A statement that replaces a table waits for them here.

use super::registry::OpenTxn;
use super::session::{Context, Session};
use super::{Enqueued, LockMode, TxnState};
use crate::base::{Error, Lsn, Result, TreeId};
use crate::os::planted::{self, Bug};
use crate::wal::ReadAhead;
use std::sync::Arc;

impl Context {
    /// The trees of its records; the clustered ones alone if its session told them.
    fn trees_written(&self, open: &OpenTxn) -> Result<Vec<TreeId>> {
        if let Some(known) = open.wrote() {
            return Ok(known.to_vec());
        }
        let mut trees = Vec::new();
        let mut lsn = open.last_lsn();
        let mut ahead = ReadAhead::backward();
        while lsn != Lsn::ZERO {
            let record = self.own_version(open.id, lsn, &mut ahead)?;
            if !trees.contains(&record.tree) {
                trees.push(record.tree);
            }
            lsn = record.previous_lsn;
        }
        open.set_wrote(trees.clone());
        Ok(trees)
    }

    /// Has the transaction uncommitted changes in `tree`, and is it prepared?
    fn is_prepared_in(&self, open: &OpenTxn, tree: TreeId) -> Result<bool> {
        if open.xid().is_none() || self.table.state(open.id) != TxnState::Prepared {
            return Ok(false);
        }
        match self.trees_written(open) {
            // It has ended meanwhile, and the log let go of its records.
            Err(Error::NotRetained) if self.table.state(open.id) != TxnState::Prepared => Ok(false),
            found => Ok(found?.contains(&tree)),
        }
    }
}

impl Session {
    /// This transaction has written to the table that is clustered in `tree`.
    pub(crate) fn note_table(&mut self, tree: TreeId) {
        if self.wrote.last() != Some(&tree) && !self.wrote.contains(&tree) {
            self.wrote.push(tree);
        }
    }

    /// Waits, as for a row's lock, until no other prepared transaction has changes in the table
    /// that is clustered in `tree`. The caller lets no new ones in.
    pub(crate) fn wait_for_prepared(&mut self, tree: TreeId) -> Result<()> {
        if planted::is(Bug::PreparedIgnored) {
            return Ok(());
        }
        let mine = self.id();
        for open in self.ctx.registry.list() {
            while mine != Some(open.id) && self.ctx.is_prepared_in(&open, tree)? {
                self.wait_for_end(&open, tree)?;
                // What it committed is seen by newer snapshots only.
                self.drop_snapshot();
            }
        }
        Ok(())
    }

    /// The place is a key that no entry has: the wait is for the end of its holder.
    fn wait_for_end(&self, open: &Arc<OpenTxn>, tree: TreeId) -> Result<()> {
        let locks = &self.ctx.locks;
        match locks.enqueue(&self.owner, tree, b"", LockMode::Exclusive, Some(open.id)) {
            Enqueued::Waiting(ticket) => self.wait(ticket)?,
            Enqueued::Granted => {}
            Enqueued::HolderGone => return Ok(()),
        }
        locks.release_one(&self.owner, tree, b"");
        Ok(())
    }
}
