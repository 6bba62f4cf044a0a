//! Bugs on purpose, and how many seeds find them at the latest. `make sim KIND=planted` hunts for
//! all.

mod runner;

use sluice_sim::{find_planted, Bug};

/// So many seeds at most find each bug. Nearly every one is found by at least one of 40 seeds, so that
/// a change of engine or world makes all of them miss once in 150 times at most.
const SEEDS: u64 = 200;

#[track_caller]
fn is_found(bug: Bug) {
    let found = find_planted(bug, 0, SEEDS);
    let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} was not found by {SEEDS} seeds"));
    println!("{bug:?}: seed {seed}: {}", why.lines().next().unwrap_or_default());
}

fn commit_without_flush() {
    is_found(Bug::CommitWithoutFlush);
}

fn log_write_not_durable() {
    is_found(Bug::LogWriteNotDurable);
}

fn checkpoint_without_store_sync() {
    is_found(Bug::CheckpointWithoutStoreSync);
}

fn checkpoint_without_log_flush() {
    is_found(Bug::CheckpointWithoutLogFlush);
}

fn map_changes_not_synced() {
    is_found(Bug::MapChangesNotSynced);
}

fn map_leaf_forgets_changes() {
    is_found(Bug::MapLeafForgetsChanges);
}

fn superblock_not_synced() {
    is_found(Bug::SuperblockNotSynced);
}

fn purge_ignores_snapshots() {
    is_found(Bug::PurgeIgnoresSnapshots);
}

fn purge_pops_another() {
    is_found(Bug::PurgePopsAnother);
}

fn lost_delete_mark() {
    is_found(Bug::LostDeleteMark);
}

fn purged_too_far() {
    is_found(Bug::PurgedTooFar);
}

fn horizon_too_high() {
    is_found(Bug::HorizonTooHigh);
}

fn redo_point_too_high() {
    is_found(Bug::RedoPointTooHigh);
}

fn store_segment_freed_early() {
    is_found(Bug::StoreSegmentFreedEarly);
}

fn punched_too_early() {
    is_found(Bug::PunchedTooEarly);
}

fn hole_taken_for_room() {
    is_found(Bug::HoleTakenForRoom);
}

fn log_segment_freed_early() {
    is_found(Bug::LogSegmentFreedEarly);
}

fn moved_log_freed_early() {
    is_found(Bug::MovedLogFreedEarly);
}

fn own_log_taken_for_moved() {
    is_found(Bug::OwnLogTakenForMoved);
}

fn sweep_ignores_snapshots() {
    is_found(Bug::SweepIgnoresSnapshots);
}

fn drop_trees_not_logged() {
    is_found(Bug::DropTreesNotLogged);
}

fn pages_forgotten_early() {
    is_found(Bug::PagesForgottenEarly);
}

fn interval_not_checked() {
    is_found(Bug::IntervalNotChecked);
}

fn checkpoint_forgets_open() {
    is_found(Bug::CheckpointForgetsOpen);
}

fn dirty_too_late() {
    is_found(Bug::DirtyTooLate);
}

fn owed_not_in_redo_point() {
    is_found(Bug::OwedNotInRedoPoint);
}

fn lives_not_kept_apart() {
    is_found(Bug::LivesNotKeptApart);
}

fn no_handle_poisons() {
    is_found(Bug::NoHandlePoisons);
}

fn prepared_ignored() {
    is_found(Bug::PreparedIgnored);
}

fn drop_not_in_memory() {
    is_found(Bug::DropNotInMemory);
}

fn unread_forgets_redo() {
    is_found(Bug::UnreadForgetsRedo);
}

fn half_group_written() {
    is_found(Bug::HalfGroupWritten);
}

fn packed_taken_for_plain() {
    is_found(Bug::PackedTakenForPlain);
}

fn batch_of_earlier_life_taken() {
    is_found(Bug::BatchOfEarlierLifeTaken);
}

fn equal_key_not_checked() {
    is_found(Bug::EqualKeyNotChecked);
}

fn undone_lets_go() {
    is_found(Bug::UndoneLetsGo);
}

fn owed_too_late() {
    is_found(Bug::OwedTooLate);
}

fn delta_lacks_older() {
    is_found(Bug::DeltaLacksOlder);
}

fn delta_taken_for_all() {
    is_found(Bug::DeltaTakenForAll);
}

fn delta_left_out() {
    is_found(Bug::DeltaLeftOut);
}

fn delta_not_flushed() {
    is_found(Bug::DeltaNotFlushed);
}

fn dirty_again_unlisted() {
    is_found(Bug::DirtyAgainUnlisted);
}

fn paid_before_dirty() {
    is_found(Bug::PaidBeforeDirty);
}

fn older_image_pays() {
    is_found(Bug::OlderImagePays);
}

fn image_taken_for_all() {
    is_found(Bug::ImageTakenForAll);
}

fn record_without_room_lost() {
    is_found(Bug::RecordWithoutRoomLost);
}

fn failed_image_keeps_list() {
    is_found(Bug::FailedImageKeepsList);
}

fn awaited_taken_for_page() {
    is_found(Bug::AwaitedTakenForPage);
}

fn alter_not_flushed() {
    is_found(Bug::AlterNotFlushed);
}

fn sorted_run_forgotten() {
    is_found(Bug::SortedRunForgotten);
}

fn copy_not_flushed() {
    is_found(Bug::CopyNotFlushed);
}

fn load_not_taken_back() {
    is_found(Bug::LoadNotTakenBack);
}

fn backup_segments_reused() {
    is_found(Bug::BackupSegmentsReused);
}

fn backup_log_freed_early() {
    is_found(Bug::BackupLogFreedEarly);
}

fn increment_by_lsn() {
    is_found(Bug::IncrementByLsn);
}

fn kept_value_deleted() {
    is_found(Bug::KeptValueDeleted);
}

fn image_not_encrypted() {
    is_found(Bug::ImageNotEncrypted);
}

fn key_given_up_early() {
    is_found(Bug::KeyGivenUpEarly);
}

fn taken_for_plain() {
    is_found(Bug::TakenForPlain);
}

fn named_taken_for_all() {
    is_found(Bug::NamedTakenForAll);
}

fn promise_not_written() {
    is_found(Bug::PromiseNotWritten);
}

fn main() {
    runner::run(tests![
        commit_without_flush,
        log_write_not_durable,
        checkpoint_without_store_sync,
        checkpoint_without_log_flush,
        map_changes_not_synced,
        map_leaf_forgets_changes,
        superblock_not_synced,
        purge_ignores_snapshots,
        purge_pops_another,
        lost_delete_mark,
        purged_too_far,
        horizon_too_high,
        redo_point_too_high,
        store_segment_freed_early,
        punched_too_early,
        hole_taken_for_room,
        log_segment_freed_early,
        moved_log_freed_early,
        own_log_taken_for_moved,
        sweep_ignores_snapshots,
        drop_trees_not_logged,
        pages_forgotten_early,
        interval_not_checked,
        checkpoint_forgets_open,
        dirty_too_late,
        owed_not_in_redo_point,
        lives_not_kept_apart,
        no_handle_poisons,
        prepared_ignored,
        drop_not_in_memory,
        unread_forgets_redo,
        half_group_written,
        packed_taken_for_plain,
        batch_of_earlier_life_taken,
        equal_key_not_checked,
        undone_lets_go,
        owed_too_late,
        delta_lacks_older,
        delta_taken_for_all,
        delta_left_out,
        delta_not_flushed,
        dirty_again_unlisted,
        paid_before_dirty,
        older_image_pays,
        image_taken_for_all,
        record_without_room_lost,
        failed_image_keeps_list,
        awaited_taken_for_page,
        alter_not_flushed,
        sorted_run_forgotten,
        copy_not_flushed,
        load_not_taken_back,
        backup_segments_reused,
        backup_log_freed_early,
        increment_by_lsn,
        kept_value_deleted,
        image_not_encrypted,
        key_given_up_early,
        taken_for_plain,
        named_taken_for_all,
        promise_not_written,
    ])
}
