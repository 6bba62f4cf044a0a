//! Room `txn`.
