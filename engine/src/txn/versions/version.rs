//! One version of an entry, as its log record or the tree of old versions tells it.

use super::note::Note;
use crate::base::{Lsn, TreeId, TxnId};

/// What a version record says, owned.
pub(crate) struct VersionRecord {
    pub tree: TreeId,
    pub txn: TxnId,
    pub previous_lsn: Lsn,
    pub key: Vec<u8>,
    pub replaced: Option<Vec<u8>>,
    pub deletes: bool,
    /// All entries that name the record are its versions.
    pub loads: bool,
}

impl VersionRecord {
    pub(in crate::txn) fn new(tree: TreeId, note: &Note<'_>) -> VersionRecord {
        VersionRecord {
            tree,
            txn: note.txn,
            previous_lsn: note.previous_lsn,
            key: note.key.to_vec(),
            replaced: note.replaced.map(<[u8]>::to_vec),
            deletes: note.deletes,
            loads: note.loads,
        }
    }
}
