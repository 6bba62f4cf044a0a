//! Room `db`.
