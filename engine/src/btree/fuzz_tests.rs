use super::apply::apply;
use super::*;
use crate::base::codec::{put_bytes, put_varint};
use crate::base::{Lsn, PageId, Payload, TreeId, TxnId, PAGE_BYTES};
use crate::os::fuzz::fuzz;

const PAGE: PageId = PageId(7);

fn init(level: u8, entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut change = Vec::new();
    codec::put_init(&mut change, TreeId(16), level, (b"a", Some(b"z")), entries.len());
    entries.iter().for_each(|(key, value)| codec::put_entry(&mut change, key, value));
    change
}

fn leaf() -> Vec<u8> {
    let value = [9; 40];
    let entries: [(&[u8], &[u8]); 4] =
        [(b"b", &value), (b"c1", &value[..20]), (b"c22", &value), (b"x", &value[..15])];
    let mut page = vec![0; PAGE_BYTES];
    apply(&mut page, PAGE, &init(0, &entries), Lsn(5)).unwrap();
    page
}

fn changes() -> Vec<Vec<u8>> {
    let child = 11u64.to_le_bytes();
    let mut all = vec![init(0, &[(b"b", &[1; 30])]), init(1, &[(b"", &child), (b"m", &child)])];
    let mut add = |build: &dyn Fn(&mut Vec<u8>)| {
        let mut change = Vec::new();
        build(&mut change);
        all.push(change);
    };
    add(&|out| codec::put_truncate(out, 2, b"d"));
    let version = Value::Version { flags: 3, txn: TxnId(3), payload: Payload(&[3], &[3; 14]) };
    add(&|out| codec::put_insert(out, 1, b"bb", &version));
    add(&|out| codec::put_insert(out, 4, b"y", &Value::Plain([3; 30][..].into())));
    add(&|out| codec::put_remove(out, 2));
    add(&|out| out.extend_from_slice(&[codec::PATCH, 1, 2, 3, 7, 7, 7]));
    add(&|out| out.extend_from_slice(&[codec::REMOVE_MANY, 0, 1, 1]));
    add(&|out| {
        out.extend_from_slice(&[codec::REPLACE, 0]);
        put_bytes(out, &[8; 50]);
    });
    all
}

/// What `apply` accepts leaves a sound page.
#[test]
fn fuzz_changes() {
    let pristine = leaf();
    let mut page = pristine.clone();
    let mut applied = 0u64;
    fuzz("page changes", &changes(), &mut |change| {
        let _ = describe_change(change);
        let before = page.clone();
        match apply(&mut page, PAGE, change, Lsn(9)) {
            Ok(()) => {
                check_page(&page).expect("apply made an unsound page");
                applied += 1;
            }
            Err(_) => assert!(change.first() == Some(&codec::REMOVE_MANY) || page == before),
        }
        if applied % 50 == 0 || check_page(&page).is_err() {
            page.clone_from(&pristine);
        }
    });
    assert!(applied > 100, "{applied}");
}

/// A page that passes the check can be used.
#[test]
fn fuzz_pages() {
    let mut sound = 0u64;
    let leaf = leaf();
    let front = leaf[..200].to_vec();
    let back = leaf[PAGE_BYTES - 400..].to_vec();
    let mut page = leaf.clone();
    fuzz("pages", &[front, back.clone()], &mut |bytes| {
        page.copy_from_slice(&leaf);
        let n = bytes.len().min(380);
        match bytes.len() <= 300 {
            true => page[..n].copy_from_slice(&bytes[..n]),
            false => page[PAGE_BYTES - n..].copy_from_slice(&bytes[..n]),
        }
        if check_page(&page).is_err() {
            return;
        }
        sound += 1;
        let view = view_page(&page).unwrap();
        let id = view.page;
        for change in changes() {
            let mut copy = page.clone();
            if apply(&mut copy, id, &change, Lsn(10)).is_ok() {
                check_page(&copy).expect("apply made an unsound page");
            }
        }
    });
    assert!(sound > 10, "{sound}");
}

#[test]
fn fuzz_tree_records() {
    let mut record = Vec::new();
    put_bytes(&mut record, b"note");
    put_varint(&mut record, 16);
    put_varint(&mut record, 2);
    for (page, change) in [7u64, 8].into_iter().zip(changes()) {
        put_varint(&mut record, page);
        put_bytes(&mut record, &change);
    }
    put_varint(&mut record, 1);
    put_varint(&mut record, 99);
    fuzz("tree records", &[record], &mut |bytes| {
        if let Ok(record) = decode_record(bytes) {
            assert!(record.changes().all(|(page, _)| page != PageId::ZERO));
            record.freed().for_each(drop);
        }
    });
}
