//! The log of a stopped server, as its files have it: bytes by kind of record, sizes of changes, and
//! what each batch takes compressed on its own. Where the sizes of [`crate::sizes`] come from.
//! docs/format.md has the format.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::Path;

const BLOCK_BYTES: usize = 4096;
const BATCH_MAGIC: u32 = 0x4c57_4231;
const BATCH_HEAD_BYTES: usize = 40;
const RECORD_TREE: u8 = 1;
const RECORD_COMMIT: u8 = 2;
const RECORD_PREPARE: u8 = 4;
/// A batch with a longer record belongs to a load, not to transactions of single rows.
const RECORD_BYTES_MAX: usize = 64 << 10;
const ZSTD_LEVEL: i32 = 1;

#[derive(Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }
}

/// Of all batches that were read.
#[derive(Default)]
pub struct LogUse {
    batches: u64,
    records: BTreeMap<u8, Sum>,
    /// By code; docs/format.md, "Changes".
    changes: BTreeMap<u8, Sum>,
    notes: Sum,
    head_bytes: u64,
    written_bytes: u64,
    lz4_bytes: u64,
    zstd_bytes: u64,
}

impl LogUse {
    fn add_batch(&mut self, batch: &[u8]) -> Option<()> {
        for record in records(batch) {
            let (kind, bytes, payload) = record?;
            self.records.entry(kind).or_default().add(bytes);
            if kind == RECORD_TREE {
                self.add_tree_record(payload)?;
            }
        }
        let body = &batch[BATCH_HEAD_BYTES..];
        let padded = |bytes: usize| (bytes + BATCH_HEAD_BYTES).next_multiple_of(BLOCK_BYTES) as u64;
        let zstd = zstd::bulk::compress(body, ZSTD_LEVEL).ok()?.len();
        self.batches += 1;
        self.head_bytes += BATCH_HEAD_BYTES as u64;
        self.written_bytes += padded(body.len());
        self.lz4_bytes += padded(lz4_flex::block::compress(body).len().min(body.len()));
        self.zstd_bytes += padded(zstd.min(body.len()));
        Some(())
    }

    fn add_tree_record(&mut self, payload: &[u8]) -> Option<()> {
        let (note, at) = varint(payload, 0)?;
        self.notes.add(note);
        let (_tree, at) = varint(payload, at.checked_add(note)?)?;
        let (count, mut at) = varint(payload, at)?;
        for _ in 0..count {
            let (_page, after) = varint(payload, at)?;
            let (length, after) = varint(payload, after)?;
            self.changes.entry(*payload.get(after)?).or_default().add(length);
            at = after.checked_add(length)?;
        }
        Some(())
    }

    /// With the binlog each one was prepared, in the batch that made it durable.
    fn transactions(&self) -> f64 {
        let count = |kind: u8| self.records.get(&kind).map_or(0, |sum| sum.count);
        count(RECORD_PREPARE).max(count(RECORD_COMMIT)).max(1) as f64
    }

    pub fn report(&self) -> String {
        let transactions = self.transactions();
        let mut lines = vec![format!(
            "{} batches, {transactions:.0} transactions; bytes of one:",
            self.batches
        )];
        let records: u64 = self.records.values().map(|sum| sum.bytes).sum();
        let of_one = [
            ("records and heads of batches", records + self.head_bytes),
            ("as written, padded to blocks", self.written_bytes),
            ("batches compressed with LZ4, padded", self.lz4_bytes),
            ("batches compressed with zstd 1, padded", self.zstd_bytes),
        ];
        for (what, bytes) in of_one {
            lines.push(format!("  {what}: {:.0}", bytes as f64 / transactions));
        }
        let mut list = |what: String, sum: &Sum| {
            let (count, mean) = (sum.count as f64, sum.bytes as f64 / sum.count.max(1) as f64);
            lines.push(format!("  {what}: {:.2}, {mean:.1} bytes each", count / transactions));
        };
        self.records.iter().for_each(|(kind, sum)| list(format!("records of kind {kind}"), sum));
        self.changes.iter().for_each(|(code, sum)| list(format!("changes of code {code}"), sum));
        list("version notes".to_owned(), &self.notes);
        lines.join("\n") + "\n"
    }
}

/// The records of a batch: kind, bytes in all, payload; None where they make no sense.
fn records(batch: &[u8]) -> impl Iterator<Item = Option<(u8, usize, &[u8])>> {
    let mut at = BATCH_HEAD_BYTES;
    std::iter::from_fn(move || {
        let kind = *batch.get(at)?;
        let record = varint(batch, at + 1).and_then(|(length, after)| {
            // The check takes three bytes.
            let (payload, end) = (after + 3, (after + 3).checked_add(length)?);
            Some((kind, end - at, batch.get(payload..end)?))
        });
        at += record.map_or(batch.len(), |(_, bytes, _)| bytes);
        Some(record)
    })
}

fn is_of_transactions(batch: &[u8]) -> bool {
    let is_end = |kind: u8| kind == RECORD_PREPARE || kind == RECORD_COMMIT;
    records(batch).flatten().any(|(kind, ..)| is_end(kind))
        && records(batch).flatten().all(|(_, bytes, _)| bytes <= RECORD_BYTES_MAX)
}

/// The number at `at`, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0u64;
    for (n, &byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * n as u32)?;
        if byte < 0x80 {
            return Some((usize::try_from(value).ok()?, at + n + 1));
        }
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].try_into();
    u32::from_le_bytes(four.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes[at..at + 8].try_into();
    u64::from_le_bytes(eight.unwrap_or_default())
}

/// The segments in the directory, within the positions. Batches of earlier lives of a segment,
/// and those without an end of a transaction or with a long record, are left out.
pub fn read_log(dir: &Path, positions: Range<u64>) -> Result<LogUse> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found = LogUse::default();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        read_segment(&bytes, &positions, &mut found)
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, path.display().to_string()))?;
    }
    match found.batches {
        0 => Err(Error::new(ErrorKind::NotFound, "no batch of transactions in the log")),
        _ => Ok(found),
    }
}

/// A batch over the end of a segment is left out: it holds one long record.
fn read_segment(bytes: &[u8], positions: &Range<u64>, found: &mut LogUse) -> Option<()> {
    let body = bytes.get(BLOCK_BYTES..)?;
    let start = u64_at(bytes, 16).checked_mul(u64_at(bytes, 24))?;
    let mut at = 0;
    while at + BLOCK_BYTES <= body.len() {
        let lsn = start + at as u64;
        let length = u32_at(body, at + 32) as usize;
        let is_batch = u32_at(body, at) == BATCH_MAGIC && u64_at(body, at + 8) == lsn;
        if !is_batch || length < BATCH_HEAD_BYTES || at + length > body.len() {
            at += BLOCK_BYTES;
            continue;
        }
        let batch = &body[at..at + length];
        if positions.contains(&lsn) && is_of_transactions(batch) {
            found.add_batch(batch)?;
        }
        at += length.next_multiple_of(BLOCK_BYTES);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
        assert!(payload.len() < 0x4000);
        let length = [payload.len() as u8 | 0x80, (payload.len() >> 7) as u8];
        [&[kind][..], &length, &[0; 3], payload].concat()
    }

    fn batch(lsn: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let body = records.concat();
        let mut bytes = vec![0; BATCH_HEAD_BYTES];
        bytes[..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&lsn.to_le_bytes());
        let length = (BATCH_HEAD_BYTES + body.len()) as u32;
        bytes[32..36].copy_from_slice(&length.to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    fn segment(number: u64, batches: &[Vec<u8>]) -> Vec<u8> {
        let segment_bytes = 1u64 << 20;
        let mut bytes = vec![0; BLOCK_BYTES];
        bytes[16..24].copy_from_slice(&number.to_le_bytes());
        bytes[24..32].copy_from_slice(&segment_bytes.to_le_bytes());
        bytes.extend(batches.concat());
        bytes
    }

    /// A note of 5 bytes, tree 18, one change of page 7: a PATCH of 100 bytes; nothing is freed.
    fn tree_record() -> Vec<u8> {
        let mut payload = vec![5, 1, 2, 3, 4, 5, 18, 1, 7, 100, 7];
        payload.extend([b'x'; 99]);
        payload.push(0);
        record(RECORD_TREE, &payload)
    }

    #[test]
    fn batches_of_transactions_are_counted_by_kind_and_change() {
        let start = 3 << 20;
        let of_one = [tree_record(), record(RECORD_PREPARE, &[1; 30]), record(24, &[b'y'; 6000])];
        let first = batch(start, &of_one);
        let second = start + first.len() as u64;
        let no_end = batch(second, &[tree_record()]);
        // A remainder of an earlier life: its position is not where it lies.
        let old = batch(17, &of_one);
        let mut found = LogUse::default();
        let bytes = segment(3, &[first, no_end, old]);
        assert!(read_segment(&bytes, &(0..u64::MAX), &mut found).is_some());
        assert_eq!((found.batches, found.transactions()), (1, 1.0));
        assert_eq!(found.records[&RECORD_TREE].bytes, tree_record().len() as u64);
        assert_eq!(found.records[&24].bytes, 6006);
        assert_eq!((found.changes[&7].count, found.changes[&7].bytes), (1, 100));
        assert_eq!(found.notes.bytes, 5);
        assert_eq!((found.written_bytes, found.lz4_bytes, found.zstd_bytes), (8192, 4096, 4096));
        let mut none = LogUse::default();
        assert!(read_segment(&bytes, &(second..u64::MAX), &mut none).is_some());
        assert_eq!(none.batches, 0);
    }

    #[test]
    fn cut_records_are_no_panic() {
        let whole = batch(0, &[tree_record(), record(RECORD_PREPARE, &[1; 30])]);
        let length = BATCH_HEAD_BYTES + tree_record().len() + 36;
        for cut in BATCH_HEAD_BYTES..length {
            let added = LogUse::default().add_batch(&whole[..cut]);
            let at_record = [0, tree_record().len()].map(|n| n + BATCH_HEAD_BYTES);
            assert_eq!(added.is_some(), at_record.contains(&cut), "cut at {cut}");
        }
    }
}
