//! Room `wal`.
