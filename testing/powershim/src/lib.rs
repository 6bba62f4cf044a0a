//! Preloaded into a database server, this library keeps a journal of what a loss of power would
//! take away: every write with the bytes that it replaces, every change of a length or a name, and
//! every sync. `sluice-crash powercut` kills the server and then, by that journal and a seed, takes
//! away what was not synced. See docs/powercut.md.
//!
//! It watches the regular files below the directories in `SLUICE_SHIM_ROOTS` and nothing else.
//! A way to write that it does not know is complained about in the side directory, and the harness
//! fails the run.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::missing_safety_doc, reason = "each is the libc function of its name")]

mod data;
mod journal;
mod names;
mod raw;
mod state;
mod unseen;
