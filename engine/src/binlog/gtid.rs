//! Global transaction ids.

/// Names an event group in the binlogs of all servers of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gtid {
    pub domain: u32,
    pub server: u32,
    pub sequence: u64,
}
