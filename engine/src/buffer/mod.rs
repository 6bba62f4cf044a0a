//! Room `buffer`: which pages are in memory and which thread may touch them.
//!
//! Invariants:
//! 1. A page has at most one frame in the table. Two threads that miss the same page read it once:
//!    the first enters a frame that it holds exclusively, the second waits for the latch.
//! 2. A guard is for a frame that is in the table or was in it when the latch was taken:
//!    a frame leaves the table only when nobody else refers to it (eviction), or after it was
//!    marked dead under its exclusive latch (failed load, freed page); a dead frame is never handed out.
//! 3. A frame is dirty before the record of its change is in the log
//!    ([`WriteGuard::will_change`]), with a recovery LSN not above that record's. So a checkpoint
//!    that reads the log's end first and [`Pool::redo_point`] second misses no record.
//! 4. At most one writeback of a page is under way, and its recovery LSN counts until the store has
//!    the copy: an older copy never follows a newer one, and the redo point never runs ahead.
//! 5. No call waits for a latch of another page while the pool's own locks are held, and a miss
//!    (whose caller may hold latches) only tries latches of victims.
//! 6. Latches: parent before child, left before right.
//! 7. A page that was given up ([`Pool::give_up`]) is never handed out again, whatever the store
//!    holds of it: the work owed to it was put aside, so an older image would be wrong data.
//! 8. A page that redo is owed to ([`Pool::owe`], `Pool::owe_frame`) has no frame: the thread that
//!    loads it applies what is owed before it lets go of the latch. Until then the redo point lies
//!    below it, and the frame is dirty before the page is not owed any more.
//! 9. A frame goes without an image only with all changes since its image: those gathered since the
//!    image was copied, if that copy reached the store, and none announced and not yet in the list.
//! 10. Changes of a page that left memory for a delta are read back from the log before others are
//!     applied (`renew.rs`).
//! 11. The list of dirty pages is exact (`dirty.rs`): the redo point and the writeback of old pages rely
//!     on it, and look at no other frame.
//! 12. A frame is entered ahead of a scan under the latch of its parent: a thread that frees the page
//!     later finds it. Nobody sees its bytes before a thread has filled it under its latch.
//!
//! States of a frame, with the function that makes each transition:
//!
//! ```text
//! absent  --Pool::read/write (miss)--> loading (exclusive)  --store has it--> clean
//! absent  --Pool::read_ahead---------> awaited --read_step, Pool::read/write--> loading
//! loading --pay_loaded (redo owed)---> dirty(lsn of the first change applied)
//! absent  --Pool::create-------------> clean, zeroed (exclusive)
//! loading --store fails--------------> dead
//! clean   --will_change--------------> dirty(rec_lsn)
//! dirty   --writeback::claim, copy---> writing(rec_lsn) and clean;  will_change: and dirty again
//! writing --writeback::settle--------> not writing; on failure dirty with the old rec_lsn
//! dirty   --write_batch, owe_frame---> clean, neither written nor owed, if Store::is_dropped
//! clean and unreferenced --evict-----> absent, or --Pool::pass (by the scan that loaded it)
//! dirty and unreferenced --owe_frame-> absent, its changes owed: in memory, or in a delta in the log
//! any     --Pool::free/discard-------> dead, absent
//! ```

mod ahead;
mod awaited;
mod bad;
mod bad_pages;
mod changes;
mod delta;
#[cfg(test)]
mod delta_tests;
mod dirty;
mod evict;
mod file_order;
mod frame;
mod gather;
mod owed;
mod owed_pages;
mod passing;
mod pool;
mod recovered;
mod renew;
mod table;
mod tail;
#[cfg(test)]
mod tests;
mod writeback;
#[cfg(test)]
mod writeback_tests;

pub use changes::{Changes, Delta};
pub use delta::DeltaLog;
pub use frame::{ReadGuard, WriteGuard};
pub use passing::Passing;
pub use pool::{Pool, PoolOptions};
pub use tail::Tail;
