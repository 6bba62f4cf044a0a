use crate::base::{EntryHeader, Lsn, PageId, TreeId, TxnId};
use crate::catalog::{CompressionDef, IndexDef, TableDef};
use crate::db::recovery::{Analysis, CheckpointNote, OpenNote, OpenState, PurgeNote};
use crate::os::fuzz::fuzz;
use crate::txn::Note;
use crate::wal::RecordRef;

fn note() -> CheckpointNote {
    let open = OpenNote {
        id: TxnId(70),
        state: OpenState::Prepared,
        first_lsn: Lsn(5),
        last_lsn: Lsn(1 << 40),
        deletes: true,
        xid: Some(b"xid".to_vec()),
    };
    CheckpointNote {
        scan_from: Lsn(4096),
        durable: Lsn(9000),
        next_txn: 77,
        open: vec![open],
        purge: vec![PurgeNote { txn: TxnId(4), first_lsn: Lsn(6), last_lsn: Lsn(8) }],
        counters: vec![(1, 100), (2, u64::MAX)],
        bad_pages: vec![(PageId(5), TreeId(16))],
        ..CheckpointNote::default()
    }
}

#[test]
fn fuzz_checkpoint_notes() {
    fuzz("checkpoint notes", &[note().encode()], &mut |bytes| {
        if let Ok(note) = CheckpointNote::decode(bytes) {
            note.needs_from();
            let _ = Analysis::new(&note);
        }
    });
}

#[test]
fn fuzz_catalog_payloads() {
    let index = |n| IndexDef { tree: TreeId(n), root: PageId(u64::from(n) * 7), unique: true };
    let def = TableDef {
        is_encrypted: false,
        id: 300,
        indexes: vec![index(16), index(17)],
        long_values: index(18),
        autoinc_start: 5,
        compression: CompressionDef { method: 2, level: 3 },
        definition: b"columns".to_vec(),
    };
    fuzz("catalog payloads", &[def.encode()], &mut |bytes| {
        let _ = TableDef::decode(bytes);
    });
}

#[test]
fn fuzz_entries_and_long_values() {
    let mut entry = Vec::new();
    EntryHeader { flags: 2, txn: TxnId(8), lsn: Lsn(99) }.put(&mut entry);
    entry.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 200, 100]);
    // Two parts out of line, and a rest of five bytes.
    let split = [
        &[2, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 200, 100, 4, 2][..],
        &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 200, 100, 1, 2, 3, 4, 5],
    ];
    fuzz("entries", &[entry, split.concat()], &mut |bytes| {
        if let Ok((_, payload)) = EntryHeader::split(bytes) {
            crate::db::rows::fuzz_stored(payload);
        }
        crate::db::rows::fuzz_stored(bytes);
    });
}

/// Log records as recovery's first pass sees them, with checks that held.
#[test]
fn fuzz_log_records() {
    let version = Note {
        txn: TxnId(9),
        previous_lsn: Lsn(4200),
        key: b"key",
        replaced: Some(&[0; 20]),
        deletes: false,
        loads: false,
    };
    let load = Note { key: b"", replaced: None, loads: true, ..version }.encode();
    let note = version.encode();
    let mut tree = vec![note.len() as u8];
    tree.extend_from_slice(&note);
    tree.extend_from_slice(&[16, 1, 7, 2, 9, 0, 0]);
    let mut loading = vec![load.len() as u8];
    loading.extend_from_slice(&load);
    loading.extend_from_slice(&[16, 0, 0]);
    let records =
        [(1, tree), (1, loading), (2, vec![9]), (4, b"\x09xid".to_vec()), (6, vec![1, 5])];
    let more = [(7, vec![2, 16, 17]), (16, vec![7, 16]), (5, vec![9]), (3, vec![9])];
    let corpus: Vec<Vec<u8>> = records
        .iter()
        .chain(&more)
        .map(|(kind, payload)| [&[*kind][..], payload].concat())
        .collect();
    let mut analysis = Analysis::new(&CheckpointNote::default()).unwrap();
    let mut seen = 0u64;
    fuzz("log records", &corpus, &mut |bytes| {
        seen += 1;
        if seen % 1000 == 0 {
            analysis = Analysis::new(&CheckpointNote::default()).unwrap();
        }
        let Some((&kind, payload)) = bytes.split_first() else { return };
        let kind = kind % 32;
        let record = RecordRef { kind, payload };
        let _ = analysis.visit(Lsn(4096 + seen), record);
        let _ = crate::db::inspect::fuzz_describe(Lsn(4096), record);
        let _ = Note::decode(payload);
    });
}
