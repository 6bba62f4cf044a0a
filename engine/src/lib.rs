//! Sluice: a transactional storage engine built around one log.
//!
//! The rooms below are layers. `tests/house.rs` holds the table of which room may import which,
//! and checks it together with the list of files that may hold `unsafe`. docs/architecture.md tells
//! the whole story.
//!
//! Three rooms are public. [`db`] is the engine as the plugin and the command line see it: its list
//! of re-exports is the face of all that lies below. [`base`] has errors and the codec, [`os`] is
//! for those who choose where bytes live.
//!
//! A row that was committed outlives a power cut:
//!
//! ```
//! # fn main() -> sluice_engine::base::Result<()> {
//! use sluice_engine::db::{Config, Engine, Entry, Geometry, IndexSpec, NoHost, ReadMode, RowWrite};
//! use sluice_engine::db::TableSpec;
//! use sluice_engine::os::{sim::SimOs, Os};
//! use std::sync::Arc;
//!
//! let disk = SimOs::new(1);
//! let open = || {
//!     let mut config = Config::new("/data");
//!     config.background = false;
//!     config.buffer_pool_bytes = 1 << 20;
//!     config.log_capacity_bytes = 512 << 10;
//!     let geometry = Geometry {
//!         log_segment_bytes: 64 << 10,
//!         log_cache_bytes: 256 << 10,
//!         store_segment_bytes: 64 << 10,
//!     };
//!     Engine::open_with(Arc::clone(&disk) as Arc<dyn Os>, config, geometry, Arc::new(NoHost))
//! };
//!
//! let engine = open()?;
//! let spec = TableSpec {
//!     indexes: vec![IndexSpec { unique: true }],
//!     definition: Vec::new(),
//!     autoinc_start: 1,
//!     compression: None,
//!     is_encrypted: false,
//! };
//! engine.create_table("db/t", spec)?;
//! let table = engine.table("db/t")?.expect("just created");
//! let mut trx = engine.begin(1);
//! trx.statement_start();
//! trx.insert(&table, &RowWrite { entries: &[Entry { key: b"k", payload: b"v", parts: &[], unique: true }] })?;
//! trx.commit(true)?;
//! drop((trx, table, engine));
//!
//! // Bytes that were not synced are gone.
//! disk.crash();
//!
//! let engine = open()?;
//! let table = engine.table("db/t")?.expect("it was durable");
//! let mut trx = engine.begin(2);
//! trx.statement_start();
//! let mut payload = Vec::new();
//! assert!(trx.get(&table, 0, b"k", ReadMode::Snapshot, &mut payload)?);
//! assert_eq!(payload, b"v");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests are outside the seam"
    )
)]

pub mod base;
mod binlog;
mod btree;
mod buffer;
mod catalog;
mod cipher;
pub mod db;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it is the seam")]
pub mod os;
mod store;
mod txn;
mod wal;
