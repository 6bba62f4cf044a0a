//! Which trees' pages are encrypted, if tables have a choice. A tree of which nobody has spoken is encrypted:
//! those of the engine itself, and all others until a start has read the catalog. So what is not known is never
//! written plain.
//!
//! A tree keeps what was said of it: its id is never given again, and a table that changes its mind gets other
//! trees.

use crate::base::TreeId;
use crate::cipher::{KeyName, Oldest, Scope};
use crate::os::hash::HashSet;
use crate::os::planted::{self, Bug};

pub struct Choices {
    /// The key that new records are encrypted under; `None`: all are plain.
    under: Option<u32>,
    scope: Scope,
    /// Trees whose records are plain, until the store has no page of them.
    plain: HashSet<TreeId>,
    /// Trees of tables that were made to be encrypted, until their tables are dropped.
    promised: HashSet<TreeId>,
    /// The last checkpoint knew of such trees, and this life does not know yet which trees there are.
    promised_before: bool,
}

impl Choices {
    pub fn new(under: Option<u32>, scope: Scope, promised_before: bool) -> Choices {
        let (plain, promised) = (HashSet::default(), HashSet::default());
        let scope = under.map_or(Scope::AllTables, |_| scope);
        Choices { under, scope, plain, promised, promised_before }
    }

    pub fn under(&self) -> Option<u32> {
        self.under
    }

    pub fn scope(&self) -> Scope {
        self.scope
    }

    pub fn is_plain(&self, tree: TreeId) -> bool {
        self.plain.contains(&tree)
    }

    /// Whether a start that would write plain must be refused.
    pub fn promises(&self) -> bool {
        self.promised_before || !self.promised.is_empty()
    }

    pub fn choose(&mut self, tree: TreeId, is_encrypted: bool) {
        let is_encrypted = is_encrypted && !planted::is(Bug::TakenForPlain);
        if is_encrypted {
            self.promised.insert(tree);
        } else if self.scope == Scope::NamedTables {
            self.plain.insert(tree);
        }
    }

    /// The table of the tree is dropped.
    pub fn release_promise(&mut self, tree: TreeId) {
        self.promised.remove(&tree);
    }

    /// Everything was said of trees that are there.
    pub fn are_known(&mut self) {
        self.promised_before = false;
    }

    /// The store has no page of the tree, and gets none any more.
    pub fn forget(&mut self, tree: TreeId) {
        self.plain.remove(&tree);
        self.promised.remove(&tree);
    }

    /// What a record means for keys. One that is plain and may be so needs none.
    pub fn oldest_of(&self, tree: TreeId, key: Option<KeyName>) -> Oldest {
        match key {
            None if self.is_plain(tree) => Oldest::None,
            _ => Oldest::of(key, self.under),
        }
    }
}
