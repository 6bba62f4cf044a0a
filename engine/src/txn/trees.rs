//! The open trees by id, each with a gate that keeps background work away from a dropped tree.
//!
//! Reverts and purges reach trees by the id in a log record, long after the table may be gone.
//! They hold the gate shared while they work; a drop closes it exclusively, so that no change of
//! a dropped tree is ever logged after the drop.

use crate::base::TreeId;
use crate::btree::Tree;
use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Ranked, RwLock, RwLockReadGuard};
use std::sync::Arc;

pub struct TreeGate {
    tree: Arc<Tree>,
    dropped: RwLock<bool>,
}

impl TreeGate {
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// For somebody who keeps the tree by other means than this gate.
    pub fn shared_tree(&self) -> Arc<Tree> {
        Arc::clone(&self.tree)
    }

    pub fn id(&self) -> TreeId {
        self.tree.id()
    }

    /// Keeps the tree from being dropped while the guard lives; `None` when it is gone.
    pub fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let guard = self.dropped.read();
        (!*guard).then_some(guard)
    }

    /// Waits for those inside and closes the gate for good.
    pub fn close(&self) {
        *self.dropped.write() = true;
    }
}

pub struct Trees {
    by_id: RwLock<HashMap<TreeId, Arc<TreeGate>>>,
}

impl Default for Trees {
    fn default() -> Trees {
        Trees { by_id: RwLock::ranked(Rank::Gates, HashMap::default()) }
    }
}

impl Trees {
    pub fn add(&self, tree: Arc<Tree>) -> Arc<TreeGate> {
        let id = tree.id();
        let gate = Arc::new(TreeGate { tree, dropped: RwLock::ranked(Rank::TreeGate, false) });
        let earlier = self.by_id.write().insert(id, Arc::clone(&gate));
        assert!(earlier.is_none(), "tree ids are never reused");
        gate
    }

    pub fn get(&self, id: TreeId) -> Option<Arc<TreeGate>> {
        self.by_id.read().get(&id).cloned()
    }

    /// Answers the gate that was closed.
    pub fn remove(&self, id: TreeId) -> Option<Arc<TreeGate>> {
        // Closing waits for those inside: not under the lock by which all others find their gates.
        let gate = self.by_id.write().remove(&id)?;
        gate.close();
        Some(gate)
    }

    pub fn all(&self) -> Vec<Arc<TreeGate>> {
        self.by_id.read().values().cloned().collect()
    }

    pub fn ids(&self) -> Vec<TreeId> {
        self.by_id.read().keys().copied().collect()
    }
}
