//! From what is on the disk to an engine that serves: opening, the two passes over the log, and what a crash or
//! damage leaves behind.
//!
//! 1. The log is read from the last checkpoint, first for outcomes (`analysis`), then for changes of pages
//!    (`redo`). The second pass applies a change only to a page whose LSN is lower.
//! 2. The engine opens before all pages are redone; a page is redone before anybody sees it.
//! 3. A transaction that was prepared outlives its session, and the crash (`prepared`).
//! 4. A log record gives up the work that damage stops, before any of it counts as done (`damage`, rules S8).

mod analysis;
mod damage;
mod note;
mod open;
mod prepared;
mod redo;

pub(super) use analysis::{Analysis, Outcome};
pub(super) use note::{CheckpointNote, OpenNote, OpenState, PurgeNote};
pub use open::Geometry;
