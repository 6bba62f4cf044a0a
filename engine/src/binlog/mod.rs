//! Room `binlog`: empty. It is kept for the binlog in the log, which is not built yet.
