//! Speaking with a server that runs already: address, connection, counters.
//!
//! 1. A password is never part of an address, of an argument or of a text that is kept.
//! 2. Nothing here changes the server, except `Client::execute`.

mod client;
mod counters;
mod dsn;
mod tls;

pub use client::{Client, Row};
pub use counters::{bytes_by_cause, Causes, Counters, CAUSES};
pub use dsn::{Dsn, Place};
