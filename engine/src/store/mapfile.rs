//! The files of the persisted page map: their names, and the log of changes.
//!
//! ```text
//! map-<g>         the snapshot: header block, leaves back to back, directory of the leaves
//! mapchanges-<g>  one batch a checkpoint, each begins at a block: header, note, sums, changes
//! ```
//! The superblock names the directory (place, length, checksum), the exact end of the change log
//! and the checksum chained over its batches; what lies after that end is ignored. The sums of
//! the first batch are those of the whole map, later ones have the sums that changed.

use super::blocks::read_range;
use super::entry::{put_entry, take_entry, MapEntry, PAGE_ID_MAX};
use super::map::PageMap;
use super::sums::Sums;
use super::superblock::{seed_of, Superblock};
use crate::base::checksum::checksum;
use crate::base::codec::{put_bytes, put_u32, put_u64, put_varint, Reader};
use crate::base::{Error, PageId, Result, BLOCK_BYTES};
use crate::os::planted::{self, Bug};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"SlMC");
/// Magic, checksum, body bytes.
const BATCH_HEADER_BYTES: usize = 16;
const SNAPSHOT_PREFIX: &str = "map-";
const CHANGES_PREFIX: &str = "mapchanges-";

pub fn snapshot_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("{SNAPSHOT_PREFIX}{generation}"))
}

pub fn changes_path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("{CHANGES_PREFIX}{generation}"))
}

/// Whether `path` is a map file of a generation other than `keep`.
pub fn is_obsolete(path: &Path, keep: u64) -> bool {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return false };
    let number = name.strip_prefix(CHANGES_PREFIX).or_else(|| name.strip_prefix(SNAPSHOT_PREFIX));
    number.and_then(|n| n.parse::<u64>().ok()).is_some_and(|g| g != keep)
}

/// Creates a file, in place of one that an attempt without success may have left.
pub fn create_file(os: &dyn Os, path: &Path) -> Result<Arc<dyn File>> {
    if os.exists(path)? {
        os.remove(path)?;
    }
    os.open(path, OpenMode { create: true, direct: true })
}

/// The change log of one map generation, at its end.
#[derive(Clone)]
pub struct ChangeLog {
    file: Arc<dyn File>,
    end: u64,
    chain: u32,
    last_batch_at: u64,
    reserved: u64,
}

impl ChangeLog {
    pub fn new(file: Arc<dyn File>, seed: u32, generation: u64) -> ChangeLog {
        let chain = seed_of(!seed, generation);
        ChangeLog { file, end: 0, chain, last_batch_at: 0, reserved: 0 }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn chain(&self) -> u32 {
        self.chain
    }

    pub fn last_batch_at(&self) -> u64 {
        self.last_batch_at
    }

    /// Reserves disk space after the end, so that a checkpoint can free space on a full disk.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        if self.reserved < self.end + bytes / 2 {
            self.file.allocate(self.end + bytes)?;
            self.reserved = self.end + bytes;
        }
        Ok(())
    }

    /// Gives back the disk space that is reserved after the end.
    pub fn give_back(&mut self) -> Result<()> {
        self.file.set_len(self.end)?;
        self.reserved = self.end;
        Ok(())
    }

    /// Appends and syncs a batch. Until a superblock names the new end it does not exist: the
    /// answer is the log with it, `self` stays without.
    pub fn append(
        &self,
        note: &[u8],
        sums: &Sums,
        changes: &[(PageId, MapEntry)],
    ) -> Result<ChangeLog> {
        let body = encode_batch(note, sums, changes);
        let batch_bytes = BATCH_HEADER_BYTES + body.len();
        let mut buffer = AlignedBuf::new(batch_bytes);
        let mut head = Vec::with_capacity(BATCH_HEADER_BYTES);
        put_u32(&mut head, BATCH_MAGIC);
        let chain = checksum(checksum(self.chain, &(body.len() as u64).to_le_bytes()), &body);
        put_u32(&mut head, chain);
        put_u64(&mut head, body.len() as u64);
        buffer[..BATCH_HEADER_BYTES].copy_from_slice(&head);
        buffer[BATCH_HEADER_BYTES..batch_bytes].copy_from_slice(&body);
        assert_eq!(self.end % BLOCK_BYTES as u64, 0);
        self.file.write_at(&buffer, self.end)?;
        if !planted::is(Bug::MapChangesNotSynced) {
            self.file.sync()?;
        }
        let end = self.end + buffer.len() as u64;
        Ok(ChangeLog { end, chain, last_batch_at: self.end, ..self.clone() })
    }

    /// Applies all batches up to the end that the superblock names; answers the last note and the
    /// sums of the map.
    pub fn load(&mut self, sb: &Superblock, map: &mut PageMap) -> Result<(Vec<u8>, Sums)> {
        let (mut note, mut sums) = (Vec::new(), Sums::default());
        while self.end < sb.changes_end {
            let head = read_range(&*self.file, self.end, BATCH_HEADER_BYTES as u64)?;
            let mut r = Reader::new(&head, "map change log");
            let (magic, check, body_bytes) = (r.u32()?, r.u32()?, r.u64()?);
            let left = (sb.changes_end - self.end).saturating_sub(BATCH_HEADER_BYTES as u64);
            if magic != BATCH_MAGIC || body_bytes > left {
                return Err(self.damaged());
            }
            let body = read_range(&*self.file, self.end + BATCH_HEADER_BYTES as u64, body_bytes)?;
            let chain = checksum(checksum(self.chain, &body_bytes.to_le_bytes()), &body);
            if chain != check {
                return Err(self.damaged());
            }
            note = apply_batch(&body, map, &mut sums, sb.max_page)?;
            let batch_bytes = BATCH_HEADER_BYTES as u64 + body_bytes;
            self.last_batch_at = self.end;
            self.end += batch_bytes.next_multiple_of(BLOCK_BYTES as u64);
            self.chain = chain;
        }
        let named = (sb.changes_end, sb.changes_chain, sb.last_batch_at);
        if (self.end, self.chain, self.last_batch_at) != named {
            return Err(self.damaged());
        }
        Ok((note, sums))
    }

    fn damaged(&self) -> Error {
        let place = format!("{} offset {}", self.file.path().display(), self.end);
        Error::corrupt("batch of the map change log", place)
    }
}

pub(super) fn encode_batch(note: &[u8], sums: &Sums, changes: &[(PageId, MapEntry)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(note.len() + changes.len() * 24 + 32);
    put_bytes(&mut body, note);
    sums.encode(&mut body);
    let mut last = 0;
    for &(page, entry) in changes {
        assert!(page.0 >= last, "changes come in page order");
        put_varint(&mut body, (page.0 - last) << 1 | u64::from(!entry.is_none()));
        last = page.0;
        if !entry.is_none() {
            put_entry(&mut body, entry);
        }
    }
    body
}

/// No page lies above `max_page`: a damaged id must not make the map huge.
pub(super) fn apply_batch(
    body: &[u8],
    map: &mut PageMap,
    sums: &mut Sums,
    max_page: u64,
) -> Result<Vec<u8>> {
    let mut r = Reader::new(body, "batch of the map change log");
    let note = r.bytes()?.to_vec();
    sums.decode_onto(&mut r)?;
    let mut page = 0u64;
    while !r.is_empty() {
        let step = r.varint()?;
        page = page
            .checked_add(step >> 1)
            .filter(|&p| p <= max_page.min(PAGE_ID_MAX))
            .unwrap_or(u64::MAX);
        if page == u64::MAX {
            return Err(r.fail("page id out of range"));
        }
        let entry = if step & 1 == 1 { take_entry(&mut r)? } else { MapEntry::NONE };
        map.load_change(PageId(page), entry);
    }
    Ok(note)
}
