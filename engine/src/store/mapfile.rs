//! The persisted page map: a snapshot in chunks of one map leaf each, and a log of changes.
//!
//! ```text
//! map-<g>         header block, then leaves back to back, then the directory of the leaves
//! mapchanges-<g>  one batch a checkpoint, each begins at a block: header, note, changes
//! ```
//! The superblock names the directory (place, length, checksum), the exact end of the change log
//! and the checksum chained over its batches; what lies behind that end is ignored. The directory
//! checks each leaf, so that leaves could be read one by one.

use super::map::{Entry, PageMap, LEAF_BITS, LEAF_PAGES, PAGE_ID_MAX};
use super::superblock::{Superblock, FORMAT_VERSION};
use crate::base::checksum::checksum;
use crate::base::codec::{put_bytes, put_u16, put_u32, put_u64, put_varint, Reader};
use crate::base::{Error, PageId, Result, BLOCK_BYTES};
use crate::os::planted::{self, Bug};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SNAPSHOT_MAGIC: u64 = u64::from_le_bytes(*b"SluiceMP");
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"SlMC");
/// Magic, checksum, body bytes.
const BATCH_HEADER_BYTES: usize = 16;
const WRITE_BYTES: usize = 1 << 20;
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

fn seed_of(seed: u32, generation: u64) -> u32 {
    checksum(seed, &generation.to_le_bytes())
}

fn put_entry(out: &mut Vec<u8>, entry: Entry) {
    let (packed, lsn, tree, check) = entry.parts();
    put_u64(out, packed);
    put_varint(out, lsn);
    put_varint(out, u64::from(tree));
    put_u32(out, check);
}

fn take_entry(r: &mut Reader<'_>) -> Result<Entry> {
    let packed = r.u64()?;
    let lsn = r.varint()?;
    let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id over 32 bits"))?;
    let entry = Entry::from_parts(packed, lsn, tree, r.u32()?);
    if entry.is_none() || entry.record_bytes() == 0 {
        return Err(r.fail("entry without a record"));
    }
    Ok(entry)
}

/// Writes a byte stream in large aligned pieces.
struct StreamWriter<'a> {
    file: &'a dyn File,
    buffer: AlignedBuf,
    used: usize,
    at: u64,
}

impl StreamWriter<'_> {
    fn position(&self) -> u64 {
        self.at + self.used as u64
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(self.buffer.len() - self.used);
            self.buffer[self.used..self.used + n].copy_from_slice(&bytes[..n]);
            self.used += n;
            bytes = &bytes[n..];
            if self.used == self.buffer.len() {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Writes what is buffered, padded with zeros to whole blocks.
    fn write(&mut self) -> Result<()> {
        let len = self.used.next_multiple_of(BLOCK_BYTES);
        self.buffer[self.used..len].fill(0);
        self.file.write_at(&self.buffer[..len], self.at)?;
        self.at += len as u64;
        self.used = 0;
        Ok(())
    }
}

fn read_range(file: &dyn File, at: u64, len: u64) -> Result<Vec<u8>> {
    let end = at.checked_add(len).filter(|&end| file.len().is_ok_and(|have| end <= have));
    let Some(end) = end else {
        return Err(Error::corrupt("file is too short", file.path().display().to_string()));
    };
    let block = BLOCK_BYTES as u64;
    let from = at / block * block;
    let mut buffer = AlignedBuf::new((end - from) as usize);
    let whole = (end.next_multiple_of(block) - from) as usize;
    file.read_at(&mut buffer[..whole], from)?;
    Ok(buffer[(at - from) as usize..(end - from) as usize].to_vec())
}

/// Place and check of a snapshot's directory.
#[derive(Clone, Copy)]
pub struct Directory {
    pub at: u64,
    pub bytes: u64,
    pub checksum: u32,
}

/// Writes and syncs a snapshot. `leaf_of` gives the pages of one leaf, each leaf as it is when
/// asked: whatever changes meanwhile must be in the first batch of the change log.
pub fn write_snapshot(
    file: &dyn File,
    seed: u32,
    generation: u64,
    leaves: usize,
    leaf_of: &dyn Fn(usize) -> Vec<(usize, Entry)>,
) -> Result<Directory> {
    let seed = seed_of(seed, generation);
    let buffer = AlignedBuf::new(WRITE_BYTES);
    let mut out = StreamWriter { file, buffer, used: 0, at: 0 };
    let mut head = Vec::with_capacity(BLOCK_BYTES);
    put_u64(&mut head, SNAPSHOT_MAGIC);
    put_u32(&mut head, FORMAT_VERSION);
    put_u64(&mut head, generation);
    head.resize(BLOCK_BYTES, 0);
    out.put(&head)?;
    let mut directory = Vec::new();
    for leaf in 0..leaves {
        let entries = leaf_of(leaf);
        if entries.is_empty() {
            continue;
        }
        let mut bytes = Vec::with_capacity(entries.len() * 26);
        for (index, entry) in entries {
            put_u16(&mut bytes, index as u16);
            put_entry(&mut bytes, entry);
        }
        put_varint(&mut directory, leaf as u64);
        put_varint(&mut directory, out.position());
        put_varint(&mut directory, bytes.len() as u64);
        put_u32(&mut directory, checksum(seed, &bytes));
        out.put(&bytes)?;
    }
    let at = out.position();
    out.put(&directory)?;
    out.write()?;
    file.sync()?;
    Ok(Directory { at, bytes: directory.len() as u64, checksum: checksum(seed, &directory) })
}

/// Reads a whole snapshot into `map`.
pub fn load_snapshot(file: &dyn File, sb: &Superblock, map: &mut PageMap) -> Result<()> {
    let seed = seed_of(sb.seed, sb.map_generation);
    let place = || file.path().display().to_string();
    let directory = read_range(file, sb.directory_at, sb.directory_bytes)?;
    if checksum(seed, &directory) != sb.directory_checksum {
        return Err(Error::corrupt("directory of the page map", place()));
    }
    let mut r = Reader::new(&directory, "directory of the page map");
    while !r.is_empty() {
        let (leaf, at, len, check) = (r.varint()?, r.varint()?, r.varint()?, r.u32()?);
        if leaf > sb.max_page.min(PAGE_ID_MAX) >> LEAF_BITS {
            return Err(r.fail("leaf out of range"));
        }
        let bytes = read_range(file, at, len)?;
        if checksum(seed, &bytes) != check {
            return Err(Error::corrupt(format!("leaf {leaf} of the page map"), place()));
        }
        let mut entries = Reader::new(&bytes, "leaf of the page map");
        while !entries.is_empty() {
            let index = u64::from(entries.u16()?);
            if index >= LEAF_PAGES as u64 {
                return Err(entries.fail("index out of range"));
            }
            map.load(PageId(leaf << LEAF_BITS | index), take_entry(&mut entries)?);
        }
    }
    Ok(())
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

    /// Reserves disk space behind the end, so that a checkpoint can free space on a full disk.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        if self.reserved < self.end + bytes / 2 {
            self.file.allocate(self.end + bytes)?;
            self.reserved = self.end + bytes;
        }
        Ok(())
    }

    /// Appends and syncs a batch. Until a superblock names the new end it does not exist: the
    /// answer is the log with it, `self` stays without.
    pub fn append(&self, note: &[u8], changes: &[(PageId, Entry)]) -> Result<ChangeLog> {
        let body = encode_batch(note, changes);
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

    /// Applies all batches up to the end that the superblock names; answers the last note.
    pub fn load(&mut self, sb: &Superblock, map: &mut PageMap) -> Result<Vec<u8>> {
        let mut note = Vec::new();
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
            note = apply_batch(&body, map, sb.max_page)?;
            let batch_bytes = BATCH_HEADER_BYTES as u64 + body_bytes;
            self.last_batch_at = self.end;
            self.end += batch_bytes.next_multiple_of(BLOCK_BYTES as u64);
            self.chain = chain;
        }
        let named = (sb.changes_end, sb.changes_chain, sb.last_batch_at);
        if (self.end, self.chain, self.last_batch_at) != named {
            return Err(self.damaged());
        }
        Ok(note)
    }

    fn damaged(&self) -> Error {
        let place = format!("{} offset {}", self.file.path().display(), self.end);
        Error::corrupt("batch of the map change log", place)
    }
}

pub(super) fn encode_batch(note: &[u8], changes: &[(PageId, Entry)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(note.len() + changes.len() * 24 + 32);
    put_bytes(&mut body, note);
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
pub(super) fn apply_batch(body: &[u8], map: &mut PageMap, max_page: u64) -> Result<Vec<u8>> {
    let mut r = Reader::new(body, "batch of the map change log");
    let note = r.bytes()?.to_vec();
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
        let entry = if step & 1 == 1 { take_entry(&mut r)? } else { Entry::NONE };
        map.load(PageId(page), entry);
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Lsn, TreeId};
    use crate::os::sim::{SimOs, SimRng};

    fn some_entry(rng: &mut SimRng) -> Entry {
        let len = 29 + rng.below(16000) as usize;
        Entry::new(rng.below(1 << 40), len, Lsn(rng.next_u64()), TreeId(7), rng.next_u64() as u32)
    }

    fn content(map: &PageMap) -> Vec<(usize, usize, Entry)> {
        let leaves = 0..map.leaf_slots();
        leaves.flat_map(|l| map.leaf_entries(l).map(move |(i, e)| (l, i, e))).collect()
    }

    #[test]
    fn snapshot_and_changes_restore_the_map() {
        let os = SimOs::new(1);
        let dir = Path::new("/m");
        let mut rng = SimRng::new(3);
        let mut map = PageMap::default();
        for _ in 0..3000 {
            map.set(PageId(rng.below(30_000)), some_entry(&mut rng));
        }
        map.take_changes();
        let file = create_file(&*os, &snapshot_path(dir, 4)).unwrap();
        let leaf_of = |leaf| map.leaf_entries(leaf).collect();
        let d = write_snapshot(&*file, 9, 4, map.leaf_slots(), &leaf_of).unwrap();
        let log_file = create_file(&*os, &changes_path(dir, 4)).unwrap();
        let mut log = ChangeLog::new(log_file.clone(), 9, 4);
        for round in 0..5u8 {
            for _ in 0..50 {
                let entry = if rng.chance(30) { Entry::NONE } else { some_entry(&mut rng) };
                map.set(PageId(rng.below(60_000)), entry);
            }
            log = log.append(&[round; 9000], &map.take_changes()).unwrap();
        }
        let mut sb = Superblock {
            generation: 8,
            seed: 9,
            map_generation: 4,
            max_page: 60_000,
            ..Default::default()
        };
        (sb.directory_at, sb.directory_bytes, sb.directory_checksum) = (d.at, d.bytes, d.checksum);
        (sb.changes_end, sb.changes_chain, sb.last_batch_at) =
            (log.end(), log.chain(), log.last_batch_at());
        // A batch that no superblock names does not exist.
        log.append(b"later", &[(PageId(1), Entry::NONE)]).unwrap();

        let mut loaded = PageMap::default();
        load_snapshot(&*file, &sb, &mut loaded).unwrap();
        let note = ChangeLog::new(log_file.clone(), 9, 4).load(&sb, &mut loaded).unwrap();
        assert_eq!(note, [4; 9000]);
        assert_eq!(content(&loaded), content(&map));
        assert_eq!(loaded.pages(), map.pages());

        let damage = rng.below(log.end() - 4096);
        os.flip_bit(&changes_path(dir, 4), damage / 4096 * 4096 + 30, 3);
        let load = ChangeLog::new(log_file, 9, 4).load(&sb, &mut PageMap::default());
        assert!(matches!(load, Err(Error::Corrupt { .. })));
    }
}
