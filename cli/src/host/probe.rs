//! How long the storage takes to make a write durable.

use super::statx;
use crate::Result;
use serde_json::{json, Value};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WRITES: usize = 300;
const TIME_LIMIT: Duration = Duration::from_secs(3);
const MIB: usize = 1 << 20;

pub struct Probe {
    pub flush_4k_us: Vec<f64>,
    pub flush_16k_us: Vec<f64>,
    pub random_16k_per_s: f64,
    pub atomic_max_bytes: Option<u32>,
    pub direct_io: bool,
}

impl Probe {
    pub fn to_json(&self) -> Value {
        json!({
            "flush_4k_us": spread(&self.flush_4k_us),
            "flush_16k_us": spread(&self.flush_16k_us),
            "random_16k_writes_per_s": self.random_16k_per_s.round(),
            "atomic_write_max_bytes": self.atomic_max_bytes,
            "direct_io": self.direct_io,
        })
    }
}

fn spread(sorted: &[f64]) -> Value {
    let at = |part: f64| quantile(sorted, part);
    json!({"median": at(0.5), "p95": at(0.95), "p99": at(0.99), "samples": sorted.len()})
}

/// Of sorted values.
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * part).round() as usize).copied()
}

/// Removes its file however the probe ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures in a new file of `mib` MiB below `dir`.
pub fn probe(dir: &Path, mib: usize) -> Result<Probe> {
    let path = dir.join(format!(".sluice-probe-{}", std::process::id()));
    let failed =
        |e: std::io::Error| format!("cannot measure the storage at {}: {e}", dir.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    let scratch = Scratch(path);
    // Written, not only allocated: a first write into an allocated extent also changes metadata.
    let block = noise(MIB);
    for _ in 0..mib.max(1) {
        file.write_all(&block).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let flush_4k_us = flush_times(&file, 4096, mib).map_err(failed)?;
    let flush_16k_us = flush_times(&file, 16384, mib).map_err(failed)?;
    let (direct_io, random_16k_per_s) = random_writes(&scratch.0, mib);
    Ok(Probe {
        flush_4k_us,
        flush_16k_us,
        random_16k_per_s,
        atomic_max_bytes: statx::atomic_write_max_bytes(&scratch.0),
        direct_io,
    })
}

/// Microseconds of a write and fdatasync, sorted.
fn flush_times(file: &File, size: usize, mib: usize) -> std::io::Result<Vec<f64>> {
    let block = noise(size);
    let blocks = (mib.max(1) * MIB / size) as u64;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(WRITES);
    while times.len() < WRITES && begun.elapsed() < TIME_LIMIT {
        let at = times.len() as u64 % blocks * size as u64;
        let start = Instant::now();
        file.write_all_at(&block, at)?;
        file.sync_data()?;
        times.push(start.elapsed().as_nanos() as f64 / 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Whether direct I/O works, and 16 KiB random writes per second of one thread with it.
fn random_writes(path: &Path, mib: usize) -> (bool, f64) {
    const PAGE: usize = 16384;
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path);
    let Ok(file) = direct else { return (false, 0.0) };
    let buffer = noise(2 * PAGE);
    // Direct I/O wants an aligned address.
    let skip = buffer.as_ptr().align_offset(PAGE.min(4096));
    let Some(page) = buffer.get(skip..skip + PAGE) else { return (false, 0.0) };
    let pages = (mib.max(1) * MIB / PAGE) as u64;
    let (begun, mut done, mut at) = (Instant::now(), 0u64, 1u64);
    while begun.elapsed() < TIME_LIMIT / 3 {
        at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        if file.write_all_at(page, (at >> 33) % pages * PAGE as u64).is_err() {
            return (false, 0.0);
        }
        done += 1;
    }
    (true, done as f64 / begun.elapsed().as_secs_f64())
}

/// Bytes that no storage compresses away.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_measures_and_leaves_nothing() {
        let dir = std::env::temp_dir().join(format!("sluice-probe-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let probe = probe(&dir, 1).unwrap();
        assert!(!probe.flush_4k_us.is_empty() && probe.flush_4k_us[0] > 0.0);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
        assert!(super::probe(&dir, 1).is_err());
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0, 9.0], 0.99), Some(9.0));
    }
}
