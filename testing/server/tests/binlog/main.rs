//! The binlog in the log, on real servers: kill -9 with the file's tail lost as in a power cut, the
//! switch and rotation under load, wrong starts, replicas. docs/binlog.md has a table of the cases.
//!
//! `cargo test --release --workspace --test binlog [NAME]`; with `-- --include-ignored`
//! also those that fill a disk.

mod case;
mod disk_full;
mod files;
mod load;
mod lost;
mod recovery;
mod replica;
mod starts;
mod statements;
mod switch;
