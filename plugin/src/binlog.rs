//! The engine's binlog room as the server's hook sees it, and the file beside the binlog that
//! says whose log holds its end.

use crate::binlog_index::{self, failed};
use crate::engine;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{self, Binlog, Decision, Fallback, Known, Level, Verdict, Write};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the log knows of the completed file, or why it does not; `None`: there is nothing to scan.
static SCAN: Mutex<Option<std::result::Result<Known, &'static str>>> = Mutex::new(None);

/// Where the mark stands; `None` before the start and after the stop.
static MARK: Mutex<Option<PathBuf>> = Mutex::new(None);

pub const INSIDE: u32 = 0;
pub const DURABLE: u32 = 1;
pub const SERVER: u32 = 2;

pub const DIRECT: u32 = 1;
pub const FULL: u32 = 2;
pub const FAILED: u32 = 4;
pub const SYNC: u32 = 8;

fn binlog() -> Result<&'static Arc<Binlog>> {
    Ok(engine::get()?.binlog())
}

/// Completes the binlog after a crash, before the server opens it. Refuses to start when another
/// log than this one holds its end.
pub fn start(index: &Path, mark: &Path, on: bool) -> Result<()> {
    let binlog = binlog()?;
    check_mark(binlog, mark)?;
    let zeros = binlog_index::mend(index)?;
    if zeros > 0 {
        let text = format!(
            "binary log: {zeros} bytes removed from {}: what a loss of power left of a name that was \
             not written yet",
            index.display()
        );
        engine::log(Level::Warning, &text);
    }
    let done = binlog.complete(&binlog_index::names(index)?)?;
    for warning in &done.warnings {
        engine::log(Level::Error, &format!("binary log: {warning}"));
    }
    if done.completed_bytes + done.cut_bytes > 0 {
        let text = format!(
            "binary log: {} bytes completed from the log, {} bytes cut that were neither \
             acknowledged nor sent to a replica",
            done.completed_bytes, done.cut_bytes
        );
        engine::log(Level::Note, &text);
    }
    if last_is_in_use(binlog, index)? {
        *SCAN.lock().unwrap_or_else(|e| e.into_inner()) = Some(done.known);
    }
    *MARK.lock().unwrap_or_else(|e| e.into_inner()) = Some(mark.to_owned());
    set_on(on)
}

/// What the mark says: the number of the log that holds the end of this binlog.
fn mark_line(identity: u64) -> String {
    format!("sluice {identity:016x}\n")
}

fn check_mark(binlog: &Binlog, mark: &Path) -> Result<()> {
    let text = match fs::read_to_string(mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed("read", mark))?,
    };
    // A crash while it was written leaves less than a line: nothing depended on it yet.
    let is_whole = text.lines().next().is_some_and(|l| l.len() == 23) && text.contains('\n');
    if !is_whole || (!binlog.is_new() && text.starts_with(&mark_line(binlog.identity()?))) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{} says that the end of the binary log is in the log of a Sluice engine, but not of this \
         one: restore its files (directories sluice and sluice_log_dir), or remove {} to start \
         without the transactions at the end of the binary log",
        mark.display(),
        mark.display()
    )))
}

/// Writes a file; its bytes and its name are durable then.
fn write_durably(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::File::create(path).map_err(failed("create", path))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(failed("write", path))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|d| d.sync_all()).map_err(failed("sync", parent))
}

fn write_mark(binlog: &Binlog, mark: &Path) -> Result<()> {
    let line = mark_line(binlog.identity()?);
    let text = "The end of this binary log is in the log of the Sluice engine: start the server \
                with the plugin ha_sluice, which completes it.\n";
    write_durably(mark, &(line + text))
}

fn remove_mark(mark: &Path) -> Result<()> {
    match fs::remove_file(mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed("remove", mark)),
    }
}

/// The mark is there before the first byte is in the log only, and goes after the last is synced.
pub fn set_on(on: bool) -> Result<()> {
    let binlog = binlog()?;
    let mark = MARK.lock().unwrap_or_else(|e| e.into_inner());
    let Some(mark) = &*mark else { return Ok(()) };
    if on {
        write_mark(binlog, mark)?;
        return binlog.set_wanted(true);
    }
    binlog.set_wanted(false)?;
    remove_mark(mark)
}

/// The server has closed its binlog, or goes on without the plugin.
pub fn stop() -> Result<()> {
    binlog()?.detach()?;
    let mut mark = MARK.lock().unwrap_or_else(|e| e.into_inner());
    mark.take().map_or(Ok(()), |mark| remove_mark(&mark))
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

/// Would the server scan the last file in its index?
fn last_is_in_use(binlog: &Binlog, index: &Path) -> Result<bool> {
    match binlog_index::names(index)?.last() {
        Some(last) if Path::new(last).exists() => binlog.is_in_use(last),
        _ => Ok(false),
    }
}

/// Blocks of the server's log of DDL statements, and the byte that begins one whose statement a
/// crash interrupted.
const DDL_BLOCK_BYTES: usize = 4096;
const DDL_EXECUTE: u8 = 1;
const DDL_LOG_BYTES_MAX: u64 = 16 << 20;

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
pub fn scan_known(ddl_log: &Path) -> Result<bool> {
    let scan = SCAN.lock().unwrap_or_else(|e| e.into_inner());
    let reason = match &*scan {
        None => return Ok(false),
        Some(Err(reason)) => reason,
        Some(Ok(_)) if has_open_ddl(ddl_log)? => "a DDL statement was interrupted",
        Some(Ok(_)) => return Ok(true),
    };
    engine::log(Level::Note, &format!("the binary log is left to the server's scan: {reason}"));
    Ok(false)
}

/// Of a prepared transaction of this engine it is known from where on in the log it can be.
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
pub fn close_completed(state: &Path) -> Result<()> {
    let scan = SCAN.lock().unwrap_or_else(|e| e.into_inner()).take();
    let Some(Ok(known)) = scan else { return Ok(()) };
    let lines = known.gtids.iter().map(|g| format!("{}-{}-{}\n", g.domain, g.server, g.sequence));
    write_durably(state, &lines.collect::<String>())?;
    binlog()?.close_completed()
}
