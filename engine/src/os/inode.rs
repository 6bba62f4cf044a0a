//! A file of the simulated machine: as the running program sees it, and as a loss of power would
//! leave it.

use super::rng::SimRng;
use crate::base::BLOCK_BYTES;
use std::collections::BTreeSet;
use std::ops::Range;

const SECTOR_BYTES: usize = 512;

#[derive(Default)]
pub struct Inode {
    pub live: Vec<u8>,
    durable: Vec<u8>,
    /// Blocks written or punched since the last sync.
    unsynced: BTreeSet<usize>,
    /// Blocks that take no room and read as zeros; and those that would after a loss of power.
    holes: BTreeSet<usize>,
    durable_holes: BTreeSet<usize>,
}

/// What a sync covers: what was there when it began.
pub struct Syncing {
    len: usize,
    blocks: Vec<(usize, Vec<u8>)>,
    holes: BTreeSet<usize>,
}

fn blocks_of(from: u64, len: u64) -> Range<usize> {
    from as usize / BLOCK_BYTES..(from + len).div_ceil(BLOCK_BYTES as u64) as usize
}

impl Inode {
    /// Room that the file takes.
    pub fn used_bytes(&self) -> u64 {
        self.live.len().saturating_sub(self.holes.len() * BLOCK_BYTES) as u64
    }

    /// Room that a write of this range, or its reservation, needs.
    pub fn needed_bytes(&self, from: u64, len: u64) -> u64 {
        let holes = self.holes.range(blocks_of(from, len)).count() * BLOCK_BYTES;
        (from + len).saturating_sub(self.live.len() as u64) + holes as u64
    }

    pub fn has_hole(&self, from: u64, len: u64) -> bool {
        self.holes.range(blocks_of(from, len)).next().is_some()
    }

    pub fn write(&mut self, buf: &[u8], offset: u64) {
        let (from, to) = (offset as usize, offset as usize + buf.len());
        if self.live.len() < to {
            self.live.resize(to, 0);
        }
        self.live[from..to].copy_from_slice(buf);
        let blocks = blocks_of(offset, buf.len() as u64);
        self.holes.retain(|block| !blocks.contains(block));
        if from < to {
            self.unsynced.extend(blocks);
        }
    }

    pub fn allocate(&mut self, from: u64, len: u64) {
        if (self.live.len() as u64) < from + len {
            self.live.resize((from + len) as usize, 0);
        }
        for block in blocks_of(from, len) {
            if self.holes.remove(&block) {
                self.unsynced.insert(block);
            }
        }
    }

    /// The range lies in the file and has whole blocks.
    pub fn punch(&mut self, from: u64, len: u64) {
        self.live[from as usize..(from + len) as usize].fill(0);
        self.unsynced.extend(blocks_of(from, len));
        self.holes.extend(blocks_of(from, len));
    }

    pub fn set_len(&mut self, len: u64) {
        self.live.resize(len as usize, 0);
        self.holes.retain(|block| block * BLOCK_BYTES < len as usize);
    }

    /// A data-sync write of this range.
    pub fn sync_range(&mut self, offset: u64, len: usize) {
        let (from, to) = (offset as usize, offset as usize + len);
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        self.durable[from..to].copy_from_slice(&self.live[from..to]);
        // Only whole blocks are known durable; the edges may hold other unsynced bytes.
        for block in from.div_ceil(BLOCK_BYTES)..to / BLOCK_BYTES {
            self.unsynced.remove(&block);
            self.durable_holes.remove(&block);
        }
    }

    pub fn begin_sync(&self) -> Syncing {
        let len = self.live.len();
        let bytes = |&block: &usize| {
            let from = block * BLOCK_BYTES;
            let to = (from + BLOCK_BYTES).min(len);
            (from < to).then(|| (block, self.live[from..to].to_vec()))
        };
        let blocks = self.unsynced.iter().filter_map(bytes).collect();
        Syncing { len, blocks, holes: self.holes.clone() }
    }

    /// Changes that others made to the file meanwhile are as unsynced as before.
    pub fn end_sync(&mut self, begun: Syncing) {
        self.durable.resize(begun.len, 0);
        self.unsynced.retain(|block| block * BLOCK_BYTES < self.live.len());
        for (block, bytes) in begun.blocks {
            let from = block * BLOCK_BYTES;
            self.durable[from..from + bytes.len()].copy_from_slice(&bytes);
            let live = self.live.get(from..from + bytes.len());
            if live == Some(&bytes[..])
                && self.holes.contains(&block) == begun.holes.contains(&block)
            {
                self.unsynced.remove(&block);
            }
        }
        self.durable_holes = begun.holes;
    }

    /// One bit rots, in both images.
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        let at = offset as usize;
        self.live[at] ^= 1 << bit;
        if at < self.durable.len() {
            self.durable[at] ^= 1 << bit;
        }
    }

    /// The power goes off: what was not synced is, block by block and independently, kept, dropped
    /// or torn. A block that was punched may have its old bytes, or none.
    pub fn crash(&mut self, rng: &mut SimRng) {
        let unsynced = std::mem::take(&mut self.unsynced);
        if unsynced.is_empty() && self.live.len() == self.durable.len() {
            return;
        }
        // The length survives in full, not at all, or somewhere between.
        if self.live.len() != self.durable.len() && rng.chance(60) {
            self.durable.resize(self.live.len(), 0);
        }
        for block in unsynced {
            let from = block * BLOCK_BYTES;
            let to = (from + BLOCK_BYTES).min(self.live.len()).min(self.durable.len());
            if from >= to {
                continue;
            }
            match rng.below(3) {
                0 => continue,
                1 => self.durable[from..to].copy_from_slice(&self.live[from..to]),
                _ => {
                    for sector in (from..to).step_by(SECTOR_BYTES) {
                        let end = (sector + SECTOR_BYTES).min(to);
                        if rng.chance(50) {
                            self.durable[sector..end].copy_from_slice(&self.live[sector..end]);
                        }
                    }
                }
            }
            match self.holes.contains(&block) {
                true => {
                    self.durable[from..to].fill(0);
                    self.durable_holes.insert(block);
                }
                false => {
                    self.durable_holes.remove(&block);
                }
            }
        }
        self.live = self.durable.clone();
        self.durable_holes.retain(|block| block * BLOCK_BYTES < self.live.len());
        self.holes = self.durable_holes.clone();
    }
}
