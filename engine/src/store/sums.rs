//! Sums over the page map: live bytes of each segment, pages and bytes of each tree. They are
//! kept while entries change and persisted with the changes, so that nobody has to walk the map.

use super::entry::MapEntry;
use crate::base::codec::{put_varint, Reader};
use crate::base::{Lsn, Result, TreeId};
use std::collections::BTreeMap;

/// More segments than any pages file has: a damaged number must not make a table huge.
const SEGMENTS_MAX: u64 = super::entry::PLACE_END / super::StoreOptions::SEGMENT_BYTES_MIN;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUse {
    pub pages: u64,
    pub stored_bytes: u64,
}

/// All sums of a map, or those that changed; zero where nothing is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Highest LSN that any entry ever named.
    pub max_lsn: Lsn,
    /// Live bytes by segment.
    pub segments: BTreeMap<usize, u64>,
    pub trees: BTreeMap<TreeId, TreeUse>,
}

impl Sums {
    /// Counts an entry of a map that is walked.
    pub fn count(&mut self, entry: MapEntry, segment_bytes: u64) {
        let segment = (entry.place() / segment_bytes) as usize;
        *self.segments.entry(segment).or_default() += entry.record_bytes() as u64;
        let tree = self.trees.entry(entry.tree()).or_default();
        tree.pages += 1;
        tree.stored_bytes += entry.record_bytes() as u64;
        self.max_lsn = self.max_lsn.max(entry.lsn());
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.max_lsn.0);
        put_varint(out, self.segments.len() as u64);
        let mut next = 0;
        for (&segment, &live_bytes) in &self.segments {
            put_varint(out, (segment - next) as u64);
            put_varint(out, live_bytes);
            next = segment + 1;
        }
        put_varint(out, self.trees.len() as u64);
        for (tree, of_tree) in &self.trees {
            put_varint(out, u64::from(tree.0));
            put_varint(out, of_tree.pages);
            put_varint(out, of_tree.stored_bytes);
        }
    }

    /// Lays encoded sums over these.
    pub fn decode_onto(&mut self, r: &mut Reader<'_>) -> Result<()> {
        self.max_lsn = Lsn(r.varint()?);
        let mut next = 0u64;
        for _ in 0..r.varint()? {
            let segment = next.checked_add(r.varint()?).filter(|&s| s < SEGMENTS_MAX);
            let Some(segment) = segment else { return Err(r.fail("segment out of range")) };
            next = segment + 1;
            match r.varint()? {
                0 => self.segments.remove(&(segment as usize)),
                live_bytes => self.segments.insert(segment as usize, live_bytes),
            };
        }
        for _ in 0..r.varint()? {
            let tree = u32::try_from(r.varint()?).map_err(|_| r.fail("tree id over 32 bits"))?;
            let of_tree = TreeUse { pages: r.varint()?, stored_bytes: r.varint()? };
            match of_tree.pages {
                0 => self.trees.remove(&TreeId(tree)),
                _ => self.trees.insert(TreeId(tree), of_tree),
            };
        }
        Ok(())
    }

    pub fn pages(&self) -> u64 {
        self.trees.values().fold(0, |sum, tree| sum.saturating_add(tree.pages))
    }

    /// Whether these sums can be those of one map in a file of `segments` segments.
    pub fn check(&self, segment_bytes: u64, segments: u64) -> std::result::Result<(), String> {
        if let Some((segment, _)) = self.segments.last_key_value() {
            if *segment as u64 >= segments {
                return Err(format!("segment {segment} lies past the end of the file"));
            }
        }
        if let Some((segment, _)) = self.segments.iter().find(|(_, live)| **live > segment_bytes) {
            return Err(format!("the records of segment {segment} overlap"));
        }
        let by_segment: u64 = self.segments.values().sum();
        let by_tree = self.trees.values().fold(0u64, |sum, t| sum.saturating_add(t.stored_bytes));
        if by_segment != by_tree {
            return Err(format!("segments hold {by_segment} bytes, trees {by_tree}"));
        }
        Ok(())
    }

    /// Where these, persisted, differ from sums that were counted.
    pub fn differences(&self, counted: &Sums) -> Vec<String> {
        let mut found = Vec::new();
        let segments = self.segments.keys().chain(counted.segments.keys());
        for segment in segments.collect::<std::collections::BTreeSet<_>>() {
            let live = |sums: &Sums| sums.segments.get(segment).copied().unwrap_or(0);
            let (says, has) = (live(self), live(counted));
            if says != has {
                found.push(format!(
                    "segment {segment} has {has} live bytes by the map, its sum says {says}"
                ));
            }
        }
        let trees = self.trees.keys().chain(counted.trees.keys());
        for tree in trees.collect::<std::collections::BTreeSet<_>>() {
            let used = |sums: &Sums| sums.trees.get(tree).copied().unwrap_or_default();
            let (says, has) = (used(self), used(counted));
            if says != has {
                found.push(format!(
                    "tree {tree} has {} pages in {} bytes by the map, its sums say {} in {}",
                    has.pages, has.stored_bytes, says.pages, says.stored_bytes
                ));
            }
        }
        if counted.max_lsn > self.max_lsn {
            let (has, says) = (counted.max_lsn, self.max_lsn);
            found.push(format!("the map names LSN {has}, the highest is said to be {says}"));
        }
        found
    }
}
