//! Room `btree`.
