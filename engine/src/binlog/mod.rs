//! Room `binlog`.
