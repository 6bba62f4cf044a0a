//! Garbage collection: copies the live records of a mostly dead segment forward, so that the
//! next checkpoint frees it. A victim is read whole, verified record by record, and copied as
//! it is; what cannot be verified stays where it is, and its segment is left alone: for good if it
//! is damaged, until the next checkpoint if only reading failed.

use super::counters::add;
use super::engine::{is_named, Store};
use super::entry::MapEntry;
use super::record::{self, Packed};
use super::segments::Life;
use super::victim::{Live, Victim};
use super::written::Cause;
use crate::base::{Error, PageId, Result, BLOCK_BYTES};
use crate::os::AlignedBuf;
use std::cell::Cell;

/// Records that one append of GC moves while it holds the stream.
const MOVED_RECORDS_MAX: usize = 64;

impl Store {
    /// Moves about `budget_bytes` of live records out of the segments that gain most; answers
    /// how many bytes it moved, zero when no segment is worth it. After `Full` a checkpoint
    /// frees what has been moved already.
    pub fn gc_step(&self, budget_bytes: u64) -> Result<u64> {
        let mut collector = self.collector.lock();
        self.check_poison()?;
        let mut moved_bytes = 0;
        while moved_bytes < budget_bytes {
            if collector.victim.as_ref().is_none_or(|v| v.live.is_empty()) {
                collector.victim = None;
                let least_gain = self.least_gain_bytes();
                let victim = self.state.read().segments.victim(least_gain);
                let Some(life) = victim else { break };
                collector.victim = Some(self.load_victim(life)?);
            }
            let Some(victim) = &mut collector.victim else { break };
            moved_bytes += self.move_some(victim, budget_bytes - moved_bytes, false)?;
        }
        self.refresh_debt();
        Ok(moved_bytes)
    }

    /// Others may free the segment meanwhile, and cut the file: then nothing in it is live.
    pub(super) fn load_victim(&self, life: Life) -> Result<Victim> {
        // Its last chunk may still wait in memory.
        self.write_tail()?;
        let start = self.state.read().segments.start(life.segment);
        let mut bytes = AlignedBuf::new(self.segment_bytes as usize);
        if let Err(error) = self.pages.file().read_at(&mut bytes, start) {
            if self.live_bytes(life).is_none() {
                return Ok(Victim { life, start, bytes, live: Live::new() });
            }
            self.leave(life, &error);
            return Err(error);
        }
        add(&self.pages.read_bytes, self.segment_bytes);
        let (mut live, unknown) = self.live_of(start, &bytes)?;
        let live_bytes: u64 = live.iter().map(|(_, e)| e.record_bytes() as u64).sum();
        // Live bytes of a closed segment only become fewer, so more than were found means that
        // records are hidden: those after a damaged record, or those of a leaf of the map
        // that cannot be read. The segment is left alone when its other records are out.
        if self.live_bytes(life).is_some_and(|counted| live_bytes < counted) {
            match unknown {
                Some(error) => self.leave(life, &error),
                None => {
                    self.state.write().segments.mark_bad(life);
                    live = self.live_by_map(life.segment, start, &bytes);
                }
            }
        }
        live.sort_unstable_by_key(|(_, entry)| std::cmp::Reverse(entry.place()));
        Ok(Victim { life, start, bytes, live })
    }

    fn live_bytes(&self, life: Life) -> Option<u64> {
        self.state.read().segments.live_bytes(life)
    }

    /// Some of the segment could not be read.
    fn leave(&self, life: Life, error: &Error) {
        let mut state = self.state.write();
        match error {
            Error::Io { .. } => state.segments.put_off(life),
            _ => state.segments.mark_bad(life),
        }
    }

    /// The records in the bytes of a segment that the map names, and why the map could not be
    /// asked for all, damage before what may pass. Leaf by leaf: each is read once.
    fn live_of(&self, start: u64, bytes: &[u8]) -> Result<(Live, Option<Error>)> {
        let mut unknown: Option<Error> = None;
        let mut found = scan_records(self.seed, bytes);
        found.sort_unstable_by_key(|(head, _)| head.page);
        let mut live = Vec::with_capacity(found.len());
        for (head, at) in found {
            let entry = match self.entry(head.page) {
                Ok(entry) => entry,
                Err(error @ Error::Corrupt { .. }) => {
                    unknown = Some(error);
                    continue;
                }
                Err(error @ Error::Io { .. }) => {
                    unknown.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(entry) = entry else { continue };
            if entry.place() == start + at as u64 && is_named(&head, head.page, entry) {
                live.push((head.page, entry));
            }
        }
        Ok((live, unknown))
    }

    /// The sound records of a segment, by all leaves of the map.
    fn live_by_map(&self, segment: usize, start: u64, bytes: &[u8]) -> Live {
        let leaves = 0..self.state.read().map.leaf_slots();
        let of_leaves = leaves.flat_map(|leaf| self.leaf_pages(leaf).unwrap_or_default());
        of_leaves
            .filter(|(_, entry)| entry.place() / self.segment_bytes == segment as u64)
            .filter(|&(page, entry)| self.is_sound(page, entry, start, bytes))
            .collect()
    }

    fn is_sound(&self, page: PageId, entry: MapEntry, start: u64, bytes: &[u8]) -> bool {
        let from = (entry.place() - start) as usize;
        let record = bytes.get(from..from + entry.record_bytes());
        record.is_some_and(|record| self.check_record(page, entry, record).is_ok())
    }

    /// Moves records of the victim, as this life writes them; answers the bytes that arrived. If not
    /// `must_open`, one whose key is missing is moved as it is: nothing is lost by that.
    pub(super) fn move_some(
        &self,
        victim: &mut Victim,
        budget_bytes: u64,
        must_open: bool,
    ) -> Result<u64> {
        let (mut records, mut entries) = (Vec::new(), Vec::new());
        let mut packed_bytes = 0;
        for &(page, entry) in victim.live.iter().rev().take(MOVED_RECORDS_MAX) {
            if packed_bytes >= budget_bytes {
                break;
            }
            entries.push((page, entry));
            packed_bytes += entry.record_bytes() as u64;
        }
        let taken = entries.len();
        let _pins = match self.pin(entries.iter().map(|(page, _)| *page)) {
            Ok(pins) => pins,
            Err(error) => {
                // Found before and unreadable now: as one that hides records.
                self.leave(victim.life, &error);
                victim.live.clear();
                return Ok(0);
            }
        };
        let state = self.state.read();
        entries.retain(|&(page, entry)| {
            let still_live = state.is_at(page, entry);
            if still_live {
                let bytes = victim.record(entry).to_vec();
                records.push(Packed { page, tree: entry.tree(), lsn: entry.lsn(), bytes });
            }
            still_live
        });
        drop(state);
        for record in &mut records {
            match self.renewed(record) {
                Ok(Some(bytes)) => record.bytes = bytes,
                Err(error) if must_open => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        let moved_bytes = Cell::new(0);
        let done = self.append(Cause::Gc, &records, &|state, i, place| {
            let (_, old) = entries[i];
            if state.swap(old, &records[i], place) {
                moved_bytes.set(moved_bytes.get() + old.record_bytes() as u64);
            }
        });
        add(&self.counters.gc_bytes, moved_bytes.get());
        done?;
        victim.live.truncate(victim.live.len() - taken);
        Ok(moved_bytes.get())
    }
}

/// Everything in whole blocks that is a sound record of the store with this seed, with its offset.
pub(super) fn scan_records(seed: u32, bytes: &[u8]) -> Vec<(record::Header, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match record::verify(seed, &bytes[at..]) {
            Ok(head) => {
                found.push((head, at));
                at += head.record_bytes;
            }
            // Padding, or never written: the next record begins at a block.
            Err(_) => at = (at + 1).next_multiple_of(BLOCK_BYTES),
        }
    }
    found
}
