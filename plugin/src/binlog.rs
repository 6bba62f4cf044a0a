//! The engine's binlog room as the server's hook sees it.

use crate::engine;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{self, Binlog, Decision, Fallback, Level, Setting, Verdict, Write};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is left to do of the server's scan after a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    Nothing,
    /// The log knows all that the server would find.
    Known,
    /// The server will not look at these files: what they have is committed.
    Aside,
    /// The server scans, for this reason.
    Left(&'static str),
}

static SCAN: Mutex<Scan> = Mutex::new(Scan::Nothing);

pub const INSIDE: u32 = 0;
pub const DURABLE: u32 = 1;
pub const SERVER: u32 = 2;

pub const DIRECT: u32 = 1;
pub const FULL: u32 = 2;
pub const FAILED: u32 = 4;
pub const SYNC: u32 = 8;

/// Flags of a start.
pub const ON: u32 = 1;
pub const ABANDON: u32 = 2;
pub const RUNNING: u32 = 4;

/// Answers of [`scan_known`].
const SCAN_LEFT: i32 = 0;
const SCAN_KNOWN: i32 = 1;
const SCAN_ASIDE: i32 = 2;
const SCAN_NOTHING: i32 = 3;

fn binlog() -> Result<&'static Arc<Binlog>> {
    Ok(engine::get()?.binlog())
}

/// Completes the binlog after a crash, before the server opens it. `files`: its index, and the name
/// of its files without a number; `None` without a binlog.
pub fn start(files: Option<(&Path, &Path)>, flags: u32) -> Result<()> {
    let binlog = binlog()?;
    let (may_abandon, is_running) = (flags & ABANDON != 0, flags & RUNNING != 0);
    let done = binlog.start(Setting { files, may_abandon, is_running })?;
    for warning in &done.warnings {
        engine::log(Level::Error, &format!("binary log: {warning}"));
    }
    for note in &done.notes {
        engine::log(Level::Warning, &format!("binary log: {note}"));
    }
    if done.completed_bytes + done.cut_bytes > 0 {
        let text = format!(
            "binary log: {} bytes completed from the log, {} bytes cut",
            done.completed_bytes, done.cut_bytes
        );
        engine::log(Level::Note, &text);
    }
    *SCAN.lock().unwrap_or_else(|e| e.into_inner()) = match done.known {
        _ if done.is_aside => Scan::Aside,
        _ if done.is_closed => Scan::Nothing,
        Ok(_) => Scan::Known,
        Err(reason) => Scan::Left(reason),
    };
    if flags & ON == 0 || files.is_none() {
        return binlog.remove_mark();
    }
    binlog.prepare_switch()?;
    binlog.switch(true)
}

/// Makes ready what the switch to ON needs: an error leaves it as it is.
pub fn prepare_switch() -> Result<()> {
    binlog()?.prepare_switch()
}

pub fn set_on(on: bool) -> Result<()> {
    let binlog = binlog()?;
    binlog.switch(on)?;
    // A mark too many does no harm.
    if let Err(error) = binlog.remove_mark() {
        engine::log(Level::Warning, &format!("binary log: {error}"));
    }
    Ok(())
}

/// The server has closed its binlog, or goes on without the plugin.
pub fn stop() -> Result<()> {
    binlog()?.stop()
}

pub fn opened(path: &str, pos: u64) -> Result<()> {
    binlog()?.opened(path, pos)
}

pub fn before_write() -> Result<()> {
    binlog()?.before_write()
}

pub fn wrote(pos: u64, bytes: &[u8], flags: u32) -> Result<u32> {
    let write = Write {
        pos,
        bytes,
        is_direct: flags & DIRECT != 0,
        is_full: flags & FULL != 0,
        has_failed: flags & FAILED != 0,
        durable: flags & SYNC != 0,
    };
    Ok(match binlog()?.wrote(write)? {
        Verdict::Inside => INSIDE,
        Verdict::Durable => DURABLE,
        Verdict::Server => SERVER,
    })
}

pub fn lost(reason: u32) -> Result<()> {
    binlog()?.lost_hook(Fallback::from_number(reason))
}

pub fn covers(path: &str, pos: u64) -> Result<bool> {
    Ok(binlog()?.covers(path, pos))
}

pub fn step(is_due: bool) -> Result<()> {
    db::Engine::binlog_step(engine::get()?, is_due)
}

/// Blocks of the server's log of DDL statements, and the byte that begins one whose statement a
/// crash interrupted.
const DDL_BLOCK_BYTES: usize = 4096;
const DDL_EXECUTE: u8 = 1;
const DDL_LOG_BYTES_MAX: u64 = 16 << 20;

fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::io(op, path, error)
}

/// Has a crash interrupted a DDL statement? Then the server looks for its XID in the binlog.
fn has_open_ddl(path: &Path) -> Result<bool> {
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("stat", path)(error)),
        Ok(meta) if meta.len() > DDL_LOG_BYTES_MAX => return Ok(true),
        Ok(_) => fs::read(path).map_err(failed("read", path))?,
    };
    // The header says how long blocks are.
    if bytes.len() >= 6 && u16::from_le_bytes([bytes[4], bytes[5]]) as usize != DDL_BLOCK_BYTES {
        return Ok(true);
    }
    Ok(bytes.chunks(DDL_BLOCK_BYTES).skip(1).any(|block| block[0] == DDL_EXECUTE))
}

/// Can the server's scan be done without? If not, the error log says why.
pub fn scan_known(ddl_log: &Path) -> Result<i32> {
    let scan = *SCAN.lock().unwrap_or_else(|e| e.into_inner());
    let reason = match scan {
        Scan::Nothing => return Ok(SCAN_NOTHING),
        Scan::Aside => return Ok(SCAN_ASIDE),
        Scan::Left(reason) => reason,
        Scan::Known if has_open_ddl(ddl_log)? => "a DDL statement was interrupted",
        Scan::Known => return Ok(SCAN_KNOWN),
    };
    engine::log(Level::Note, &format!("the binary log is left to the server's scan: {reason}"));
    Ok(SCAN_LEFT)
}

/// The engine knows from where on in the log its own prepared transactions can be.
pub fn decide(xid: u64, is_ours: bool) -> Result<i32> {
    let engine = engine::get()?;
    let prepared_from = if is_ours { engine.oldest_prepared() } else { Default::default() };
    Ok(match engine.binlog().decide(xid, prepared_from) {
        Decision::Rollback => 0,
        Decision::Commit => 1,
        Decision::Unknown => -1,
    })
}

/// First the GTID state, then the flag that makes the server read it.
pub fn close_completed() -> Result<()> {
    let mut scan = SCAN.lock().unwrap_or_else(|e| e.into_inner());
    match std::mem::replace(&mut *scan, Scan::Nothing) {
        Scan::Known => binlog()?.close_completed(),
        _ => Ok(()),
    }
}
