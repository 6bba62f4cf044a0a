//! The whole engine on a simulated machine: many sessions on many threads, of which a seeded
//! scheduler lets exactly one run at a time; power that goes off anywhere, also during recovery;
//! and a model that says what must be there. docs/simulation.md tells the whole story.
//!
//! [`world`] is one seed from beginning to end, [`session`] and [`operator`] are those who use the
//! engine in it, [`backup`] one who copies it, [`model`] is what they know, [`locks`] what they hold, [`row`] what
//! tables hold, [`loading`] how a table comes to be with all its rows, [`hiding`] which bytes are encrypted,
//! [`profile`] how seeds differ.
#![cfg(feature = "sim")]

mod backup;
mod check;
mod hiding;
mod loading;
mod locks;
mod model;
mod operator;
mod processor;
mod profile;
mod row;
mod session;
mod world;

pub use profile::Profile;
pub use sluice_engine::os::planted::Bug;
pub use world::{find_planted, run, Options, Report};
