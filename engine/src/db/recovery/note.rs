//! What a checkpoint carries besides the page map (rules M3): where the scan of the log starts,
//! which ids come next, and every transaction that is not simply committed.

use crate::base::codec::{put_bytes, put_u8, put_varint, Reader};
use crate::base::{formats, Lsn, PageId, Result, TreeId, TxnId};

const FORMAT: u8 = formats::CURRENT.checkpoint_note;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    Active = 0,
    Prepared = 1,
    Aborted = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenNote {
    pub id: TxnId,
    pub state: OpenState,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
    pub deletes: bool,
    pub xid: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeNote {
    pub txn: TxnId,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckpointNote {
    /// Where the scan of the log starts at open.
    pub scan_from: Lsn,
    /// The LSN that was durable when the superblock was written: a log that ends below is damaged.
    pub durable: Lsn,
    /// Page changes below it are contained in the page map.
    pub redo_from: Lsn,
    pub catalog_root: PageId,
    pub next_page: u64,
    pub next_tree: u64,
    pub next_table: u64,
    pub next_txn: u64,
    pub open: Vec<OpenNote>,
    pub purge: Vec<PurgeNote>,
    pub old_versions_root: PageId,
    /// Versions needed below it are in the tree of old versions.
    pub moved_to: Lsn,
    /// (table id, next AUTO_INCREMENT value)
    pub counters: Vec<(u64, u64)>,
    /// Pages that were given up, with their trees (rules S8).
    pub bad_pages: Vec<(PageId, TreeId)>,
    /// State of the binlog, see `binlog::record`; empty in a new engine.
    pub binlog: Vec<u8>,
}

impl CheckpointNote {
    /// The lowest position of the log that a recovery from this checkpoint may read.
    pub fn needs_from(&self) -> Lsn {
        let open = self.open.iter().map(|open| open.first_lsn);
        let purge = self.purge.iter().map(|item| item.first_lsn);
        let in_log = open.chain(purge).map(|lsn| lsn.max(self.moved_to));
        in_log.fold(self.scan_from, Lsn::min)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        put_u8(&mut out, FORMAT);
        for v in [self.scan_from.0, self.durable.0, self.redo_from.0, self.catalog_root.0] {
            put_varint(&mut out, v);
        }
        for v in [self.next_page, self.next_tree, self.next_table, self.next_txn] {
            put_varint(&mut out, v);
        }
        put_varint(&mut out, self.open.len() as u64);
        for open in &self.open {
            put_open(&mut out, open);
        }
        put_varint(&mut out, self.purge.len() as u64);
        for item in &self.purge {
            for v in [item.txn.0, item.first_lsn.0, item.last_lsn.0] {
                put_varint(&mut out, v);
            }
        }
        put_varint(&mut out, self.counters.len() as u64);
        for (table, next) in &self.counters {
            put_varint(&mut out, *table);
            put_varint(&mut out, *next);
        }
        put_varint(&mut out, self.old_versions_root.0);
        put_varint(&mut out, self.moved_to.0);
        put_varint(&mut out, self.bad_pages.len() as u64);
        for (page, tree) in &self.bad_pages {
            put_varint(&mut out, page.0);
            put_varint(&mut out, u64::from(tree.0));
        }
        put_bytes(&mut out, &self.binlog);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<CheckpointNote> {
        let mut r = Reader::new(bytes, "checkpoint note");
        if r.u8()? != FORMAT {
            return Err(r.fail("unknown format"));
        }
        let mut note = CheckpointNote {
            scan_from: Lsn(r.varint()?),
            durable: Lsn(r.varint()?),
            redo_from: Lsn(r.varint()?),
            catalog_root: PageId(r.varint()?),
            next_page: r.varint()?,
            next_tree: r.varint()?,
            next_table: r.varint()?,
            next_txn: r.varint()?,
            ..CheckpointNote::default()
        };
        for _ in 0..r.varint()? {
            note.open.push(read_open(&mut r)?);
        }
        for _ in 0..r.varint()? {
            let txn = TxnId(r.varint()?);
            let (first_lsn, last_lsn) = (Lsn(r.varint()?), Lsn(r.varint()?));
            note.purge.push(PurgeNote { txn, first_lsn, last_lsn });
        }
        for _ in 0..r.varint()? {
            note.counters.push((r.varint()?, r.varint()?));
        }
        note.old_versions_root = PageId(r.varint()?);
        note.moved_to = Lsn(r.varint()?);
        for _ in 0..r.varint()? {
            let page = PageId(r.varint()?);
            let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id"))?;
            note.bad_pages.push((page, TreeId(tree)));
        }
        note.binlog = r.bytes()?.to_vec();
        r.finish()?;
        Ok(note)
    }
}

fn put_open(out: &mut Vec<u8>, open: &OpenNote) {
    put_varint(out, open.id.0);
    put_u8(out, open.state as u8);
    put_varint(out, open.first_lsn.0);
    put_varint(out, open.last_lsn.0);
    put_u8(out, u8::from(open.deletes) | u8::from(open.xid.is_some()) << 1);
    put_bytes(out, open.xid.as_deref().unwrap_or(&[]));
}

fn read_open(r: &mut Reader<'_>) -> Result<OpenNote> {
    let id = TxnId(r.varint()?);
    let state = match r.u8()? {
        0 => OpenState::Active,
        1 => OpenState::Prepared,
        2 => OpenState::Aborted,
        _ => return Err(r.fail("transaction state")),
    };
    let (first_lsn, last_lsn) = (Lsn(r.varint()?), Lsn(r.varint()?));
    let flags = r.u8()?;
    let xid = r.bytes()?;
    let xid = (flags & 2 != 0).then(|| xid.to_vec());
    Ok(OpenNote { id, state, first_lsn, last_lsn, deletes: flags & 1 != 0, xid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_truncation_is_refused() {
        let open = |id, xid: Option<&[u8]>| OpenNote {
            id: TxnId(id),
            state: OpenState::Prepared,
            first_lsn: Lsn(5),
            last_lsn: Lsn(1 << 50),
            deletes: xid.is_some(),
            xid: xid.map(<[u8]>::to_vec),
        };
        let note = CheckpointNote {
            scan_from: Lsn(1),
            durable: Lsn(2),
            redo_from: Lsn(3),
            catalog_root: PageId(1),
            next_page: 9,
            next_tree: 17,
            next_table: 3,
            next_txn: 77,
            open: vec![open(1, None), open(2, Some(b"xid"))],
            purge: vec![PurgeNote { txn: TxnId(4), first_lsn: Lsn(6), last_lsn: Lsn(8) }],
            counters: vec![(1, 100)],
            old_versions_root: PageId(2),
            moved_to: Lsn(7),
            bad_pages: vec![(PageId(70), TreeId(16))],
            binlog: b"binlog".to_vec(),
        };
        let bytes = note.encode();
        assert_eq!(CheckpointNote::decode(&bytes).unwrap(), note);
        for cut in 0..bytes.len() {
            assert!(CheckpointNote::decode(&bytes[..cut]).is_err());
        }
    }
}
