//! The exported functions of the hook in the binary log. Safety argument: see `abi.rs`, of which
//! this is a part.

use super::*;
use crate::binlog;
use std::path::Path;

exports! {
fn sluice_binlog_start(index: *const c_char, base: *const c_char, flags: u32) -> i32 {
    guard(|| {
        let files = match index.is_null() || base.is_null() {
            true => None,
            // SAFETY: argument 3.
            false => Some(unsafe { (Path::new(text(index)?), Path::new(text(base)?)) }),
        };
        binlog::start(files, flags).map(|()| 0)
    })
}

fn sluice_binlog_stop() -> i32 {
    guard(|| binlog::stop().map(|()| 0))
}

fn sluice_binlog_prepare_switch() -> i32 {
    guard(|| binlog::prepare_switch().map(|()| 0))
}

fn sluice_binlog_set_on(on: u32) -> i32 {
    guard(|| binlog::set_on(on != 0).map(|()| 0))
}

fn sluice_binlog_opened(path: *const c_char, pos: u64) -> i32 {
    // SAFETY: argument 3.
    guard(|| binlog::opened(unsafe { text(path)? }, pos).map(|()| 0))
}

fn sluice_binlog_before_write() -> i32 {
    guard(|| binlog::before_write().map(|()| 0))
}

fn sluice_binlog_wrote(
    pos: u64,
    bytes: *const u8,
    length: usize,
    flags: u32,
    verdict: *mut u32,
) -> i32 {
    guard(|| {
        // SAFETY: argument 3: `bytes` has `length` bytes, `verdict` is a place for a number.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes, length);
            verdict.write(binlog::wrote(pos, bytes, flags)?);
        }
        Ok(0)
    })
}

fn sluice_binlog_covers(path: *const c_char, pos: u64) -> i32 {
    // SAFETY: argument 3.
    guard_or(0, || binlog::covers(unsafe { text(path)? }, pos).map(i32::from))
}

fn sluice_binlog_lost(reason: u32) -> i32 {
    guard(|| binlog::lost(reason).map(|()| 0))
}

fn sluice_binlog_step(is_due: u32) -> i32 {
    guard(|| binlog::step(is_due != 0).map(|()| 0))
}

fn sluice_binlog_scan_known(ddl_log: *const c_char) -> i32 {
    // SAFETY: argument 3.
    guard_or(-1, || binlog::scan_known(Path::new(unsafe { text(ddl_log)? })))
}

fn sluice_binlog_decide(xid: u64, is_ours: i32) -> i32 {
    guard_or(-1, || binlog::decide(xid, is_ours != 0))
}

fn sluice_binlog_close_completed() -> i32 {
    guard(|| binlog::close_completed().map(|()| 0))
}
}
