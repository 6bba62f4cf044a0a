//! Bytes that are written for a tree, counted where they are made. A record of the log costs one
//! relaxed addition, to a line of the processor's cache that nothing else is in.

use crate::wal::Appended;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
#[repr(align(64))]
pub struct TreeBytes {
    logged: AtomicU64,
    /// The part of `logged` that a [`Builder`](super::Builder) made.
    built: AtomicU64,
    sorted: AtomicU64,
}

/// Bytes of a tree since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeBytesNow {
    /// Records of its changes, as they were appended.
    pub changes: u64,
    /// Records of its pages that a builder made.
    pub built: u64,
    /// Temporary files in which its entries were sorted.
    pub sorted: u64,
}

impl TreeBytes {
    pub(super) fn logged(&self, record: Appended) {
        self.logged.fetch_add(record.end.0 - record.lsn.0, Relaxed);
    }

    /// Of a record that was counted as logged.
    pub(super) fn built(&self, record: Appended) {
        self.built.fetch_add(record.end.0 - record.lsn.0, Relaxed);
    }

    /// A temporary file of its entries grew by so much.
    pub fn sorted(&self, bytes: u64) {
        self.sorted.fetch_add(bytes, Relaxed);
    }

    pub fn now(&self) -> TreeBytesNow {
        // A record is counted as logged first.
        let built = self.built.load(Relaxed);
        let changes = self.logged.load(Relaxed).saturating_sub(built);
        TreeBytesNow { changes, built, sorted: self.sorted.load(Relaxed) }
    }
}
