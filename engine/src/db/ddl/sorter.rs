//! Sorts entries by their keys in a bounded memory: runs that are sorted there go to a temporary
//! file, and are merged when all are known (Knuth, The Art of Computer Programming 3, 5.4).
//!
//! The file is nobody's after a crash: opening the engine removes it. Its bytes are read by the
//! process that wrote them, so they have no checksum, and what hides them is a key in memory.

use super::sort_memory::SortMemory;
use crate::base::codec::{put_varint, Reader};
use crate::base::{Error, Result};
use crate::btree::TreeBytes;
use crate::cipher::Veil;
use crate::os::planted::{self, Bug};
use crate::os::{File, OpenMode, Os, SIMULATED};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of one sorter; an ALTER TABLE has one for each new index. Those of tests spill soon.
pub(in crate::db) const MEMORY_BYTES: usize = if SIMULATED || cfg!(test) { 160 } else { 16 << 20 };
/// Read from each run at a time, while there are few.
const READ_BYTES_MAX: usize = if SIMULATED { 512 } else { 256 << 10 };
const READ_BYTES_MIN: usize = 512;
const WRITE_BYTES: usize = 1 << 20;

const PREFIX: &str = "sort-";
const SUFFIX: &str = ".tmp";

/// The file of the index with this tree id.
fn path_of(dir: &Path, tree: u32) -> PathBuf {
    dir.join(format!("{PREFIX}{tree}{SUFFIX}"))
}

/// Removes what an earlier life left.
pub(in crate::db) fn remove_left(os: &dyn Os, dir: &Path) -> Result<()> {
    for path in os.list(dir)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
            os.remove(&path)?;
        }
    }
    Ok(())
}

struct Spill {
    os: Arc<dyn Os>,
    file: Arc<dyn File>,
    len: u64,
    /// If the directory is to be encrypted.
    veil: Option<Veil>,
    counted: Arc<TreeBytes>,
}

impl Spill {
    fn write(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(veil) = &self.veil {
            veil.apply(self.len, bytes);
        }
        self.file.write_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        self.counted.sorted(bytes.len() as u64);
        bytes.clear();
        Ok(())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(bytes, offset)?;
        if let Some(veil) = &self.veil {
            veil.apply(offset, bytes);
        }
        Ok(())
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // If that fails the next start removes it.
        let _ = self.os.remove(self.file.path());
    }
}

pub(in crate::db) struct Sorter {
    os: Arc<dyn Os>,
    path: PathBuf,
    memory_bytes: usize,
    /// Whether the file is encrypted.
    hides: bool,
    /// Told what the file takes.
    counted: Arc<TreeBytes>,
    memory: SortMemory,
    spill: Option<Spill>,
    runs: Vec<Range<u64>>,
}

impl Sorter {
    pub fn new(os: Arc<dyn Os>, dir: &Path, tree: u32, memory_bytes: usize) -> Sorter {
        Sorter {
            os,
            path: path_of(dir, tree),
            memory_bytes,
            hides: false,
            counted: Arc::default(),
            memory: SortMemory::new(memory_bytes),
            spill: None,
            runs: Vec::new(),
        }
    }

    pub fn hiding(self, hides: bool) -> Sorter {
        Sorter { hides, ..self }
    }

    pub fn counted_by(self, counted: &Arc<TreeBytes>) -> Sorter {
        Sorter { counted: Arc::clone(counted), ..self }
    }

    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.memory.has_room(key, value) {
            self.spill_run()?;
        }
        self.memory.push(key, value);
        match self.memory.is_full() {
            true => self.spill_run(),
            false => Ok(()),
        }
    }

    /// Everything in order; entries with the same key in any.
    pub fn finish(mut self) -> Result<Sorted> {
        self.memory.sort();
        let Sorter { memory, spill, runs, memory_bytes, .. } = self;
        let mut sorted = Sorted { memory, next: 0, heads: BinaryHeap::new(), spill };
        let room = memory_bytes / runs.len().max(1);
        let forgotten = usize::from(planted::is(Bug::SortedRunForgotten));
        for run in runs.into_iter().skip(forgotten) {
            let read_bytes = room.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
            let mut reader = Run { at: run, read_bytes, buffer: Vec::new(), start: 0 };
            if let Some(head) = sorted.advance(&mut reader)? {
                sorted.heads.push(Head { key: head.0, value: head.1, run: reader });
            }
        }
        Ok(sorted)
    }

    fn spill_run(&mut self) -> Result<()> {
        self.memory.sort();
        if self.spill.is_none() {
            let file = self.os.open(&self.path, OpenMode { create: true, direct: false })?;
            let veil = if self.hides { Some(Veil::new(&*self.os)?) } else { None };
            let (os, counted) = (Arc::clone(&self.os), Arc::clone(&self.counted));
            self.spill = Some(Spill { os, file, len: 0, veil, counted });
        }
        let Some(spill) = &mut self.spill else { unreachable!("just made") };
        let begin = spill.len;
        let mut out = Vec::with_capacity(WRITE_BYTES.min(self.memory_bytes * 2));
        for at in 0..self.memory.count() {
            let (key, value) = (self.memory.key(at), self.memory.value(at));
            put_varint(&mut out, key.len() as u64);
            put_varint(&mut out, value.len() as u64);
            out.extend_from_slice(key);
            out.extend_from_slice(value);
            if out.len() >= WRITE_BYTES {
                spill.write(&mut out)?;
            }
        }
        if !out.is_empty() {
            spill.write(&mut out)?;
        }
        self.runs.push(begin..spill.len);
        self.memory.clear();
        Ok(())
    }
}

/// The rest of a run.
struct Run {
    /// Not read yet.
    at: Range<u64>,
    read_bytes: usize,
    buffer: Vec<u8>,
    /// Of the next entry in the buffer.
    start: usize,
}

/// The first entry of a run that was not given out.
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    run: Run,
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap gives its greatest, which is the lowest key.
impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        other.key.cmp(&self.key)
    }
}

pub(in crate::db) struct Sorted {
    /// The last run, which stayed in memory.
    memory: SortMemory,
    next: usize,
    heads: BinaryHeap<Head>,
    spill: Option<Spill>,
}

type Pair = (Vec<u8>, Vec<u8>);

impl Sorted {
    /// Puts the next entry into `key` and `value`; false at the end.
    pub fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let in_memory = (self.next < self.memory.count()).then(|| self.memory.key(self.next));
        let from_run = match (self.heads.peek(), in_memory) {
            (None, None) => return Ok(false),
            (Some(head), Some(own)) => head.key.as_slice() < own,
            (head, _) => head.is_some(),
        };
        if !from_run {
            replace(key, self.memory.key(self.next));
            replace(value, self.memory.value(self.next));
            self.next += 1;
            return Ok(true);
        }
        let Some(mut head) = self.heads.pop() else { unreachable!("it was looked at") };
        std::mem::swap(key, &mut head.key);
        std::mem::swap(value, &mut head.value);
        if let Some((next_key, next_value)) = self.advance(&mut head.run)? {
            (head.key, head.value) = (next_key, next_value);
            self.heads.push(head);
        }
        Ok(true)
    }

    fn advance(&self, run: &mut Run) -> Result<Option<Pair>> {
        let Some(spill) = &self.spill else { unreachable!("runs are in the file") };
        loop {
            if let Some((pair, end)) = decode(&run.buffer[run.start..]) {
                run.start += end;
                return Ok(Some(pair));
            }
            if run.at.is_empty() {
                let left = run.buffer.len() - run.start;
                let place = spill.file.path().display().to_string();
                return match left {
                    0 => Ok(None),
                    _ => Err(Error::corrupt("a sorted entry ends too early", place)),
                };
            }
            run.buffer.drain(..run.start);
            run.start = 0;
            let more = (run.at.end - run.at.start).min(run.read_bytes as u64) as usize;
            let held = run.buffer.len();
            run.buffer.resize(held + more, 0);
            spill.read(&mut run.buffer[held..], run.at.start)?;
            run.at.start += more as u64;
        }
    }
}

fn replace(to: &mut Vec<u8>, from: &[u8]) {
    to.clear();
    to.extend_from_slice(from);
}

/// The entry at the beginning, if all of it is there, and its end.
fn decode(bytes: &[u8]) -> Option<(Pair, usize)> {
    let mut rest = Reader::new(bytes, "sorted entry");
    let key_bytes = usize::try_from(rest.varint().ok()?).ok()?;
    let value_bytes = usize::try_from(rest.varint().ok()?).ok()?;
    let key = rest.take(key_bytes).ok()?.to_vec();
    let value = rest.take(value_bytes).ok()?.to_vec();
    Some(((key, value), bytes.len() - rest.rest().len()))
}
