//! Which pages a transaction visits, how much it changes there, and what it logs.

use crate::sizes::{Codec, LogCodec, LogSizes, RowSizes};
use crate::sizes::{INDEX_INSERT, INDEX_MARK, INDEX_PURGE};
use crate::tpcc::Tpcc;
use sluice_rig::rng::Rng;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub page: u32,
    /// 0: it only reads.
    pub change_bytes: u32,
}

/// The distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    Uniform,
    /// Of this exponent, the most wanted row first, as sysbench draws them.
    Zipf(f64),
    /// New rows after the last one.
    Append,
}

/// Updates, or inserts, of single rows of sysbench's tables.
#[derive(Clone, Debug)]
pub struct Rows {
    pub keys: Keys,
    pub sizes: RowSizes,
    pub tables: u32,
    pub rows: u64,
    /// The column that changes has an index.
    pub index: bool,
    pub codec: Codec,
}

/// Transactions between the commit of a delete mark and its purge.
const PURGE_LAG: usize = 500;

impl Rows {
    pub fn leaves(&self) -> u32 {
        (self.rows as f64 / self.sizes.rows_per_leaf).ceil() as u32
    }

    pub fn index_leaves(&self) -> u32 {
        (self.rows as f64 / self.sizes.entries_per_index_leaf).ceil() as u32
    }

    fn log(&self) -> LogSizes {
        match self.index {
            true => self.sizes.log_k,
            false => self.sizes.log_c,
        }
    }
}

enum Kind {
    Rows { rows: Rows, purge: VecDeque<u32>, appended: u64 },
    Tpcc(Box<Tpcc>),
}

pub struct Workload {
    rng: Rng,
    kind: Kind,
    log_codec: LogCodec,
    buffer: Vec<Visit>,
}

/// In [0, 1).
pub fn fraction(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

pub fn below(rng: &mut Rng, end: u64) -> u64 {
    // The bias is below 2^-30 for the ranges here.
    rng.next_u64() % end
}

/// A rank below `n`, of which rank r has a weight of about 1 / (r + 1)^exponent: the inverse of the
/// integral, from one half before the first rank to one half after the last.
pub fn zipf(rng: &mut Rng, n: u64, exponent: f64) -> u64 {
    assert!(exponent < 1.0, "other exponents have another integral");
    let e = 1.0 - exponent;
    let (least, most) = (0.5f64.powf(e), (n as f64 + 0.5).powf(e));
    let x = (least + fraction(rng) * (most - least)).powf(1.0 / e);
    ((x + 0.5) as u64).clamp(1, n) - 1
}

impl Workload {
    pub fn rows(rows: Rows, log_codec: LogCodec, seed: u64) -> Workload {
        let kind = Kind::Rows { rows, purge: VecDeque::new(), appended: 0 };
        Workload { rng: Rng::new(seed), kind, log_codec, buffer: Vec::new() }
    }

    pub fn tpcc(warehouses: u32, codec: Codec, log_codec: LogCodec, seed: u64) -> Workload {
        let kind = Kind::Tpcc(Box::new(Tpcc::new(warehouses, codec)));
        Workload { rng: Rng::new(seed), kind, log_codec, buffer: Vec::new() }
    }

    /// Pages that are loaded at the start.
    pub fn pages(&self) -> u32 {
        match &self.kind {
            Kind::Rows { rows, .. } => {
                let index = if rows.index { rows.index_leaves() } else { 0 };
                rows.tables * (rows.leaves() + index)
            }
            Kind::Tpcc(tpcc) => tpcc.loaded_pages(),
        }
    }

    pub fn image_bytes(&self, page: u32) -> u32 {
        match &self.kind {
            Kind::Rows { rows, .. } => {
                let index = rows.index
                    && page < self.pages()
                    && page % (rows.leaves() + rows.index_leaves()) >= rows.leaves();
                match (index, rows.codec) {
                    (false, Codec::Lz4) => rows.sizes.leaf_lz4,
                    (false, Codec::Zstd) => rows.sizes.leaf_zstd,
                    (true, Codec::Lz4) => rows.sizes.index_leaf_lz4,
                    (true, Codec::Zstd) => rows.sizes.index_leaf_zstd,
                }
            }
            Kind::Tpcc(tpcc) => tpcc.image_bytes(page),
        }
    }

    /// Of one transaction: what a restart looks at, and what the binlog's file gets.
    pub fn log_sizes(&self) -> LogSizes {
        match &self.kind {
            Kind::Rows { rows, .. } => rows.log(),
            Kind::Tpcc(_) => Tpcc::LOG,
        }
    }

    /// One transaction; answers its bytes of log.
    pub fn next(&mut self, visits: &mut Vec<Visit>) -> u64 {
        let log_bytes = self.log_sizes().written(self.log_codec);
        match &mut self.kind {
            Kind::Tpcc(tpcc) => tpcc.next(&mut self.rng, visits),
            Kind::Rows { rows, appended, .. } if rows.keys == Keys::Append => {
                let loaded = u64::from(rows.tables * rows.leaves());
                let leaf = loaded + (*appended as f64 / rows.sizes.rows_per_leaf) as u64;
                *appended += 1;
                let row_bytes = (16_384.0 / rows.sizes.rows_per_leaf) as u32;
                visits.push(Visit { page: leaf as u32, change_bytes: row_bytes });
            }
            Kind::Rows { rows, purge, .. } => {
                update(rows, &mut self.rng, visits);
                if rows.index {
                    purge.push_back(visits[visits.len() - 1].page);
                    if purge.len() > PURGE_LAG {
                        let page = purge.pop_front().unwrap_or_default();
                        visits.push(Visit { page, change_bytes: INDEX_PURGE });
                    }
                }
            }
        }
        log_bytes
    }

    /// The vector of visits, kept to spare an allocation each time.
    pub fn take_buffer(&mut self) -> Vec<Visit> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    pub fn give_buffer(&mut self, buffer: Vec<Visit>) {
        self.buffer = buffer;
    }
}

fn update(rows: &Rows, rng: &mut Rng, visits: &mut Vec<Visit>) {
    let index_leaves = if rows.index { rows.index_leaves() } else { 0 };
    let first = below(rng, u64::from(rows.tables)) as u32 * (rows.leaves() + index_leaves);
    let row = match rows.keys {
        Keys::Zipf(exponent) => zipf(rng, rows.rows, exponent),
        Keys::Uniform | Keys::Append => below(rng, rows.rows),
    };
    let leaf = first + (row as f64 / rows.sizes.rows_per_leaf) as u32;
    if !rows.index {
        visits.push(Visit { page: leaf, change_bytes: rows.sizes.change_c });
        return;
    }
    visits.push(Visit { page: leaf, change_bytes: rows.sizes.change_k });
    // k was drawn at random for each row; k + 1 nearly always lies in the same leaf.
    let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let of_index = (spread * u64::from(index_leaves)) >> 32;
    let page = first + rows.leaves() + of_index as u32;
    visits.push(Visit { page, change_bytes: INDEX_MARK });
    visits.push(Visit { page, change_bytes: INDEX_INSERT });
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
