//! ha_sluice: the Sluice storage engine as a MariaDB plugin.
//!
//! The C++ in `cpp/` does what only C++ can: handlerton, handler virtuals, Field access, service
//! calls. Every decision is on this side of the C ABI:
//!
//! * [`abi`] and `describe` turn pointers into references (with `record`, all the `unsafe`);
//! * `shape` is what the codecs know of a table, [`key`] and [`row`] are the codecs, `entry` puts both
//!   together;
//! * `abi_types` are the structures of the header, `host` the callbacks of the server;
//! * `handler` is an open table, `alter` one whose indexes change, `session` a transaction,
//!   `engine` the one engine, `binlog` what the hook in the binary log calls.

pub mod abi;
mod abi_types;
mod alter;
mod autoinc;
mod binlog;
#[cfg(test)]
mod codec_tests;
mod copy;
#[cfg(not(test))]
mod declare;
mod describe;
mod engine;
mod entry;
mod errors;
pub mod handler;
mod host;
pub mod key;
pub mod order;
mod planted;
pub mod record;
pub mod row;
pub mod session;
#[cfg(test)]
mod session_tests;
pub mod shape;
#[cfg(test)]
mod testing;
mod watch;

const _: () = assert!(!sluice_engine::os::SIMULATED, "the plugin must not have the simulator");
