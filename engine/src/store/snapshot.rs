//! The snapshot of the page map: a file that is written once, with a chunk for each leaf and a
//! directory of the chunks. Opening reads the directory; it checks each chunk, so that leaves are
//! read one by one.

use super::blocks::read_range;
use super::entry::{put_entry, take_entry, MapEntry, PAGE_ID_MAX};
use super::leaf::{LEAF_BITS, LEAF_PAGES};
use super::superblock::{seed_of, Superblock};
use crate::base::checksum::checksum;
use crate::base::codec::{put_u16, put_u32, put_u64, put_varint, Reader};
use crate::base::{formats, Error, Result, BLOCK_BYTES};
use crate::os::{AlignedBuf, File};
use std::sync::Arc;

const SNAPSHOT_MAGIC: u64 = u64::from_le_bytes(*b"SluiceMP");
const WRITE_BYTES: usize = 1 << 20;
/// Index and entry.
const ENTRY_BYTES_MAX: u64 = 2 + 8 + 10 + 5 + 4;

/// Place and check of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    at: u64,
    bytes: u32,
    check: u32,
}

impl Chunk {
    pub const NONE: Chunk = Chunk { at: 0, bytes: 0, check: 0 };

    pub fn is_none(&self) -> bool {
        self.bytes == 0
    }
}

/// The chunks of a snapshot by leaf, in order.
pub type Chunks = Vec<(usize, Chunk)>;

/// Place and check of a snapshot's directory.
#[derive(Clone, Copy)]
pub struct Directory {
    pub at: u64,
    pub bytes: u64,
    pub checksum: u32,
}

/// A complete snapshot file. Its holder can read it, also after its name is gone.
pub struct MapSnapshot {
    file: Arc<dyn File>,
    seed: u32,
}

impl MapSnapshot {
    /// Reads the directory: the chunks in the order of leaves.
    pub fn open(file: Arc<dyn File>, sb: &Superblock) -> Result<(Arc<MapSnapshot>, Chunks)> {
        let seed = seed_of(sb.seed, sb.map_generation);
        let directory = read_range(&*file, sb.directory_at, sb.directory_bytes)?;
        if checksum(seed, &directory) != sb.directory_checksum {
            let place = file.path().display().to_string();
            return Err(Error::corrupt("directory of the page map", place));
        }
        let chunks = decode_directory(&directory, sb.max_page)?;
        Ok((Arc::new(MapSnapshot { file, seed }), chunks))
    }

    pub fn read_leaf(&self, leaf: usize, chunk: Chunk) -> Result<Vec<(usize, MapEntry)>> {
        decode_leaf(&self.read_chunk(leaf, chunk)?)
    }

    fn read_chunk(&self, leaf: usize, chunk: Chunk) -> Result<Vec<u8>> {
        let bytes = read_range(&*self.file, chunk.at, u64::from(chunk.bytes))?;
        if checksum(self.seed, &bytes) != chunk.check {
            let place = format!("{} offset {}", self.file.path().display(), chunk.at);
            return Err(Error::corrupt(format!("leaf {leaf} of the page map"), place));
        }
        Ok(bytes)
    }
}

/// No page lies above `max_page`: a damaged number must not make the map huge.
pub(super) fn decode_directory(bytes: &[u8], max_page: u64) -> Result<Chunks> {
    let mut r = Reader::new(bytes, "directory of the page map");
    let mut chunks = Chunks::new();
    while !r.is_empty() {
        let (leaf, at, bytes, check) = (r.varint()?, r.varint()?, r.varint()?, r.u32()?);
        let last = chunks.last().map(|(leaf, _)| *leaf as u64);
        if leaf > max_page.min(PAGE_ID_MAX) >> LEAF_BITS || last.is_some_and(|last| leaf <= last) {
            return Err(r.fail("leaf out of range or order"));
        }
        if bytes == 0 || bytes > LEAF_PAGES as u64 * ENTRY_BYTES_MAX {
            return Err(r.fail("length of a leaf"));
        }
        chunks.push((leaf as usize, Chunk { at, bytes: bytes as u32, check }));
    }
    Ok(chunks)
}

fn encode_leaf(entries: &[(usize, MapEntry)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 26);
    for &(index, entry) in entries {
        put_u16(&mut bytes, index as u16);
        put_entry(&mut bytes, entry);
    }
    bytes
}

pub(super) fn decode_leaf(bytes: &[u8]) -> Result<Vec<(usize, MapEntry)>> {
    let mut r = Reader::new(bytes, "leaf of the page map");
    let mut entries: Vec<(usize, MapEntry)> = Vec::with_capacity(LEAF_PAGES);
    while !r.is_empty() {
        let index = usize::from(r.u16()?);
        if index >= LEAF_PAGES || entries.last().is_some_and(|(last, _)| index <= *last) {
            return Err(r.fail("index out of range or order"));
        }
        entries.push((index, take_entry(&mut r)?));
    }
    Ok(entries)
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

/// A snapshot that was just written and synced.
pub struct WrittenSnapshot {
    pub snapshot: Arc<MapSnapshot>,
    pub chunks: Chunks,
    pub directory: Directory,
}

/// Why there is no new snapshot.
pub enum Failure {
    Write(Error),
    /// A leaf of the old one cannot be read.
    Read(Error),
}

/// Writes and syncs a snapshot leaf by leaf. `leaf_of` gives the pages of one leaf, each leaf as
/// it is when asked: whatever changes meanwhile must be in the first batch of the change log.
pub fn write_snapshot(
    file: Arc<dyn File>,
    seed: u32,
    generation: u64,
    leaves: usize,
    leaf_of: &dyn Fn(usize) -> Result<Vec<(usize, MapEntry)>>,
) -> std::result::Result<WrittenSnapshot, Failure> {
    let seed = seed_of(seed, generation);
    let buffer = AlignedBuf::new(WRITE_BYTES);
    let mut out = StreamWriter { file: &*file, buffer, used: 0, at: 0 };
    let mut head = Vec::with_capacity(BLOCK_BYTES);
    put_u64(&mut head, SNAPSHOT_MAGIC);
    put_u32(&mut head, formats::CURRENT.store);
    put_u64(&mut head, generation);
    head.resize(BLOCK_BYTES, 0);
    out.put(&head).map_err(Failure::Write)?;
    let mut chunks = Vec::new();
    let mut directory = Vec::new();
    for leaf in 0..leaves {
        let bytes = encode_leaf(&leaf_of(leaf).map_err(Failure::Read)?);
        if bytes.is_empty() {
            continue;
        }
        let check = checksum(seed, &bytes);
        let chunk = Chunk { at: out.position(), bytes: bytes.len() as u32, check };
        chunks.push((leaf, chunk));
        put_varint(&mut directory, leaf as u64);
        put_varint(&mut directory, chunk.at);
        put_varint(&mut directory, u64::from(chunk.bytes));
        put_u32(&mut directory, chunk.check);
        out.put(&bytes).map_err(Failure::Write)?;
    }
    let at = out.position();
    out.put(&directory).and_then(|()| out.write()).map_err(Failure::Write)?;
    file.sync().map_err(Failure::Write)?;
    let checksum = checksum(seed, &directory);
    let directory = Directory { at, bytes: directory.len() as u64, checksum };
    Ok(WrittenSnapshot { snapshot: Arc::new(MapSnapshot { file, seed }), chunks, directory })
}
