//! The structures of `cpp/sluice_abi.h`, field by field; `tests/abi.rs` compares both.

use std::ffi::{c_char, c_void};

#[repr(C)]
pub struct AbiColumn {
    pub kind: u32,
    pub offset: u32,
    pub length: u32,
    pub null_offset: u32,
    pub null_bit: u8,
    pub length_bytes: u8,
    pub order: u8,
    pub space_bytes: u8,
    pub space: [u8; 4],
    pub char_bytes_max: u32,
    pub expansion: u32,
    pub collation_id: u32,
    pub levels: u32,
    pub charset: *const c_void,
    pub fingerprint: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct AbiKeyPart {
    pub column: u32,
    pub length: u32,
    pub flags: u32,
    pub image_bytes: u32,
}

#[repr(C)]
pub struct AbiKey {
    pub parts: *const AbiKeyPart,
    pub part_count: u32,
    pub extended_count: u32,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct AbiTable {
    pub columns: *const AbiColumn,
    pub keys: *const AbiKey,
    pub defaults: *const u8,
    pub column_count: u32,
    pub key_count: u32,
    pub primary: u32,
    pub record_bytes: u32,
    pub null_bytes: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct AbiConfig {
    pub data_dir: *const c_char,
    pub log_dir: *const c_char,
    pub buffer_pool_bytes: u64,
    pub log_capacity_bytes: u64,
    pub flush_at_commit: u32,
    pub compression: u32,
    pub log_compression: u32,
    pub space_amplification_pct: u32,
    pub encrypts: u32,
    pub encryption_key_id: u32,
    pub rotate_key_age: u32,
    pub page_deltas: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AbiHost {
    pub log: extern "C" fn(i32, *const c_char, usize),
    pub lock_wait: extern "C" fn(u64, u64),
    pub wait_begin: extern "C" fn(u64),
    pub wait_end: extern "C" fn(u64),
    pub killed: extern "C" fn(u64) -> i32,
    pub weights: extern "C" fn(*const c_void, u32, *mut u8, usize, *const u8, usize) -> usize,
    pub prefix: extern "C" fn(*const c_void, *const u8, usize, usize) -> usize,
    pub file_opened: extern "C" fn(u32, *const c_char) -> *mut c_void,
    pub file_closed: extern "C" fn(*mut c_void),
    pub file_removed: extern "C" fn(*const c_char),
    pub file_begin: extern "C" fn(*mut c_void, u32, usize, *mut AbiWatch),
    pub file_end: extern "C" fn(usize, *mut AbiWatch),
    pub pause_begin: extern "C" fn(u32, *mut AbiWatch),
    pub pause_end: extern "C" fn(*mut AbiWatch),
    pub thread_begin: extern "C" fn(u32),
    pub thread_end: extern "C" fn(),
    pub key_newest: extern "C" fn(u32) -> u32,
    pub key: extern "C" fn(u32, u32, *mut u8, u32) -> u32,
}

#[repr(C)]
pub struct AbiWatch {
    pub locker: *mut c_void,
    pub state: [u64; 32],
}

#[repr(C)]
pub struct AbiXid {
    pub format: i64,
    pub gtrid_bytes: i64,
    pub bqual_bytes: i64,
    pub data: [u8; 128],
}

#[repr(C)]
pub struct AbiStatusValue {
    pub name: [u8; 64],
    pub value: u64,
}

#[repr(C)]
pub struct AbiWrites {
    pub log: u64,
    pub build: u64,
    pub eviction: u64,
    pub checkpoint: u64,
    pub gc: u64,
    pub other: u64,
    pub total: u64,
}

#[repr(C)]
pub struct AbiInfo {
    pub rows: u64,
    pub data_bytes: u64,
    pub index_bytes: u64,
    pub next_autoinc: u64,
    pub clustered_pages: u64,
    pub statistics_version: u64,
}

#[repr(C)]
pub struct AbiKeyStatistics {
    pub entries: u64,
    pub leaf_pages: u64,
    pub distinct: [u64; 64],
    pub count: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct AbiRange {
    pub rows: u64,
    pub first_page: u64,
    pub last_page: u64,
}

#[repr(C)]
pub struct AbiAutoinc {
    pub offset: u64,
    pub increment: u64,
    pub rows: u64,
    pub max: u64,
    pub is_alter: u64,
}

#[repr(C)]
pub struct AbiBound {
    pub image: *const u8,
    pub image_bytes: usize,
    pub parts: u32,
    pub inclusive: u32,
}
