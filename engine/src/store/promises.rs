//! What the store is told of trees, and what follows for their records.

use super::engine::Store;
use super::record::{self, Packed};
use crate::base::{Result, TreeId};
use crate::cipher::Cipher;

impl Store {
    /// Says of a tree, before it has a record, whether it must be encrypted. One that must not is plain if tables
    /// have a choice.
    pub fn set_tree_encryption(&self, tree: TreeId, is_encrypted: bool) {
        self.state.write().choices.choose(tree, is_encrypted);
    }

    /// The table of the tree is dropped, and the log has it: the next checkpoint, which flushes the log after it
    /// has looked here, need not promise anything for it.
    pub fn release_promise(&self, tree: TreeId) {
        self.state.write().choices.release_promise(tree);
    }

    /// Everything was said of trees that are there.
    pub fn trees_are_known(&self) {
        self.state.write().choices.are_known();
    }

    /// Whether a start from now on knows that some table must be encrypted, because checkpoints said so and the
    /// next ones will. For a caller that has spoken of its trees.
    pub fn is_promise_durable(&self) -> Result<bool> {
        // One that is under way may have begun before the caller spoke.
        let cp = self.checkpointer.lock();
        self.check_poison()?;
        Ok(cp.current().promises)
    }

    /// What encrypts the records of a tree.
    pub(super) fn cipher_for(&self, tree: TreeId) -> Option<&Cipher> {
        self.cipher.as_deref().filter(|_| !self.state.read().choices.is_plain(tree))
    }

    /// The record as this life writes it; `None` if it is so already. One of a dropped tree stays as it is:
    /// its table may have had to be encrypted, and nobody knows that any more.
    pub(super) fn renewed(&self, record: &Packed) -> Result<Option<Vec<u8>>> {
        let Some(cipher) = self.cipher.as_deref() else { return Ok(None) };
        if self.is_dropped(record.tree) {
            return Ok(None);
        }
        let encrypts = self.cipher_for(record.tree).is_some() && cipher.encrypts();
        record::renewed(self.seed, &record.bytes, cipher, encrypts)
    }
}
