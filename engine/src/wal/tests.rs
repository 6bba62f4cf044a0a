//! Unit tests of the log as a whole, without crashes.

use super::format::{BATCH_TARGET_BYTES, BLOCK};
use super::inspect::SegmentInfo;
use super::*;
use crate::base::compress::Compression;
use crate::base::limits::RECORD_BYTES_MAX;
use crate::base::{Error, Result};
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::{Os, RealOs};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub(super) const DIR: &str = "/log";

pub(super) fn options() -> WalOptions {
    WalOptions {
        dir: DIR.into(),
        capacity_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        cache_bytes: 64 << 10,
        compression: Compression::None,
        cipher: None,
    }
}

pub(super) fn create(os: &Arc<SimOs>) -> Arc<Wal> {
    Wal::create(os.clone(), options()).unwrap()
}

pub(super) type Records = Vec<(Lsn, u8, Vec<u8>)>;

pub(super) fn recover(os: &Arc<SimOs>, anchor: WalAnchor) -> Result<(Arc<Wal>, Records)> {
    let mut found = Vec::new();
    let wal = Wal::recover(os.clone(), options(), anchor, &mut |lsn, r| {
        found.push((lsn, r.kind, r.payload.to_vec()));
        Ok(())
    })?;
    Ok((wal, found))
}

pub(super) fn anchor_at(scan_from: Lsn, durable: Lsn) -> WalAnchor {
    WalAnchor { scan_from, durable }
}

fn scanned(wal: &Wal, from: Lsn, to: Lsn) -> Records {
    let mut found = Vec::new();
    wal.scan(from, to, &mut |lsn, r| {
        found.push((lsn, r.kind, r.payload.to_vec()));
        Ok(())
    })
    .unwrap();
    found
}

#[test]
fn records_come_back_from_memory_and_disk_and_in_scans() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let begin = wal.end();
    let mut rng = SimRng::new(2);
    let mut all = Records::new();
    for i in 0..400u32 {
        let n = if i % 50 == 0 { 150_000 } else { rng.below(3000) };
        let payload: Vec<u8> = (0..n).map(|_| rng.next_u64() as u8).collect();
        let cut = rng.below(n + 1) as usize;
        let at = wal.append((i % 32) as u8, &[&payload[..cut], &payload[cut..]]);
        all.push((at.lsn, (i % 32) as u8, payload));
        let (lsn, kind, payload) = &all[rng.below(all.len() as u64) as usize];
        let record = wal.read(*lsn).unwrap();
        assert_eq!((record.kind, &record.payload), (*kind, payload));
        if rng.chance(20) {
            wal.flush_to(at.end).unwrap();
            assert!(wal.durable() >= at.end);
        }
        if rng.chance(10) {
            wal.write_step().unwrap();
            wal.prepare_step().unwrap();
        }
    }
    wal.flush_to(wal.end()).unwrap();
    for (lsn, kind, payload) in &all {
        let record = wal.read(*lsn).unwrap();
        assert_eq!((record.kind, &record.payload), (*kind, payload));
    }
    let stats = wal.stats();
    assert!(stats.cache_reads > 0);
    assert!(stats.disk_reads > 0);
    assert!(stats.flushes_by_one_write > 0);
    assert_eq!(scanned(&wal, begin, wal.end()), all);
    for i in [1, 7, 50, 51, 399] {
        assert_eq!(scanned(&wal, all[i].0, wal.end()), all[i..]);
        assert_eq!(scanned(&wal, begin, all[i].0), all[..i]);
    }
    let (durable, end) = (wal.durable(), wal.end());
    drop(wal);
    let (wal, found) = recover(&os, anchor_at(all[60].0, durable)).unwrap();
    assert_eq!(found, all[60..]);
    assert_eq!(wal.end(), end);
}

#[test]
fn every_end_is_a_start_for_a_scan() {
    let os = SimOs::new(3);
    let wal = create(&os);
    let mut rng = SimRng::new(9);
    let mut ends = vec![(wal.end(), 0)];
    let mut all = Records::new();
    for _ in 0..600 {
        let n = if rng.chance(3) { 70_000 } else { rng.below(2000) };
        let payload = vec![7; n as usize];
        let at = wal.append(1, &[&payload]);
        all.push((at.lsn, 1, payload));
        ends.push((wal.end(), all.len()));
        if rng.chance(30) {
            wal.flush_to(at.end).unwrap();
            ends.push((wal.end(), all.len()));
        }
    }
    wal.flush_to(wal.end()).unwrap();
    for (end, index) in ends {
        assert_eq!(scanned(&wal, end, wal.end()), all[index..], "from {end}");
    }
}

#[test]
fn a_directory_with_something_in_it_is_refused() {
    let os = SimOs::new(1);
    let wal = create(&os);
    drop(wal);
    assert!(matches!(Wal::create(os.clone(), options()), Err(Error::Refused(_))));
    os.remove(&Path::new(DIR).join("control")).unwrap();
    let begin = Lsn(BLOCK);
    assert!(matches!(recover(&os, anchor_at(begin, begin)), Err(Error::Refused(_))));
}

#[test]
fn recycled_segments_are_not_retained_and_files_stay_few() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let first = wal.append(3, &[b"first"]);
    let mut middle = first;
    for i in 0..3000 {
        let at = wal.append(3, &[&[1; 1000]]);
        wal.flush_to(at.end).unwrap();
        if i % 50 == 0 {
            wal.retain_from(middle.lsn);
            middle = at;
        }
        while wal.prepare_step().unwrap() {}
    }
    assert!(matches!(wal.read(first.lsn), Err(Error::NotRetained)));
    assert_eq!(wal.read(middle.lsn).unwrap().payload, [1; 1000]);
    let stats = wal.stats();
    assert!(stats.segments_recycled > 50, "{stats:?}");
    assert!(stats.segments_created < 20, "{stats:?}");
    assert_eq!(stats.segments_late, 0);
    assert_eq!(stats.appended_bytes[3] > 3_000_000, stats.records == 3001);
    let (durable, oldest) = (wal.durable(), wal.oldest());
    assert!(oldest <= middle.lsn);
    drop(wal);
    let files = inspect(&*os, Path::new(DIR)).unwrap();
    assert!(files.segments.len() < 20);
    // An anchor older than what is kept must not look like an empty log.
    let lost = recover(&os, anchor_at(first.lsn, first.lsn));
    assert!(matches!(lost, Err(Error::Corrupt { .. })));
    recover(&os, anchor_at(middle.lsn, durable)).unwrap();
}

#[test]
fn a_full_disk_refuses_admission_and_does_not_poison() {
    let os = SimOs::new(1);
    let wal = create(&os);
    wal.prepare_step().unwrap();
    os.fail_after(0, Fault::DiskFull);
    let mut at = wal.append(1, &[&[1; 1000]]);
    let refused = (0..500).find(|_| {
        let _ = wal.prepare_step();
        if let Err(e) = wal.admit() {
            assert!(matches!(e, Error::Full { what: "log" }), "{e}");
            return true;
        }
        at = wal.append(1, &[&[1; 1000]]);
        wal.flush_to(at.end).unwrap();
        false
    });
    assert!(refused.is_some());
    // The reserve is there for those who do not ask.
    at = wal.append(1, &[&[1; 1000]]);
    wal.flush_to(at.end).unwrap();
    for _ in 0..100 {
        at = wal.append(1, &[&[1; 3000]]);
    }
    let last = at;
    assert!(matches!(wal.flush_to(last.end), Err(Error::Full { .. })));
    assert!(!wal.is_poisoned());
    os.clear_fault();
    wal.admit().unwrap();
    wal.flush_to(last.end).unwrap();
    assert!(wal.durable() >= last.end);
}

/// Appends and flushes until the log has had `segments` more of them; releases all before.
fn fill(wal: &Wal, segments: u64) -> Result<()> {
    let target = wal.end().0 + segments * wal.segment_bytes();
    while wal.end().0 < target {
        wal.admit()?;
        let at = wal.append(1, &[&[1; 3000]]);
        wal.flush_to(at.end)?;
        wal.retain_from(at.end);
    }
    Ok(())
}

#[test]
fn a_log_that_turns_over_its_segments_opens_no_file() {
    let os = SimOs::new(1);
    let wal = create(&os);
    fill(&wal, 6).unwrap();
    while wal.prepare_step().unwrap() {}
    let before = wal.stats();
    assert!(before.segments_free + before.segments_spare > 1, "{before:?}");
    // One more for a moment: a directory is opened to be synced.
    let open_files = os.open_files();
    os.set_open_files_max(Some(open_files + 1));
    fill(&wal, 20).unwrap();
    let stats = wal.stats();
    assert_eq!(stats.segments_created, before.segments_created);
    assert!(stats.segments_recycled > before.segments_recycled + 10);
    assert_eq!(os.open_files(), open_files);
}

#[test]
fn a_full_table_of_open_files_refuses_and_does_not_poison() {
    for recycles in [false, true] {
        let os = SimOs::new(1);
        let wal = create(&os);
        if recycles {
            fill(&wal, 6).unwrap();
        }
        os.set_open_files_max(Some(0));
        let refused = fill(&wal, 20);
        let all = matches!(refused, Err(Error::Full { what: crate::os::OPEN_FILES }));
        assert!(all, "{refused:?}");
        assert!(wal.prepare_step().is_err());
        assert!(!wal.is_poisoned());
        // The reserve is there for those who do not ask.
        let at = wal.append(1, &[&[1; 1000]]);
        wal.flush_to(at.end).unwrap();
        os.set_open_files_max(None);
        fill(&wal, 20).unwrap();
        let (end, files) = (wal.end(), wal.segments());
        let names = |files: &[SegmentInfo]| {
            files.iter().map(|f| f.path.clone()).collect::<std::collections::BTreeSet<_>>()
        };
        let on_disk: std::collections::BTreeSet<_> = os
            .list(Path::new(DIR))
            .unwrap()
            .into_iter()
            .filter(|p| !p.ends_with("control"))
            .collect();
        assert_eq!(names(&files), on_disk);
        drop(wal);
        os.crash();
        let (wal, _) = recover(&os, anchor_at(end, end)).unwrap();
        fill(&wal, 3).unwrap();
    }
}

#[test]
fn a_failed_write_or_sync_poisons_for_ever() {
    for after in 0..2 {
        let os = SimOs::new(1);
        let wal = create(&os);
        let good = wal.append(1, &[b"good"]);
        wal.flush_to(good.end).unwrap();
        let bad = wal.append(1, &[b"bad"]);
        os.fail_after(after, Fault::IoError);
        assert!(matches!(wal.flush_to(bad.end), Err(Error::Io { .. })));
        assert!(wal.is_poisoned());
        for _ in 0..3 {
            assert!(matches!(wal.flush_to(bad.end), Err(Error::Poisoned { .. })));
        }
        assert!(matches!(wal.admit(), Err(Error::Poisoned { .. })));
        assert!(wal.durable() < bad.end);
        assert_eq!(wal.read(bad.lsn).unwrap().payload, b"bad");
    }
}

#[test]
fn bad_positions_are_errors() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let at = wal.append(1, &[b"hello"]);
    for flushed in [false, true] {
        for lsn in (0..at.end.0 + 9000).filter(|&lsn| lsn != at.lsn.0) {
            assert!(wal.read(Lsn(lsn)).is_err(), "{lsn} {flushed}");
        }
        wal.flush_to(at.end).unwrap();
    }
    assert!(wal.flush_to(Lsn(at.end.0 + 9000)).is_err());
    assert!(wal.read(Lsn(u64::MAX)).is_err());
}

#[test]
fn sealed_batches_are_written_ahead() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let mut at = wal.append(1, &[&[1; 100]]);
    assert!(!wal.write_step().unwrap());
    while at.end.0 < 3 * BATCH_TARGET_BYTES {
        at = wal.append(1, &[&[1; 10_000]]);
    }
    assert!(wal.write_step().unwrap());
    assert!(wal.stats().written.0 > 0);
    assert_eq!(wal.durable(), Lsn(BLOCK));
    wal.write_to(at.end).unwrap();
    assert!(wal.stats().written >= at.end);
    assert_eq!(wal.durable(), Lsn(BLOCK));
    wal.flush_to(at.end).unwrap();
    assert!(wal.durable() >= at.end);
    let longest = wal.append(2, &[&vec![9; RECORD_BYTES_MAX]]);
    assert_eq!(wal.read(longest.lsn).unwrap().payload.len(), RECORD_BYTES_MAX);
    wal.flush_to(longest.end).unwrap();
    let (wal, found) = {
        drop(wal);
        recover(&os, anchor_at(Lsn(BLOCK), longest.end)).unwrap()
    };
    assert_eq!(found.last().unwrap().2.len(), RECORD_BYTES_MAX);
    assert!(wal.end() >= longest.end);
}

/// Sessions keep committing until the device fails: all of them hear of it, none hangs, and
/// nothing that was acknowledged is lost.
#[test]
fn every_waiter_hears_of_a_failure() {
    for seed in 0..20 {
        let os = SimOs::new(seed);
        let wal = create(&os);
        os.fail_after(20 + 7 * seed, Fault::IoError);
        let acknowledged: Vec<Lsn> = std::thread::scope(|scope| {
            let session = |t: u8| {
                let wal = &wal;
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    loop {
                        let at = wal.append(t, &[&[t; 300]]);
                        match wal.flush_to(at.end) {
                            Ok(()) => acknowledged.push(at.lsn),
                            Err(Error::Io { .. } | Error::Poisoned { .. }) => return acknowledged,
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            };
            let sessions: Vec<_> = (0..8).map(session).collect();
            sessions.into_iter().flat_map(|s| s.join().unwrap()).collect()
        });
        assert!(wal.is_poisoned());
        let durable = wal.durable();
        drop(wal);
        os.crash();
        let (_, found) = recover(&os, anchor_at(Lsn(BLOCK), durable)).unwrap();
        for lsn in acknowledged {
            assert!(found.iter().any(|r| r.0 == lsn), "{lsn}");
        }
    }
}

#[test]
fn an_existing_log_keeps_its_segment_size() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let at = wal.append(1, &[&vec![3; 200_000]]);
    wal.flush_to(at.end).unwrap();
    drop(wal);
    let other = WalOptions { segment_bytes: 1 << 20, ..options() };
    let anchor = anchor_at(at.lsn, at.end);
    let wal = Wal::recover(os.clone(), other, anchor, &mut |_, _| Ok(())).unwrap();
    assert_eq!(inspect(&*os, wal.dir()).unwrap().segment_bytes, 64 << 10);
    assert_eq!(wal.read(at.lsn).unwrap().payload.len(), 200_000);
    assert!(wal.segments().len() >= 4);
    let position = wal.position();
    assert!(position.room.0 >= position.end.0);
}

/// Parallel appends, flushes, reads and background steps on real files.
#[test]
fn many_threads_on_real_files() {
    let dir = super::bench::TempDir::new("threads");
    let options = WalOptions { dir: dir.path().join("log"), ..options() };
    let wal = Wal::create(RealOs::new(), options.clone()).unwrap();
    let done = AtomicU64::new(0);
    let lists: Vec<Vec<(Lsn, Vec<u8>)>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < 8 {
                let busy = wal.prepare_step().unwrap() | wal.write_step().unwrap();
                if !busy {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            }
        });
        let session = |t: u64| {
            let (wal, done) = (&wal, &done);
            scope.spawn(move || {
                let mut rng = SimRng::new(t + 1);
                let mut own = Vec::new();
                for _ in 0..300 {
                    wal.admit().unwrap();
                    let payload = vec![rng.next_u64() as u8; rng.below(4000) as usize];
                    let at = wal.append(t as u8, &[&payload]);
                    own.push((at.lsn, payload));
                    match rng.below(4) {
                        0 => wal.flush_to(at.end).unwrap(),
                        1 => wal.write_to(at.end).unwrap(),
                        _ => {}
                    }
                    let (lsn, payload) = &own[rng.below(own.len() as u64) as usize];
                    assert_eq!(wal.read(*lsn).unwrap().payload, *payload);
                }
                done.fetch_add(1, Ordering::Relaxed);
                own
            })
        };
        let sessions: Vec<_> = (0..8).map(session).collect();
        sessions.into_iter().map(|s| s.join().unwrap()).collect()
    });
    wal.flush_to(wal.end()).unwrap();
    let (durable, begin) = (wal.durable(), Lsn(BLOCK));
    drop(wal);
    let mut found = std::collections::BTreeMap::new();
    Wal::recover(RealOs::new(), options, anchor_at(begin, durable), &mut |lsn, r| {
        found.insert(lsn, (r.kind, r.payload.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(found.len(), 8 * 300);
    for (t, list) in lists.iter().enumerate() {
        for (lsn, payload) in list {
            assert_eq!(found.get(lsn), Some(&(t as u8, payload.clone())));
        }
    }
}

#[test]
fn a_record_takes_as_many_bytes_as_its_reader_says() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let sizes = [0, 1, 127, 128, 16_383, 16_384, 100_000];
    let appended = sizes.map(|size| wal.append(3, &[&vec![1; size]]));
    wal.flush_to(appended[sizes.len() - 1].end).unwrap();
    let mut ends = appended.iter().map(|at| at.end.0 - at.lsn.0);
    let mut compare = |_, record: RecordRef<'_>| {
        assert_eq!(Some(record.log_bytes()), ends.next());
        Ok(())
    };
    wal.scan(wal.oldest(), wal.end(), &mut compare).unwrap();
    assert_eq!(ends.next(), None);
}

/// They will be removed, not used again: zeros would double their bytes.
#[test]
fn files_over_the_capacity_are_not_written_before_the_log_reaches_them() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let segments = options().capacity_bytes / options().segment_bytes;
    let fill = |segments: u64| {
        let end = wal.end().0 + segments * options().segment_bytes;
        while wal.end().0 < end {
            let at = wal.append(3, &[&[1; 1000]]);
            wal.flush_to(at.end).unwrap();
            wal.prepare_step().unwrap();
        }
    };
    fill(segments / 2);
    let made = wal.stats().made_bytes;
    assert!(made > segments / 2 * options().segment_bytes, "{made} for half of the capacity");
    fill(2 * segments);
    let made = wal.stats().made_bytes;
    assert!(made < (segments + 2) * (options().segment_bytes + BLOCK), "{made}");
    let written = wal.end();
    wal.retain_from(written);
    while wal.prepare_step().unwrap() {}
    let kept = wal.stats().segments_kept + wal.stats().segments_spare + wal.stats().segments_free;
    assert!(kept <= segments + segments / 8, "{kept} files are left");
    drop(wal);
    os.crash();
    let (wal, _) = recover(&os, anchor_at(written, written)).unwrap();
    assert_eq!(wal.end(), written);
}

/// Checkpoints let go of the log in steps, near the capacity.
#[test]
fn a_log_near_its_capacity_makes_no_files_anew() {
    let os = SimOs::new(1);
    let wal = create(&os);
    let (capacity, segment) = (options().capacity_bytes, options().segment_bytes);
    let mut low = wal.end();
    let mut created = 0;
    for round in 0..40 {
        while wal.end().0 - low.0 < capacity - segment {
            let at = wal.append(3, &[&[1; 1000]]);
            wal.flush_to(at.end).unwrap();
            wal.prepare_step().unwrap();
        }
        low = Lsn(wal.end().0 - capacity / 8 * 7);
        wal.retain_from(low);
        if round == 3 {
            created = wal.stats().segments_created;
        }
    }
    assert_eq!(wal.stats().segments_created, created);
    assert!(wal.stats().segments_recycled > 20);
}

#[test]
fn a_smaller_capacity_lets_go_of_files() {
    let os = SimOs::new(1);
    let wal = create(&os);
    for _ in 0..600 {
        let at = wal.append(3, &[&[1; 1000]]);
        wal.flush_to(at.end).unwrap();
    }
    wal.retain_from(wal.durable());
    while wal.prepare_step().unwrap() {}
    assert!(wal.stats().segments_free > 5);
    wal.set_capacity_bytes(0);
    while wal.prepare_step().unwrap() {}
    assert_eq!(wal.stats().segments_free, 0);
}
