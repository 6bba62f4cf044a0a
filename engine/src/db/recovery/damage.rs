//! Damage that is met while the engine runs (rules S8): what is given up, and what people are told.
//!
//! A statement that needs a damaged page fails and changes nothing here. Work that nobody waits
//! for (redo, revert, purge) would try for ever and hold the log back: it is put aside. If the disk
//! refuses to read the page, it is tried for a while before that (`unreadable`). The page is given
//! up: a log record says so before any record that counts the work as done, and so does every
//! checkpoint's note from then on, until its tree is dropped.

use super::redo::GivenUp;
use crate::base::codec::put_varint;
use crate::base::{Error, PageId, Result, TreeId};
use crate::catalog::FIRST_USER_TREE;
use crate::db::config::Level;
use crate::db::engine::Engine;
use crate::db::records::RECORD_BAD_PAGE;
use crate::db::unreadable::Verdict;
use crate::txn::Stopped;
use std::sync::Arc;

/// Different damage that is reported in one life of the engine; bounds memory and error log.
const REPORTS_MAX: usize = 1000;

const ADVICE: &str = "restore a backup, or save what can still be read and DROP or TRUNCATE the \
                      table; `sluice inspect` on the stopped directory lists all damage";
const DISK_ADVICE: &str = "see the kernel's log for the disk's state, and mend or replace it; if \
                           the read goes on failing,";

impl Engine {
    /// Lets background work in `txn` put aside what damage stops.
    pub(crate) fn watch_damage(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let put_aside = move |work: Stopped, error: &Error| {
            engine.upgrade().is_some_and(|engine| engine.put_aside(work, error))
        };
        let fresh = self.ctx.put_aside.set(Box::new(put_aside)).is_ok();
        assert!(fresh, "an engine is assembled once");
    }

    fn put_aside(&self, work: Stopped, error: &Error) -> bool {
        if self.unreadable.judge(error) != Verdict::GiveUp {
            return false;
        }
        self.report_damage(error);
        let (Stopped::Page(tree) | Stopped::Mark(tree)) = work else { return true };
        // Only a page of a table can be given up.
        match error.damaged_page() {
            Some(page) if tree >= FIRST_USER_TREE => self.give_up(page, tree),
            _ => return work == Stopped::Mark(tree),
        }
        true
    }

    fn give_up(&self, page: PageId, tree: TreeId) {
        if self.pool.give_up(page, tree) {
            self.log_given_up(page, tree);
        }
    }

    fn log_given_up(&self, page: PageId, tree: TreeId) {
        let mut payload = Vec::with_capacity(20);
        put_varint(&mut payload, page.0);
        put_varint(&mut payload, u64::from(tree.0));
        self.wal.append(RECORD_BAD_PAGE, &[&payload]);
    }

    /// What redo could not apply: said in the log before anything else is, and to people.
    pub(crate) fn record_redo_damage(&self, damage: &[GivenUp]) -> Result<()> {
        for given_up in damage {
            self.log_given_up(given_up.page, given_up.tree);
            self.report_damage(&given_up.error);
        }
        if damage.is_empty() {
            return Ok(());
        }
        self.flush_log()
    }

    /// At open: pages given up in an earlier life. Those of trees that are gone are forgotten.
    pub(crate) fn report_given_up(&self) {
        let known = self.ctx.trees.ids();
        for (page, tree) in self.pool.given_up() {
            if !known.contains(&tree) {
                self.pool.forget_given_up(tree);
            } else if let Err(error) = self.pool.read(page) {
                self.report_damage(&error);
            }
        }
    }

    /// Tells the error log once about each piece of damage; other errors are ignored.
    pub fn report_damage(&self, error: &Error) {
        if !error.is_bad_read() {
            return;
        }
        let text = self.describe_damage(error);
        let mut reported = self.reported_damage.lock();
        if reported.len() >= REPORTS_MAX || !reported.insert(text.clone()) {
            return;
        }
        drop(reported);
        self.host.log(Level::Error, &text);
    }

    /// The error, the table that it concerns, and what to do about it.
    pub fn describe_damage(&self, error: &Error) -> String {
        let advice = match error {
            Error::Corrupt { .. } => ADVICE.to_owned(),
            _ if error.is_bad_read() => format!("{DISK_ADVICE} {ADVICE}"),
            _ => return error.to_string(),
        };
        match error.damaged_page().and_then(|page| self.owner_of(page)) {
            Some(owner) => format!("{owner}: {error}: {advice}"),
            None => format!("{error}: {advice}"),
        }
    }

    /// "table db/t, index 1" of a page.
    fn owner_of(&self, page: PageId) -> Option<String> {
        let given_up = self.pool.given_up().into_iter().find(|bad| bad.0 == page).map(|bad| bad.1);
        let tree = given_up.or_else(|| self.store.tree_of(page))?;
        let tables = self.schema.tables.read();
        let table = tables.values().find(|t| t.def.trees().any(|i| i.tree == tree))?;
        let part = match table.def.indexes.iter().position(|i| i.tree == tree) {
            Some(0) => "rows".to_owned(),
            Some(n) => format!("secondary index {n}"),
            None => "long values".to_owned(),
        };
        Some(format!("table {}, {part}", table.name()))
    }
}
