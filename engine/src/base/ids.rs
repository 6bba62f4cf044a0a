//! Identifiers.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

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

/// Hashes an id: ids are dense numbers, and one multiplication spreads them. No user chooses one.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }

    fn write_u64(&mut self, v: u64) {
        let mixed = (self.0 ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A hash table by an id: its order is the same in every run.
#[allow(clippy::disallowed_types, reason = "it draws no keys")]
pub type IdMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<IdHasher>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::hash::Hash;

    /// A map takes its places from the lowest bits and tells them apart by the highest.
    #[test]
    fn ids_in_a_row_spread_over_both_ends_of_the_hash() {
        let hash = |id: &dyn Fn(&mut IdHasher)| {
            let mut hasher = IdHasher::default();
            id(&mut hasher);
            hasher.finish()
        };
        let trees: Vec<u64> = (0..256).map(|n| hash(&|h| TreeId(n).hash(h))).collect();
        let pages: Vec<u64> = (0..256).map(|n| hash(&|h| PageId(n).hash(h))).collect();
        assert_eq!(trees, pages, "an id of four bytes is hashed at once as well");
        let low: BTreeSet<u64> = trees.iter().map(|hash| hash & 0xff).collect();
        let high: BTreeSet<u64> = trees.iter().map(|hash| hash >> 57).collect();
        assert!(low.len() > 128 && high.len() > 64, "{} and {}", low.len(), high.len());
    }
}
