//! From the copy of a directory to one for a server of its own.

use crate::base::Result;
use crate::db::{Config, Encryption, Engine, Geometry, Host};
use crate::os::Os;
use crate::store::StoreFiles;
use std::path::Path;
use std::sync::Arc;

/// XIDs that the server gives to its own two-phase commits have format 1, a global part that begins like
/// this, and no branch part.
const SERVER_XID: &[u8] = b"MySQLXid";

/// What [`settle`] has done.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// Tables that are there.
    pub tables: Vec<String>,
    /// Tables that nobody wanted to keep.
    pub dropped: Vec<String>,
    /// Transactions that waited for a binlog which is not part of the copy.
    pub rolled_back: usize,
    /// XA transactions of users, which stay prepared.
    pub prepared: usize,
}

/// The id of the key that a directory is, or was, encrypted under.
pub fn key_id(os: &dyn Os, dir: &Path) -> Option<u32> {
    StoreFiles::key_of(os, dir).map(|key| key.id)
}

/// Recovers the engine in `dir` and parts it from the binlog of the server that it was copied from: what
/// that binlog does not have up to the copy's end is rolled back. Drops the tables that `keeps` does not
/// want. An encrypted copy needs its keys. Ends with a clean shutdown.
pub fn settle(
    os: Arc<dyn Os>,
    dir: &Path,
    geometry: Geometry,
    host: Arc<dyn Host>,
    encryption: Option<Encryption>,
    keeps: &dyn Fn(&str) -> bool,
) -> Result<Settled> {
    let config = Config { background: false, encryption, ..Config::new(dir) };
    let engine = Engine::open_with(os, config, geometry, host)?;
    let mut settled = Settled::default();
    for xid in engine.prepared() {
        match is_of_server(&xid) {
            true => {
                engine.rollback_prepared(&xid)?;
                settled.rolled_back += 1;
            }
            false => settled.prepared += 1,
        }
    }
    engine.binlog().part_from_files()?;
    for name in engine.table_names() {
        match keeps(&name) {
            true => settled.tables.push(name),
            false => {
                engine.drop_table(&name)?;
                settled.dropped.push(name);
            }
        }
    }
    engine.shutdown()?;
    Ok(settled)
}

/// The bytes are those of the log: format, both lengths, both parts.
fn is_of_server(xid: &[u8]) -> bool {
    let Some(([_, branch_bytes], name)) =
        xid.strip_prefix(&1u64.to_le_bytes()).and_then(|rest| rest.split_first_chunk::<2>())
    else {
        return false;
    };
    *branch_bytes == 0 && name.starts_with(SERVER_XID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_the_server_are_known_by_their_xid() {
        let xid = |format: u64, lengths: [u8; 2], name: &[u8]| {
            is_of_server(&[&format.to_le_bytes()[..], &lengths, name].concat())
        };
        assert!(xid(1, [24, 0], b"MySQLXid\x01\0\0\0\0\0\0\0\x17\0\0\0\0\0\0\0"));
        assert!(!xid(1, [3, 0], b"abc"));
        assert!(!xid(2, [24, 0], b"MySQLXid"));
        assert!(!xid(1, [8, 1], b"MySQLXidb"));
        assert!(!is_of_server(b""));
    }
}
