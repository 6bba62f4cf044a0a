//! Sluice: a transactional storage engine built around one log.
//!
//! The rooms below are layers. `tests/house.rs` holds the table of which room may import which,
//! and checks it together with the list of files that may hold `unsafe`.
//! The public surface that the plugin and the command line see is [`db`] and [`base`], with
//! [`os`] for those who choose where bytes live. docs/architecture.md tells the whole story.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests are outside the seam"
    )
)]

pub mod base;
pub mod binlog;
pub mod btree;
pub mod buffer;
pub mod catalog;
pub mod db;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it is the seam")]
pub mod os;
pub mod store;
pub mod txn;
pub mod wal;
