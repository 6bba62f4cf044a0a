//! Tables that must be encrypted.
//!
//! Invariants:
//! 1. A tree is spoken of to the store before it has a page: [`Engine::tell_of_tree`].
//! 2. While the catalog names such a table, as it is or as a recovery of any crash would find it, the superblock
//!    says so ([`Engine::keep_promise`]). So a start that writes plain is refused before it writes anything.

use crate::base::{Error, Result, TreeId};
use crate::catalog::TableDef;
use crate::db::engine::Engine;
use crate::os::planted::{self, Bug};

impl Engine {
    pub(crate) fn check_can_encrypt(&self, is_encrypted: bool) -> Result<()> {
        match is_encrypted && !self.encrypts() {
            true => Err(Error::Refused(
                "a table cannot be encrypted while encryption is off: sluice_encrypt has to be TABLES or ON"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// Says of the tree of a table whether it must be encrypted.
    pub(crate) fn tell_of_tree(&self, tree: TreeId, is_encrypted: bool) {
        self.store.set_tree_encryption(tree, is_encrypted);
    }

    /// For a table whose trees were told of, before the catalog names it.
    pub(super) fn keep_promise(&self, def: &TableDef) -> Result<()> {
        if !def.is_encrypted || planted::is(Bug::PromiseNotWritten) {
            return Ok(());
        }
        match self.store.is_promise_durable()? {
            true => Ok(()),
            false => self.checkpoint_map(),
        }
    }
}
