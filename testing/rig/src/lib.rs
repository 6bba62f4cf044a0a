//! The test rig: private servers, clients and a seeded generator, for every test that needs a real
//! server.
//!
//! 1. A server runs on a directory of its own and dies with the process that started it.
//! 2. A server is ended by its process id and nothing else.
//! 3. A client tells "the server said no" from "nobody knows".
//! 4. Servers that `sluice server` started, which outlive their starter, are stopped by a janitor.
//! 5. A program's directory goes with it, however it ends, unless it is kept after a failure.

pub mod client;
pub mod place;
pub mod planted;
pub mod port;
pub mod rng;
pub mod server;
pub mod sleeper;
pub mod suite;
pub mod tool;
