//! The log record of one tree operation: note, then page changes, then freed pages.
//!
//! ```text
//! note length varint, note        opaque bytes of the transaction room
//! tree id varint
//! count varint, (page varint, length varint, change)*
//! count varint, (freed page varint)*
//! ```

use super::apply::{apply, change_creates_page, page_lsn};
use super::env::Env;
use crate::base::codec::{put_varint, Reader};
use crate::base::limits::RECORD_BYTES_MAX;
use crate::base::{PageId, Result, TreeId};
use crate::buffer::WriteGuard;
use crate::wal::Appended;
use std::cell::RefCell;

/// Log record kind of every record of this room.
pub const RECORD_TREE: u8 = 1;

/// A decoded record. Its lists were verified: iterating them cannot fail.
pub struct TreeRecord<'a> {
    pub note: &'a [u8],
    pub tree: TreeId,
    changes: (u64, Reader<'a>),
    freed: (u64, Reader<'a>),
}

impl<'a> TreeRecord<'a> {
    /// The pages that the record changes, each with its change.
    pub fn changes(&self) -> impl Iterator<Item = (PageId, &'a [u8])> {
        let (count, mut r) = self.changes.clone();
        (0..count).map_while(move |_| Some((PageId(r.varint().ok()?), r.bytes().ok()?)))
    }

    /// The pages that the record frees: redo calls `Pool::free` for them.
    pub fn freed(&self) -> impl Iterator<Item = PageId> + 'a {
        let (count, mut r) = self.freed.clone();
        (0..count).map_while(move |_| r.varint().ok().map(PageId))
    }
}

pub fn decode_record(payload: &[u8]) -> Result<TreeRecord<'_>> {
    let mut r = Reader::new(payload, "tree record");
    let note = r.bytes()?;
    let tree = r.varint()?;
    let tree = TreeId(u32::try_from(tree).map_err(|_| r.fail("tree id"))?);
    let changes = (r.varint()?, r.clone());
    for _ in 0..changes.0 {
        page_id(&mut r)?;
        r.bytes()?;
    }
    let freed = (r.varint()?, r.clone());
    for _ in 0..freed.0 {
        page_id(&mut r)?;
    }
    r.finish()?;
    Ok(TreeRecord { note, tree, changes, freed })
}

fn page_id(r: &mut Reader<'_>) -> Result<PageId> {
    match r.varint()? {
        0 => Err(r.fail("page id zero")),
        id => Ok(PageId(id)),
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Appends one record for all pages and applies it to them, under their exclusive latches.
pub(super) fn log_and_apply(
    env: &Env,
    tree: TreeId,
    note: &[u8],
    pages: &mut [(&mut WriteGuard, &[u8])],
    freed: &mut [&mut WriteGuard],
) -> Appended {
    let appended = SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        put_varint(scratch, note.len() as u64);
        let head = scratch.len();
        put_varint(scratch, u64::from(tree.0));
        put_varint(scratch, pages.len() as u64);
        // Nearly every record has one change, which goes to the log from where it is.
        let alone = match pages {
            [(_, change)] => *change,
            _ => &[],
        };
        for (guard, change) in pages.iter() {
            put_varint(scratch, guard.page().0);
            put_varint(scratch, change.len() as u64);
            if alone.is_empty() {
                scratch.extend_from_slice(change);
            }
        }
        let end_of_pages = scratch.len();
        put_varint(scratch, freed.len() as u64);
        for guard in freed.iter() {
            put_varint(scratch, guard.page().0);
        }
        let bytes = scratch.len() + note.len() + alone.len();
        assert!(bytes <= RECORD_BYTES_MAX, "a record over its limit");
        let log_end = env.wal.end();
        pages.iter_mut().for_each(|(guard, _)| guard.will_change(log_end));
        freed.iter_mut().for_each(|guard| guard.will_free(log_end));
        let (before_note, after_note) = scratch.split_at(head);
        let (changes, end) = after_note.split_at(end_of_pages - head);
        env.wal.append(RECORD_TREE, &[before_note, note, changes, alone, end])
    });
    for (guard, change) in pages.iter_mut() {
        let page = guard.page();
        assert!(
            page_lsn(guard.bytes_mut()) <= appended.lsn,
            "changes come in the order of the log"
        );
        if let Err(e) = apply(guard.bytes_mut(), page, change, appended.lsn) {
            // The log and the page have parted: nothing sensible can follow.
            panic!("a planned change does not apply: {e}");
        }
        env.pool.gather(guard, appended.lsn, change, change_creates_page(change));
    }
    appended
}
