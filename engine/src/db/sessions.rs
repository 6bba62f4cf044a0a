//! Sessions that a kill can find, and prepared transactions that have none.

use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::txn::{OpenTxn, Owner};
use std::sync::{Arc, Weak};

/// A prepared transaction without a session.
pub(crate) struct Detached {
    pub open: Arc<OpenTxn>,
    pub owner: Arc<Owner>,
}

pub(crate) struct Sessions {
    /// Owners of locks by the number that the host gave their session.
    owners: Mutex<HashMap<u64, Weak<Owner>>>,
    /// By XID.
    pub prepared: Mutex<HashMap<Vec<u8>, Detached>>,
}

impl Sessions {
    pub fn new() -> Sessions {
        Sessions {
            owners: Mutex::ranked(Rank::Sessions, HashMap::default()),
            prepared: Mutex::ranked(Rank::Prepared, HashMap::default()),
        }
    }

    pub fn register(&self, session: u64, owner: &Arc<Owner>) {
        self.owners.lock().insert(session, Arc::downgrade(owner));
    }

    /// To be called while the session's owner is still held.
    pub fn forget(&self, session: u64) {
        let mut owners = self.owners.lock();
        // A newer transaction of the same session stays known.
        if owners.get(&session).is_some_and(|owner| owner.strong_count() <= 1) {
            owners.remove(&session);
        }
    }

    pub fn owner(&self, session: u64) -> Option<Arc<Owner>> {
        self.owners.lock().get(&session).and_then(Weak::upgrade)
    }
}
