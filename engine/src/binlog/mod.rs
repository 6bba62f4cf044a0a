//! Room `binlog`: which position of the server's binary log is which LSN.
//!
//! The server writes events to its binlog file; the same bytes are appended here to the log, and
//! one flush of the log makes a commit group durable: its prepare records and its events. The
//! file itself is synced in the background and completed from the log after a crash.
//!
//! Invariants:
//! 1. Every call of the room's hook functions ([`Binlog::opened`], [`Binlog::before_write`],
//!    [`Binlog::wrote`], [`Binlog::set_wanted`], [`Binlog::detach`]) is made by the thread that
//!    holds the server's lock of the binlog, so they never run at the same time.
//! 2. Bytes are appended to the log after they are in the file. The last bytes of a group carry
//!    the group-end flag; the log is flushed past it before the hook returns.
//! 3. *Authority* over the binlog is a logged state. While it is on, what lies after the last
//!    group end in the log was neither acknowledged nor seen by a replica, and is cut after a
//!    crash. While it is off the file is never touched.
//! 4. Authority begins at a position up to which the file is synced, and its record is durable
//!    before the bytes that follow are in the file. It ends (*settled*) only after every file it
//!    covers is synced. A fault ends it unsettled first: from then on files are completed, but no
//!    longer cut.
//! 5. Log with bytes that no sync of their file has covered is pinned: recovery's scan starts at
//!    or below it ([`Binlog::note_and_pin`]).
//! 6. State records carry a sequence number, the checkpoint's note the last one that it contains:
//!    those at or below it are skipped when the log is scanned.
//! 7. The *census* (GTID state, XIDs) is that of all events up to a group end of one file. It is
//!    unknown rather than wrong: whatever is not read in order ends it, until the next file begins.
//! 8. Authority that a crash left is settled only by completing every file that it covers, or by
//!    the user's word to do without (`may_abandon`). A start that can do neither is refused and
//!    changes nothing, so that the next one can ([`Binlog::start`]).
//! 9. A failed flush or sync is an error of the hook or the step; the host then ends the process.
//!
//! ```text
//! off --begin--> on --fault--> ending --settle--> off
//!                on --set_wanted(false), detach--> off
//! ```
//!
//! Lock order: `recovered` before `syncing` before `inner` before everything in `wal`; `covered`,
//! `known`, `decisions` and `base` are leaves.

mod behind;
mod census;
mod complete;
mod events;
mod files;
mod gtid;
mod index;
mod live;
mod mark;
mod planted;
mod record;
mod recover;
mod start;
#[cfg(test)]
mod start_tests;
mod stats;
#[cfg(test)]
mod tests;

pub use census::Decision;
pub use complete::Completion;
pub use live::{Binlog, Verdict, Write};
pub use record::{describe_record, RECORD_BINLOG, RECORD_BINLOG_STATE};
pub use recover::BinlogRecovery;
pub use start::Setting;
pub use stats::Fallback;
