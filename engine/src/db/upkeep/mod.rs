//! Work beside the sessions: checkpoints, room on the disk, statistics, and the threads that do it.
//!
//! 1. Each kind of work is a step with a budget. A thread calls it, or the owner of the engine.
//! 2. A step that fails is reported, and tried again later; it does not end its thread.
//! 3. Checkpoints bound the log that recovery reads (rules M2 to M4).

mod background;
mod backup;
mod checkpoint;
mod disk_room;
mod purged;
mod rotation;
mod statistics;
mod window;

#[cfg(test)]
pub(super) use background::report;
