//! Hash tables of the engine. Their order follows from keys; with the feature `sim` the seed of the
//! run draws these, so that the same seed gives the same run, and other seeds try other orders.

#[cfg(not(feature = "sim"))]
type Keys = std::hash::RandomState;
#[cfg(feature = "sim")]
type Keys = simulated::Keys;

#[allow(clippy::disallowed_types, reason = "with the keys of this room")]
pub type HashMap<K, V> = std::collections::HashMap<K, V, Keys>;
#[allow(clippy::disallowed_types, reason = "with the keys of this room")]
pub type HashSet<K> = std::collections::HashSet<K, Keys>;

#[cfg(feature = "sim")]
mod simulated {
    use crate::os::sched;
    use std::hash::{BuildHasher, DefaultHasher, Hasher};

    /// Those of a table.
    #[derive(Clone)]
    pub struct Keys(u64);

    impl Default for Keys {
        fn default() -> Keys {
            Keys(sched::hash_key())
        }
    }

    impl BuildHasher for Keys {
        type Hasher = DefaultHasher;

        fn build_hasher(&self) -> DefaultHasher {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.0);
            hasher
        }
    }
}
