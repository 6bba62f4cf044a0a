//! Room `btree`: how keys lie in pages.
//!
//! Invariants:
//! 1. A node covers the keys from its low fence (inclusive) to its high fence (exclusive, absent =
//!    no end); the root covers all. A child's fences are the two separators around it in its parent.
//! 2. Every key of a node begins with the common prefix of its fences; slots hold the rest. The first
//!    key of an inner node is its low fence and is not stored again.
//! 3. `apply` is the only code that modifies a node, in forward execution and in redo. It is a pure
//!    function of page, change and LSN, so replay gives identical bytes. Change codes never change
//!    their meaning (see `codec`).
//! 4. One operation is one record: whatever it does to all of its pages. The record is appended under
//!    the exclusive latches of all of these pages, so it is in the log before any of them is released.
//! 5. Latches are taken parent before child, left before right, coupled: a child is latched before its
//!    parent is released. A page is freed by one who holds it and its parent exclusively, so no
//!    descent can be on the way to it. A thread that goes to a leaf without a descent, from a key
//!    that it found there (`near`), holds no other latch; it leaves a page that is being freed.
//! 6. The root's page id is fixed: it grows by moving its content to a new child and shrinks by taking
//!    over its only child.
//! 7. A split is followed by a new attempt of the change that needed it; every attempt holds at most a
//!    parent, two children and one new page.
//!
//! A change: descend shared, leaf exclusive -> decide -> fits: log, apply, done. Else release, make
//! room (drop dead entries, split, grow the root or first make room in the parent), and again.

mod admit;
mod append;
mod apply;
mod bulk;
mod check;
mod codec;
mod delta;
mod descend;
mod env;
mod estimate;
#[cfg(test)]
mod fuzz_tests;
mod inspect;
mod merge;
mod near;
mod need;
mod node;
mod record;
mod sample;
mod scan;
mod split;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod tree_bytes;
mod verify;

pub use admit::Admit;
pub use apply::change_creates_page;
pub use bulk::Builder;
pub use codec::Value;
pub use delta::{decode_delta, RECORD_DELTA};
pub use descend::Direction;
pub use env::Env;
pub use estimate::{RangeEstimate, TreeSize};
pub use inspect::{describe_change, view_page, NodeView};
pub use record::{decode_record, TreeRecord, RECORD_TREE};
pub use scan::LeafEnd;
pub use tree::{EntryEdit, Tree};
pub use tree_bytes::{TreeBytes, TreeBytesNow};
pub use verify::check_page;
