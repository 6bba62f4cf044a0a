//! Identifiers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            pub const ZERO: $name = $name(0);
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Log sequence number: a byte position in the endless log stream. Zero means "none".
    Lsn, u64, "lsn:");
id!(
    /// Identity of a page for all time: page ids are never reused. Zero means "none".
    PageId, u64, "page:");
id!(
    /// Identity of a transaction that writes. Ids grow; zero means "none". At most 48 bits.
    TxnId, u64, "txn:");
id!(
    /// Identity of a tree (the clustered or a secondary index of a table). Never reused.
    TreeId, u32, "tree:");
id!(
    /// Commit sequence number: the order in which transactions became visible.
    Csn, u64, "csn:");
