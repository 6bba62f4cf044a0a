//! Room `catalog`.
