//! The list of all bugs on purpose: what the simulator must find. See `planted`.

/// A bug that a simulated run can ask for, and the environment of a program with the feature `planted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit is acknowledged without a flush of the log.
    CommitWithoutFlush,
    /// A log write of a commit is not made durable.
    LogWriteNotDurable,
    /// A checkpoint does not sync the pages that it names.
    CheckpointWithoutStoreSync,
    /// A checkpoint does not flush the log past the pages that it names (rules M2, step 3).
    CheckpointWithoutLogFlush,
    /// A leaf of the page map that leaves memory forgets what changed since the snapshot.
    MapLeafForgetsChanges,
    /// A superblock names map changes that are not synced.
    MapChangesNotSynced,
    /// The superblock is not synced before what only the older one needs is released.
    SuperblockNotSynced,
    /// A store segment is free when its last record is replaced, not after the checkpoint that
    /// stops naming it.
    StoreSegmentFreedEarly,
    /// A store segment becomes a hole while a slot of the superblock still names its records.
    PunchedTooEarly,
    /// A free segment that an earlier life left is written without being reserved: it may be a hole.
    HoleTakenForRoom,
    /// Log segments go as if nothing but redo needed them.
    LogSegmentFreedEarly,
    /// Log goes when its versions were moved, not when a checkpoint says so.
    MovedLogFreedEarly,
    /// Log that is left to those who wrote it counts as if its versions had been moved.
    OwnLogTakenForMoved,
    /// The sweep of moved versions believes that no snapshot needs any.
    SweepIgnoresSnapshots,
    /// Purge believes that nobody needs the delete marks of committed transactions.
    PurgeIgnoresSnapshots,
    /// A transaction at which another thread purges leaves the queue in place of the one that is done.
    PurgePopsAnother,
    /// A transaction with deletes is not handed to the purge.
    LostDeleteMark,
    /// The log says that the purge has come further than it has.
    PurgedTooFar,
    /// The horizon passes transactions that are rolled back but not reverted.
    HorizonTooHigh,
    /// The redo point is the log's end.
    RedoPointTooHigh,
    /// Pages of dropped trees are freed without a record that says so. (One that is only not
    /// flushed does no harm: the checkpoint that forgets the pages flushes it first.)
    DropTreesNotLogged,
    /// Pages of a table that is to be dropped are forgotten before the log has the drop.
    PagesForgottenEarly,
    /// Nobody looks at the intervals that others have locked.
    IntervalNotChecked,
    /// A checkpoint forgets the transactions that are open.
    CheckpointForgetsOpen,
    /// A page is marked dirty from after its record, not from before it.
    DirtyTooLate,
    /// The redo point does not count the pages whose redo is still owed.
    OwedNotInRedoPoint,
    /// Versions that were moved before their key was purged are in the chain of a later key: the mover
    /// does not end the chain, and a reader passes over nothing.
    LivesNotKeptApart,
    /// A full table of open files counts as a failed write of the log.
    NoHandlePoisons,
    /// Statements that replace a table do not wait for prepared transactions with changes in it.
    PreparedIgnored,
    /// A table is dropped, and stays in memory because the flush of that fails.
    DropNotInMemory,
    /// A page that cannot be read now is put aside, and the redo that it owes forgotten.
    UnreadForgetsRedo,
    /// A group of the log counts as written though the disk was full in the middle of it.
    HalfGroupWritten,
    /// A packed batch of the log is noted as a plain one.
    PackedTakenForPlain,
    /// A batch that a file of the log has from its earlier life is taken for one of this life.
    BatchOfEarlierLifeTaken,
    /// Nobody looks at an interval that begins with the key in question.
    EqualKeyNotChecked,
    /// A change that is undone before its transaction ends leaves the row unlocked.
    UndoneLetsGo,
    /// A page that changes while its copy is being written is not in the list of dirty pages.
    DirtyAgainUnlisted,
    /// A page that is evicted without an image owes its redo from its last change on, not its first.
    OwedTooLate,
    /// A delta has the changes since the delta before it only.
    DeltaLacksOlder,
    /// Recovery takes a delta for all changes of its page, also if images before it are not durable.
    DeltaTakenForAll,
    /// Recovery whose memory is full leaves deltas out that stand after what it has taken.
    DeltaLeftOut,
    /// A checkpoint flushes the log up to where it began, not past the deltas that it relies on.
    DeltaNotFlushed,
    /// A page is not owed any more before its frame is dirty.
    PaidBeforeDirty,
    /// An image with the first change that a page owes counts as one with all of them.
    OlderImagePays,
    /// The scan of recovery takes a page's image for all changes of the page.
    ImageTakenForAll,
    /// Redo passes over the record for which it made room.
    RecordWithoutRoomLost,
    /// After a failed write of its image a frame goes on with a list that lacks what the image held.
    FailedImageKeepsList,
    /// A frame that is entered ahead of a scan counts as one that has its page.
    AwaitedTakenForPage,
    /// An ALTER TABLE in place answers before its change of the catalog is durable.
    AlterNotFlushed,
    /// An index is built without one of the runs that were sorted.
    SortedRunForgotten,
    /// The rows of a copy are in the trees, and not durable, when the copy is said to be over.
    CopyNotFlushed,
    /// The record that begins the load of a tree does not say that it is one: what takes it back leaves the
    /// entries.
    LoadNotTakenBack,
    /// Segments of the store that a backup reads are reused before it ends.
    BackupSegmentsReused,
    /// The log that a backup is to copy goes as if there was none.
    BackupLogFreedEarly,
    /// An increment of a backup leaves out pages whose LSN has not changed, also if their place has.
    IncrementByLsn,
    /// A long value that a new version of its row takes over is deleted with the old version.
    KeptValueDeleted,
    /// The image of a page is written as it is, though encryption is on.
    ImageNotEncrypted,
    /// A key counts as not needed once no page is under it, before a checkpoint has named their new places.
    KeyGivenUpEarly,
    /// Trees of tables that must be encrypted are taken for those of other tables.
    TakenForPlain,
    /// What a life claims that has encrypted some tables only is believed by one that encrypts all.
    NamedTakenForAll,
    /// A table that must be encrypted is there before a checkpoint has told a start of it.
    PromiseNotWritten,
}

#[cfg(any(feature = "sim", feature = "planted"))]
impl Bug {
    pub const ALL: [Bug; 61] = [
        Bug::CommitWithoutFlush,
        Bug::LogWriteNotDurable,
        Bug::CheckpointWithoutStoreSync,
        Bug::CheckpointWithoutLogFlush,
        Bug::MapLeafForgetsChanges,
        Bug::MapChangesNotSynced,
        Bug::SuperblockNotSynced,
        Bug::StoreSegmentFreedEarly,
        Bug::PunchedTooEarly,
        Bug::HoleTakenForRoom,
        Bug::LogSegmentFreedEarly,
        Bug::MovedLogFreedEarly,
        Bug::OwnLogTakenForMoved,
        Bug::SweepIgnoresSnapshots,
        Bug::PurgeIgnoresSnapshots,
        Bug::PurgePopsAnother,
        Bug::LostDeleteMark,
        Bug::PurgedTooFar,
        Bug::HorizonTooHigh,
        Bug::RedoPointTooHigh,
        Bug::DropTreesNotLogged,
        Bug::PagesForgottenEarly,
        Bug::IntervalNotChecked,
        Bug::CheckpointForgetsOpen,
        Bug::DirtyTooLate,
        Bug::OwedNotInRedoPoint,
        Bug::LivesNotKeptApart,
        Bug::NoHandlePoisons,
        Bug::PreparedIgnored,
        Bug::DropNotInMemory,
        Bug::UnreadForgetsRedo,
        Bug::HalfGroupWritten,
        Bug::PackedTakenForPlain,
        Bug::BatchOfEarlierLifeTaken,
        Bug::EqualKeyNotChecked,
        Bug::UndoneLetsGo,
        Bug::DirtyAgainUnlisted,
        Bug::OwedTooLate,
        Bug::DeltaLacksOlder,
        Bug::DeltaTakenForAll,
        Bug::DeltaLeftOut,
        Bug::DeltaNotFlushed,
        Bug::PaidBeforeDirty,
        Bug::OlderImagePays,
        Bug::ImageTakenForAll,
        Bug::RecordWithoutRoomLost,
        Bug::FailedImageKeepsList,
        Bug::AwaitedTakenForPage,
        Bug::AlterNotFlushed,
        Bug::SortedRunForgotten,
        Bug::CopyNotFlushed,
        Bug::LoadNotTakenBack,
        Bug::BackupSegmentsReused,
        Bug::BackupLogFreedEarly,
        Bug::IncrementByLsn,
        Bug::KeptValueDeleted,
        Bug::ImageNotEncrypted,
        Bug::KeyGivenUpEarly,
        Bug::TakenForPlain,
        Bug::NamedTakenForAll,
        Bug::PromiseNotWritten,
    ];
}
