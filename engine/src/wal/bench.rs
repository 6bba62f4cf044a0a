//! Figures of the commit path on this machine:
//! `cargo test --release -p sluice-engine wal::bench -- --ignored --nocapture`.

use super::{Wal, WalOptions};
use crate::os::sync::Mutex;
use crate::os::RealOs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A directory beside the build's output (a real disk, unlike many /tmp), removed at the end.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let exe = std::env::current_exe().unwrap();
        let path = exe.parent().unwrap().join(format!("wal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn context_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let lines = status.lines().filter(|l| l.contains("ctxt_switches"));
    lines.filter_map(|l| l.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

fn commits(threads: u64, flush: bool, run: Duration) {
    let dir = TempDir::new("bench");
    let wal = Wal::create(RealOs::new(), WalOptions::new(dir.path().join("log"))).unwrap();
    while wal.prepare_step().unwrap() {}
    let (stop, done, switches) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let waits_ns = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                wal.retain_from(wal.durable());
                if !(wal.prepare_step().unwrap() | wal.write_step().unwrap()) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for _ in 0..threads {
            scope.spawn(|| {
                let payload = [42; 200];
                let mut own_waits_ns = Vec::new();
                // One commit at least, however late the thread begins.
                while own_waits_ns.is_empty() || !stop.load(Ordering::Relaxed) {
                    wal.admit().unwrap();
                    let at = wal.append(1, &[&payload[..50], &payload[50..]]);
                    let began = Instant::now();
                    if flush {
                        wal.flush_to(at.end).unwrap();
                    }
                    own_waits_ns.push(began.elapsed().as_nanos() as u64);
                }
                done.fetch_add(own_waits_ns.len() as u64, Ordering::Relaxed);
                waits_ns.lock().append(&mut own_waits_ns);
                switches.fetch_add(context_switches(), Ordering::Relaxed);
            });
        }
        std::thread::sleep(run);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = began.elapsed().as_secs_f64();
    let stats = wal.stats();
    let mut waits_ns = waits_ns.into_inner();
    waits_ns.sort_unstable();
    let wait_us = |percent: usize| waits_ns[(waits_ns.len() - 1) * percent / 100] / 1000;
    let commits = done.into_inner() as f64;
    println!(
        "{threads:3} threads, flush {flush:5}: {:9.0} appends/s, {:6.0} flushes/s ({} by one write), \
         {:5.2} context switches an append, wait p50 {} us, p99 {} us, {} late segments",
        commits / seconds,
        stats.flushes as f64 / seconds,
        stats.flushes_by_one_write,
        switches.into_inner() as f64 / commits,
        wait_us(50),
        wait_us(99),
        stats.segments_late,
    );
}

#[test]
#[ignore = "a measurement, not a check"]
fn commits_per_second() {
    for threads in [1, 2, 16, 64] {
        commits(threads, true, Duration::from_secs(2));
    }
    for threads in [1, 16] {
        commits(threads, false, Duration::from_secs(2));
    }
}

/// Keeps the measurement itself alive.
#[test]
fn a_moment_of_commits() {
    commits(4, true, Duration::from_millis(20));
}
