//! The file system of the binlog is full. A server looks once a minute whether there is room, and
//! the tests need the right to mount: `cargo test ... --test binlog disk_full -- --ignored`.

use crate::case::Case;
use crate::files;
use sluice_rig::client::Fault;
use sluice_server_tests::site::Site;
use sluice_server_tests::small_disk::SmallDisk;
use sluice_server_tests::wait_until;
use sluice_server_tests::writer::{insert, row_of_s};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than a server waits until it looks for room again.
const LIMIT: Duration = Duration::from_secs(240);

fn small_disk(case: &Case) -> SmallDisk {
    let disk = SmallDisk::mount(case.scratch.path("small"), 2 << 20);
    disk.expect("this test needs the right to mount a file system")
}

fn times_full(log: &str) -> usize {
    let is_full = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("no space left")
            || line.find("disk").is_some_and(|at| line[at..].contains("full"))
    };
    log.lines().filter(is_full).count()
}

/// Runs a statement in a thread, and waits until the server finds the disk full by it.
fn run_into_full_disk(site: &Site, sql: &'static str) -> JoinHandle<Result<(), Fault>> {
    let before = times_full(&site.log());
    let mut client = site.patient_client(LIMIT);
    let session = std::thread::spawn(move || client.run(sql));
    wait_until("a word about the full disk", || {
        assert!(
            !session.is_finished() || times_full(&site.log()) > before,
            "it did not wait: {sql}"
        );
        times_full(&site.log()) > before
    });
    session
}

fn on(disk: &SmallDisk) -> String {
    format!("--log-bin={}", disk.0.join("bin").display())
}

fn binlogs(disk: &Path) -> Vec<PathBuf> {
    files::binlogs(&disk.join("bin.index"), disk)
}

/// The file's disk is full: the server waits, as it does, and goes on when there is room.
#[test]
#[ignore = "it waits for a minute, and mounts a file system"]
fn a_full_binlog_disk_stops_nothing_for_good() {
    let mut case = Case::new("a_full_binlog_disk_stops_nothing_for_good");
    let disk = small_disk(&case);
    let options = on(&disk);
    case.d.start(&[&options]);
    case.make_tables();
    disk.fill(1_800_000);
    insert(&case.d, 1..=20, row_of_s);
    let large = "INSERT INTO test.s VALUES (21, REPEAT('x', 1500000))";
    let session = run_into_full_disk(&case.d, large);
    // Reads go on.
    assert_eq!(case.d.count_and_sum("s"), (20, 210), "rows while the disk is full");
    disk.make_room();
    if let Err(fault) = session.join().unwrap() {
        panic!("{fault}");
    }
    assert_eq!(case.d.count_and_sum("s"), (21, 231), "rows");
    case.d.kill();
    case.d.start(&[&options]);
    assert_eq!(case.d.count_and_sum("s"), (21, 231), "rows after a kill");
    case.d.stop();
}

/// A rotation meets a full disk: it waits, as the server does, and goes on when there is room; killed
/// while it waits, nothing acknowledged is lost.
#[test]
#[ignore = "it waits for a minute, and mounts a file system"]
fn a_full_disk_at_a_rotation_loses_nothing() {
    const ROTATE: &str = "FLUSH BINARY LOGS";
    let mut case = Case::new("a_full_disk_at_a_rotation_loses_nothing");
    let disk = small_disk(&case);
    let options = on(&disk);
    case.d.start(&[&options]);
    case.make_tables();
    insert(&case.d, 1..=20, row_of_s);
    disk.fill(usize::MAX);
    let rotation = run_into_full_disk(&case.d, ROTATE);
    assert_eq!(case.d.count_and_sum("s"), (20, 210), "rows while the rotation waits");
    disk.make_room();
    if let Err(fault) = rotation.join().unwrap() {
        panic!("{fault}");
    }
    insert(&case.d, 21..=30, row_of_s);
    disk.fill(usize::MAX);
    let rotation = run_into_full_disk(&case.d, ROTATE);
    case.d.kill();
    assert!(rotation.join().unwrap().is_err(), "the killed rotation was acknowledged");
    disk.make_room();
    case.d.start(&[&options]);
    assert_eq!(case.d.count_and_sum("s"), (30, 465), "rows after a kill");
    insert(&case.d, 31..=40, row_of_s);
    assert_eq!(files::rows_of_s(&binlogs(&disk.0)), 40, "rows in the binlog");
    case.d.stop();
}
