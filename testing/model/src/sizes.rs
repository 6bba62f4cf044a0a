//! Sizes that the predictions rest on, measured on a server: docs/decisions/0025-owed-pages.md says
//! how.

/// A page and what a frame holds beside it.
pub const FRAME_BYTES: u64 = 16_384 + 256;
/// In front of each owed change: LSN and length (`buffer/owed.rs`).
pub const CHANGE_HEAD_BYTES: u32 = 12;
/// Entry of the owed set, the page's head, and the allocator's.
pub const OWED_PAGE_BYTES: u64 = 120;
/// Head of a record of the store (`store/record.rs`).
pub const RECORD_BYTES: u32 = 28;
/// Log that one thread scans in a second at a restart, uncompressed.
pub const SCAN_BYTES_PER_SECOND: f64 = 0.3e9;

/// How page images are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Lz4,
    Zstd,
}

/// How the log's batches are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCodec {
    Plain,
    Lz4,
    Zstd,
}

/// Bytes of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct LogSizes {
    /// Of its records, before any compression: what a restart looks at.
    pub records: u64,
    /// As written, with the padding of its share of a batch, by codec.
    pub plain: u64,
    pub lz4: u64,
    pub zstd: u64,
    /// In the binlog's file.
    pub binlog: u64,
}

impl LogSizes {
    pub fn written(&self, codec: LogCodec) -> u64 {
        match codec {
            LogCodec::Plain => self.plain,
            LogCodec::Lz4 => self.lz4,
            LogCodec::Zstd => self.zstd,
        }
    }
}

/// A table of `rows.lua`, with 24 threads that change it.
#[derive(Clone, Copy, Debug)]
pub struct RowSizes {
    pub rows_per_leaf: f64,
    pub leaf_lz4: u32,
    pub leaf_zstd: u32,
    pub entries_per_index_leaf: f64,
    pub index_leaf_lz4: u32,
    pub index_leaf_zstd: u32,
    /// Of `c`, of `k`: changes of a row.
    pub change_c: u32,
    pub change_k: u32,
    pub log_c: LogSizes,
    pub log_k: LogSizes,
}

impl RowSizes {
    /// As if nearly every entry had a header of 1 byte instead of 15: leaves hold more entries of
    /// 219 and 34 bytes. That an image compresses as before is an assumption.
    pub fn frozen(mut self) -> RowSizes {
        self.rows_per_leaf /= 1.0 - 14.0 * self.rows_per_leaf / 16_384.0;
        self.entries_per_index_leaf *= 34.0 / 20.0;
        self
    }
}

/// Changes of a secondary index when `k` changes: old entry marked, new one, old one purged.
pub const INDEX_MARK: u32 = 19;
pub const INDEX_INSERT: u32 = 27;
pub const INDEX_PURGE: u32 = 3;

pub const ROWS_188: RowSizes = RowSizes {
    rows_per_leaf: 74.85,
    leaf_lz4: 14_067,
    leaf_zstd: 8_798,
    entries_per_index_leaf: 311.9,
    index_leaf_lz4: 8_902,
    index_leaf_zstd: 6_183,
    change_c: 128,
    change_k: 10,
    log_c: LogSizes { records: 1132, plain: 1343, lz4: 730, zstd: 546, binlog: 733 },
    log_k: LogSizes { records: 1045, plain: 1354, lz4: 803, zstd: 680, binlog: 616 },
};

pub const ROWS_512: RowSizes = RowSizes {
    rows_per_leaf: 29.95,
    leaf_lz4: 14_243,
    leaf_zstd: 8_513,
    entries_per_index_leaf: 309.9,
    index_leaf_lz4: 7_988,
    index_leaf_zstd: 6_526,
    change_c: 453,
    change_k: 11,
    log_c: LogSizes { records: 2763, plain: 3111, lz4: 1522, zstd: 1078, binlog: 1707 },
    log_k: LogSizes { records: 2017, plain: 2260, lz4: 1121, zstd: 882, binlog: 1266 },
};
