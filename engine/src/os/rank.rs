//! The order of all locks of the engine, and the check of it.
//!
//! Every mutex, read-write lock, latch and condition is made with its [`Rank`]. A thread that holds
//! a lock may only wait for locks of later ranks; [`Rank::nests`] names the ranks of which it may
//! hold several. A thread that sleeps for a condition, or for anything that is no lock, holds only
//! locks of ranks before that of its sleep, beside the condition's own mutex.
//!
//! Simulated builds and builds with debug assertions check each acquisition; nothing of the check
//! remains in others. A try never blocks, so it may come out of order; what it took counts as held.
//!
//! The idea is that of FreeBSD's `witness` and of the levels of InnoDB's latches.

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A place in the order: locks of ranks further up may be held when this one is taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Rank {
            $($(#[$doc])* $name,)*
        }

        impl Rank {
            /// All ranks, in order.
            pub const ALL: &'static [Rank] = &[$(Rank::$name,)*];
        }
    };
}

ranks! {
    /// Locks of tests: they are not checked. A rule of the house keeps it out of the engine.
    Unranked,

    // Long steps, one at a time.
    /// `db`: a piece of the statistics of a table.
    Statistics,
    /// `db`: a DDL statement.
    Ddl,
    /// `db`: a backup begins or ends.
    Backup,
    /// `db`: a checkpoint.
    Checkpointing,
    /// `db`: a sweep of moved versions.
    Sweep,
    /// `db`: the state of a redo by several threads.
    RedoProgress,
    /// `txn`: what the purge has read ahead.
    PurgeReadAhead,
    /// `txn`: what the revert has read ahead.
    RevertReadAhead,
    /// `txn`: what a session has read beside the version it looked for.
    SessionReadAhead,

    // Sleeps of sessions and workers: none of them with a gate, a latch or anything below held.
    /// Sleep: a worker is idle.
    BellWait,
    /// Sleep: a checkpoint makes room in the log.
    LogRoomWait,
    /// Sleep: the pool comes back to its size.
    PoolSizeWait,
    /// Sleep: a transaction waits for a row lock.
    RowLockWait,

    // The binlog, whose group is flushed with its state held.
    /// `binlog`: one sync of the files in the background.
    BinlogSyncing,
    /// `binlog`: what a start found and completes.
    BinlogRecovered,
    /// `binlog`: the file and the group being written.
    BinlogState,
    BinlogKnown,
    BinlogDecisions,
    BinlogBase,
    BinlogCovered,

    // The page store's long steps; a checkpoint flushes the log in between.
    /// `store`: one checkpoint of the map.
    StoreCheckpointer,
    /// `store`: one collector of garbage.
    StoreCollector,
    /// Sleep: the log becomes durable.
    LogFlushWait,
    /// Sleep: recovery waits for batches of the log, or for room for them.
    LogUnpackedWait,

    // Trees and pages.
    /// `txn`: revert and purge are in a tree, or it is dropped.
    TreeGate,
    /// Sleep: a writeback of a page ends.
    PageWrittenWait,
    /// `buffer`: a page.
    PageLatch,

    // Looked at for a moment; the order is that of the few that are held for another.
    /// `db`: which part of the written log is whose.
    LogShares,
    /// `db`: under which keys the log is.
    LogKeys,
    /// `db`: the open tables.
    Tables,
    Sessions,
    Prepared,
    DroppedTrees,
    Pace,
    /// `db`: the pages that leave the redo window.
    Leaving,
    CheckpointState,
    CheckpointDone,
    ReportedDamage,
    /// `db`: places that the disk refused to read lately.
    Unreadable,
    Threads,
    Autoinc,
    /// `db`: the last estimate of a table's size, and its statistics.
    Estimate,
    /// `txn`: held by a session that begins to wait for a lock, or gives up.
    LockWaits,
    /// `txn`: row and interval locks of a tree.
    LockManager,
    /// `txn`: owners of locks by transaction.
    LockHolders,
    /// `txn`: the locks that a transaction holds.
    OwnerHeld,
    /// `txn`: the token of a thread that waits for a row lock.
    RowLockToken,
    /// `txn`: gates by tree.
    Gates,
    /// `txn`: transactions that are open.
    OpenTransactions,
    PurgeQueue,
    ToRevert,
    OpenXid,
    /// `txn`: ids, states and snapshots.
    TableRoster,
    /// `txn`: ids below the horizon that are not committed.
    Exceptions,
    /// `wal`: batches that recovery has unpacked.
    LogUnpacked,
    /// `db`: the bell of idle workers.
    Bell,

    // The buffer pool.
    Shard,
    /// `buffer`: the changes of a frame.
    GatheredChanges,
    /// `buffer`: the dirty pages by age.
    DirtyPages,
    FreeFrames,
    /// `buffer`: the frames that are to be filled.
    ReadAhead,
    /// `buffer`: pages to be redone, in the order of the file.
    RedoOrder,
    /// `os`: memory that frames do not use.
    Slabs,
    PoolSize,
    Compression,
    BadPages,

    // The page store.
    StoreGrowth,
    StoreStream,
    StoreWriting,
    StoreState,
    StoreTail,
    StorePoison,

    // The log. An append, which is made under latches, takes the reservation only.
    LogElection,
    LogIo,
    RingLeader,
    RingReserve,
    RingCache,
    SegmentMaintain,
    SegmentSet,
    LogPositions,
    SegmentNotes,
    LogDurableEnd,
    LogCause,
    LogWaiter,

    // `cipher`: under the locks of all that is written and read.
    /// `cipher`: the key that is written under.
    CipherNewest,
    /// `cipher`: keys by their origin.
    CipherDerived,

    // Inspection of a stopped directory: it stands where files are.
    OverlayNames,
    OverlayLayer,
    Listener,
}

impl Rank {
    /// Ranks of which a thread may hold several. Their own order is kept elsewhere: of latches the
    /// parent before the child and the left before the right (`btree`).
    pub const fn nests(self) -> bool {
        matches!(self, Rank::Unranked | Rank::PageLatch)
    }
}

#[cfg(any(feature = "sim", debug_assertions))]
pub use held::{acquire, acquired, may_wait, released};

/// The thread is about to sleep for something that is no lock.
#[cfg(not(any(feature = "sim", debug_assertions)))]
#[inline(always)]
pub fn may_wait(_rank: Rank) {}

/// The ranks that this thread holds.
#[cfg(any(feature = "sim", debug_assertions))]
mod held {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Asserts that this thread may wait for a lock of this rank.
    pub fn acquire(rank: Rank) {
        check(rank, rank.nests());
    }

    /// The thread is about to sleep for something that is no lock.
    pub fn may_wait(rank: Rank) {
        check(rank, false);
    }

    fn check(rank: Rank, nests: bool) {
        if rank == Rank::Unranked {
            if !cfg!(test) {
                unreachable!("a lock of the engine has no rank");
            }
            return;
        }
        // A thread that ends has no list any more, and holds nothing.
        let last = HELD.try_with(|held| held.borrow().iter().max().copied());
        if let Ok(Some(last)) = last {
            assert!(
                last < rank || (nests && last == rank),
                "lock order: {rank:?} is wanted by a thread that holds {last:?}"
            );
        }
    }

    pub fn acquired(rank: Rank) {
        if rank != Rank::Unranked {
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
        }
    }

    pub fn released(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|r| *r == rank) {
                held.swap_remove(at);
            }
        });
    }
}

/// How each lock of the engine is made: with its place in the order of locks.
pub trait Ranked<T> {
    fn ranked(rank: Rank, value: T) -> Self;
}

#[cfg(all(test, any(feature = "sim", debug_assertions)))]
mod tests {
    use super::Rank;
    use crate::os::sync::{condition, Mutex, Ranked, RwLock};
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::time::Duration;

    /// What the check said about `step`, if it refused it.
    fn refusal(step: impl FnOnce()) -> Option<String> {
        let panic = catch_unwind(AssertUnwindSafe(step)).err()?;
        panic.downcast_ref::<String>().cloned()
    }

    #[test]
    fn a_lock_out_of_order_is_refused_and_names_both() {
        let early = Mutex::ranked(Rank::Ddl, ());
        let late = RwLock::ranked(Rank::StoreState, ());
        assert!(refusal(|| drop((early.lock(), late.read()))).is_none());
        let text = refusal(|| drop((late.write(), early.lock()))).expect("refused");
        assert!(text.contains("Ddl") && text.contains("StoreState"), "{text}");
        // The guards of the refused attempt are gone, and with them what the thread held.
        assert!(refusal(|| drop((early.lock(), late.write()))).is_none());
    }

    #[test]
    fn only_ranks_that_nest_are_taken_twice() {
        let latches = [RwLock::ranked(Rank::PageLatch, ()), RwLock::ranked(Rank::PageLatch, ())];
        assert!(refusal(|| drop((latches[0].read(), latches[1].read()))).is_none());
        let shards = [Mutex::ranked(Rank::Shard, ()), Mutex::ranked(Rank::Shard, ())];
        assert!(refusal(|| drop((shards[0].lock(), shards[1].lock()))).is_some());
    }

    #[test]
    fn a_try_may_come_out_of_order_and_counts_as_held() {
        let early = Mutex::ranked(Rank::Tables, ());
        let late = Mutex::ranked(Rank::Shard, ());
        let middle = Mutex::ranked(Rank::Gates, ());
        assert!(refusal(|| drop((late.lock(), early.try_lock()))).is_none());
        assert!(refusal(|| drop((late.try_lock(), middle.lock()))).is_some());
    }

    #[test]
    fn nobody_sleeps_for_a_row_lock_with_a_latch_held() {
        let (token, given) = (Mutex::ranked(Rank::RowLockToken, ()), condition(Rank::RowLockWait));
        let wait = || {
            given.wait_for(&mut token.lock(), Duration::from_millis(1));
        };
        assert!(refusal(wait).is_none());
        let latch = RwLock::ranked(Rank::PageLatch, ());
        let guard = latch.read();
        assert!(refusal(wait).is_some());
        drop(guard);
        assert!(refusal(wait).is_none());
    }
}
