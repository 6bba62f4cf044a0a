//! Room `base`: the words every other room uses. It knows no files, threads or time.
//!
//! Invariants:
//! 1. Identifiers are newtypes; an [`Lsn`] is never confused with a [`PageId`].
//! 2. Every decoder takes bytes from [`codec::Reader`] and returns [`Error::Corrupt`]; it never panics.
//! 3. Sizes that several rooms must agree on stand in [`limits`], related to each other at compile
//!    time.

/// Whether this build makes the assertions that cost more than what they check: simulated builds and
/// builds with debug assertions.
pub const CHECKED: bool = cfg!(any(feature = "sim", debug_assertions));

/// An assertion of [`CHECKED`] builds.
macro_rules! checked {
    ($($condition:tt)*) => {
        if $crate::base::CHECKED {
            assert!($($condition)*);
        }
    };
}
pub(crate) use checked;

pub mod checksum;
pub mod codec;
pub mod compress;
pub mod entry;
pub mod error;
pub mod formats;
pub mod ids;
pub mod limits;

pub use entry::{EntryHeader, Payload, ENTRY_HEADER_BYTES};
pub use error::{Error, Result};
pub use ids::{Csn, IdMap, Lsn, PageId, TreeId, TxnId};
pub use limits::{BLOCK_BYTES, PAGE_BYTES};
