//! Checks the instrument before it measures: a child of this program does things to files under the
//! shim, dies, and the losses must be those that the model says.
//!
//! Safety argument: the calls into libc take descriptors of live files, NUL-terminated literals and
//! a mapping that is as long as what is written to it.

use crate::loss::{AtRisk, Fate, Spare};
use crate::power::{Power, PowerPlan};
use sluice_rig::rng::Rng;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

fn rw(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// What was there, durable, before the child starts.
fn prepare(data: &Path) -> io::Result<()> {
    fs::create_dir_all(data.join("sluice"))?;
    for name in [
        "old",
        "dsync",
        "mapped",
        "cut",
        "gone",
        "moved",
        "target",
        "alloc",
        "vector",
        "ibdata1",
        "ib_logfile0",
    ] {
        fs::write(data.join(name), [b'a'; 8192])?;
    }
    Ok(())
}

/// The child: everything that must be durable is synced, and only that.
pub fn script(data: &Path) -> io::Result<()> {
    let old = rw(&data.join("old"))?;
    old.write_all_at(&[b'b'; 4096], 0)?;
    old.sync_data()?;
    old.write_all_at(&[b'c'; 4096], 0)?;
    let dsync = File::options().write(true).custom_flags(libc::O_DSYNC).open(data.join("dsync"))?;
    let plain = rw(&data.join("dsync"))?;
    plain.write_all_at(&[b'b'; 8192], 0)?;
    dsync.write_all_at(&[b'd'; 512], 1024)?;
    map(&rw(&data.join("mapped"))?)?;
    rw(&data.join("cut"))?.set_len(100)?;
    allocate(&rw(&data.join("alloc"))?)?;
    vector(&rw(&data.join("vector"))?)?;
    // What a checkpoint of InnoDB passes, and what comes after it.
    let pages = rw(&data.join("ibdata1"))?;
    pages.write_all_at(&[b'b'; 4096], 0)?;
    rw(&data.join("ib_logfile0"))?.write_all_at(&[b'b'; 512], 4096)?;
    pages.write_all_at(&[b'c'; 4096], 4096)?;
    let mut appended = File::options().append(true).open(data.join("old"))?;
    appended.write_all(&[b'e'; 1000])?;
    // Strict: the sync of the file is not one of its name.
    let unnamed = rw(&data.join("sluice/unnamed"))?;
    unnamed.write_all_at(b"x", 0)?;
    unnamed.sync_data()?;
    let named = rw(&data.join("sluice/named"))?;
    named.write_all_at(b"x", 0)?;
    named.sync_data()?;
    File::open(data.join("sluice"))?.sync_all()?;
    rw(&data.join("sluice/late"))?.sync_data()?;
    drop(File::create(data.join("target"))?);
    fs::rename(data.join("moved"), data.join("target"))?;
    fs::remove_file(data.join("gone"))?;
    Ok(())
}

fn map(file: &File) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the file has 8192 bytes; the mapping is used as long as it is there.
    let done = unsafe {
        let at = libc::mmap64(
            std::ptr::null_mut(),
            8192,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let bytes = at.cast::<u8>();
        bytes.write_bytes(b'b', 4096);
        let done = libc::msync(at, 4096, libc::MS_SYNC);
        bytes.write_bytes(b'c', 8192);
        done
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn allocate(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fallocate64(file.as_raw_fd(), 0, 16384) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn vector(file: &File) -> io::Result<()> {
    for (byte, at, flags) in [(b'b', 0, libc::RWF_DSYNC), (b'c', 512, 0)] {
        let bytes = [byte; 512];
        let part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: 512 };
        // SAFETY: one part over a live array, which is only read.
        if unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, at, flags) } != 512 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs the script and returns what is left of it under `fate`.
fn left_by(plan: &PowerPlan, dir: &Path, fate: Fate) -> Result<(), Vec<String>> {
    let fail = |error: io::Error| vec![error.to_string()];
    fs::create_dir_all(dir).map_err(fail)?;
    prepare(&dir.join("data")).map_err(fail)?;
    // The clock of file systems is a coarse one.
    std::thread::sleep(Duration::from_millis(20));
    let power = Power::new(plan, dir).map_err(fail)?;
    let program = std::env::current_exe().map_err(fail)?;
    let started = SystemTime::now();
    let status = Command::new(program)
        .args(["shim-script".as_ref(), dir.join("data").as_os_str()])
        .envs(power.environment())
        .status()
        .map_err(fail)?;
    let mut problems = power.unseen(started).map_err(fail)?;
    if !status.success() {
        problems.push(format!("the script: {status}"));
    }
    let side = dir.join("side");
    let strict = [dir.join("data/sluice").canonicalize().map_err(fail)?];
    AtRisk::read(&side, plan.spare)
        .and_then(|risk| risk.lose(&side, &strict, Some(fate), &mut Rng::new(1), &mut io::sink()))
        .map_err(fail)?;
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems),
    }
}

/// Bytes of each file as (count, byte), or None when it must not be there.
type Wanted = (&'static str, Option<&'static [(usize, u8)]>);

const LOST: [Wanted; 14] = [
    ("old", Some(&[(4096, b'b'), (4096, b'a')])),
    ("dsync", Some(&[(1024, b'a'), (512, b'd'), (6656, b'a')])),
    ("mapped", Some(&[(4096, b'b'), (4096, b'a')])),
    ("cut", Some(&[(8192, b'a')])),
    ("alloc", Some(&[(8192, b'a')])),
    ("vector", Some(&[(512, b'b'), (7680, b'a')])),
    ("ibdata1", Some(&[(4096, b'b'), (4096, b'a')])),
    ("ib_logfile0", Some(&[(8192, b'a')])),
    ("moved", Some(&[(8192, b'a')])),
    ("target", Some(&[(8192, b'a')])),
    ("gone", Some(&[(8192, b'a')])),
    ("sluice/unnamed", Some(&[(1, b'x')])),
    ("sluice/named", Some(&[(1, b'x')])),
    ("sluice/late", None),
];

const KEPT: [Wanted; 14] = [
    ("old", Some(&[(4096, b'c'), (4096, b'a'), (1000, b'e')])),
    ("dsync", Some(&[(1024, b'b'), (512, b'd'), (6656, b'b')])),
    ("mapped", Some(&[(8192, b'c')])),
    ("cut", Some(&[(100, b'a')])),
    ("alloc", Some(&[(8192, b'a'), (8192, 0)])),
    ("vector", Some(&[(512, b'b'), (512, b'c'), (7168, b'a')])),
    ("ibdata1", Some(&[(4096, b'b'), (4096, b'c')])),
    ("ib_logfile0", Some(&[(4096, b'a'), (512, b'b'), (3584, b'a')])),
    ("moved", None),
    ("target", Some(&[(8192, b'a')])),
    ("gone", None),
    ("sluice/unnamed", Some(&[(1, b'x')])),
    ("sluice/named", Some(&[(1, b'x')])),
    ("sluice/late", Some(&[])),
];

fn differences(data: &Path, wanted: &[Wanted]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, wanted) in wanted {
        let is = fs::read(data.join(name)).ok();
        let must: Option<Vec<u8>> =
            wanted.map(|runs| runs.iter().flat_map(|(n, byte)| vec![*byte; *n]).collect());
        if is != must {
            let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(Vec::len);
            let at = is.iter().flatten().zip(must.iter().flatten()).position(|(a, b)| a != b);
            found.push(format!("{name}: {:?} bytes, not {:?}, at {at:?}", len(&is), len(&must)));
        }
    }
    found
}

/// Every way in which the shim and the model differ from what they should be.
pub fn run(plan: &PowerPlan, dir: &Path) -> Vec<String> {
    let plan = &PowerPlan { ignore_sync: String::new(), spare: Spare::ALL, ..plan.clone() };
    let mut problems = Vec::new();
    for (fate, wanted) in [(Fate::Nothing, &LOST), (Fate::Everything, &KEPT)] {
        let dir = dir.join(format!("{fate:?}"));
        problems.extend(left_by(plan, &dir, fate).err().unwrap_or_default());
        let found = differences(&dir.join("data"), wanted);
        problems.extend(found.into_iter().map(|p| format!("shim check, {fate:?} survives: {p}")));
        let _ = fs::remove_dir_all(&dir);
    }
    problems
}
