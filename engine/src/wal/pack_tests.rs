//! Packed batches: the same records at the same positions, in fewer blocks.

use super::format::BLOCK;
use super::segments::segment_path;
use super::tests::{anchor_at, options, recover, Records, DIR};
use super::*;
use crate::base::Result;
use crate::os::sim::{SimOs, SimRng};
use crate::os::{AlignedBuf, OpenMode, Os};
use std::path::Path;
use std::sync::Arc;

fn packed() -> WalOptions {
    WalOptions { compression: Compression::Lz4, ..options() }
}

fn scanned(wal: &Wal, from: Lsn) -> Records {
    let mut found = Vec::new();
    wal.scan(from, wal.end(), &mut |lsn, r| {
        found.push((lsn, r.kind, r.payload.to_vec()));
        Ok(())
    })
    .unwrap();
    found
}

/// Batches of a few records that compress well, some that do not, and some of one large record.
fn work(wal: &Wal, all: &mut Records, batches: u32) {
    let mut rng = SimRng::new(5);
    for batch in 0..batches {
        for i in 0..1 + rng.below(12) {
            let n = if rng.chance(2) { 90_000 } else { rng.below(4000) } as usize;
            let noise: Vec<u8> = (0..n).map(|_| rng.next_u64() as u8).collect();
            let payload = if rng.chance(75) { vec![i as u8; n] } else { noise };
            let at = wal.append((batch % 32) as u8, &[&payload]);
            all.push((at.lsn, (batch % 32) as u8, payload));
        }
        wal.flush_to(wal.end()).unwrap();
        wal.prepare_step().unwrap();
    }
}

fn check_reads(wal: &Wal, all: &Records) -> Result<()> {
    for (lsn, kind, payload) in all {
        let record = wal.read(*lsn)?;
        assert_eq!((record.kind, &record.payload), (*kind, payload), "at {lsn}");
    }
    let mut ahead = ReadAhead::forward();
    for (lsn, _, payload) in all {
        assert_eq!(wal.read_along(*lsn, &mut ahead)?.payload, *payload, "along, at {lsn}");
    }
    let mut ahead = ReadAhead::backward();
    for (lsn, _, payload) in all.iter().rev() {
        assert_eq!(wal.read_along(*lsn, &mut ahead)?.payload, *payload, "back, at {lsn}");
    }
    Ok(())
}

#[test]
fn packed_records_have_the_positions_of_plain_ones() {
    let (os, plain_os) = (SimOs::new(1), SimOs::new(1));
    let wal = Wal::create(os.clone(), packed()).unwrap();
    let plain = Wal::create(plain_os, options()).unwrap();
    let begin = wal.end();
    let (mut all, mut of_plain) = (Vec::new(), Vec::new());
    work(&wal, &mut all, 60);
    work(&plain, &mut of_plain, 60);
    assert_eq!(all, of_plain);
    assert!(wal.stats().written_bytes < plain.stats().written_bytes / 5 * 4);
    assert!(wal.stats().flushes_by_one_write > 0);
    check_reads(&wal, &all).unwrap();
    assert!(wal.stats().disk_reads > 0 && wal.stats().ahead_reads > 0);
    assert_eq!(scanned(&wal, begin), all);
    let (durable, end) = (wal.durable(), wal.end());
    drop(wal);
    // What recovery does not scan is searched when it is wanted, from any record on.
    for low in [0, all.len() / 2, all.len()] {
        let from = all.get(low).map_or(end, |record| record.0);
        let (wal, found) = recover(&os, anchor_at(from, durable)).unwrap();
        assert_eq!((found.as_slice(), wal.end()), (&all[low..], end));
        check_reads(&wal, &all).unwrap();
        for start in [0, 3, all.len() - 1] {
            assert_eq!(scanned(&wal, all[start].0), all[start..]);
        }
    }
}

/// A checkpoint that is to leave less redo than there is must leave less, in a log of a few large batches too.
#[test]
fn no_more_than_asked_for_lies_after_a_point_before_the_end() {
    let os = SimOs::new(8);
    let wal = Wal::create(os.clone(), packed()).unwrap();
    let (begin, mut all) = (wal.end(), Vec::new());
    let check = |wal: &Wal| {
        let most = wal.file_bytes_from(begin);
        let points = (0..=most).step_by(1000).chain([most]);
        let mut before = wal.end();
        for bytes in points {
            let lsn = wal.lsn_before_end(bytes);
            assert!(lsn <= before, "{bytes}: {lsn} is after {before}");
            let found = wal.file_bytes_from(lsn);
            assert!(found <= bytes, "{found} bytes lie after {lsn}, for {bytes}");
            before = lsn;
        }
        assert_eq!(wal.lsn_before_end(most + BLOCK), begin);
    };
    work(&wal, &mut all, 25);
    check(&wal);
    for _ in 0..10 {
        wal.append(1, &[&[7; 3000]]);
        check(&wal);
    }
    wal.flush_to(wal.end()).unwrap();
    let (end, durable) = (wal.end(), wal.durable());
    drop(wal);
    let (wal, found) = recover(&os, anchor_at(all[0].0, durable)).unwrap();
    assert_eq!((wal.end(), found.len()), (end, all.len() + 10));
    check(&wal);
}

#[test]
fn one_read_notes_its_whole_segment() {
    let os = SimOs::new(6);
    let wal = Wal::create(os.clone(), packed()).unwrap();
    let mut all = Vec::new();
    work(&wal, &mut all, 30);
    let (end, durable) = (wal.end(), wal.durable());
    drop(wal);
    let (wal, _) = recover(&os, anchor_at(end, durable)).unwrap();
    let known = |lsn: Lsn| wal.segments.positions.find(lsn.0).is_some();
    assert!(!known(all[0].0), "recovery began at the end");
    wal.read(all[0].0).unwrap();
    let segment = |lsn: Lsn| wal.segments.positions.start_before(lsn.0);
    let mut beside =
        all.iter().map(|record| record.0).filter(|&lsn| segment(lsn) == segment(all[0].0));
    assert!(beside.clone().count() > 5);
    assert!(beside.all(known));
}

#[test]
fn a_batch_of_an_earlier_life_after_the_end_is_not_taken_for_one() {
    let os = SimOs::new(2);
    let wal = Wal::create(os.clone(), options()).unwrap();
    let durable = wal.append(1, &[b"kept"]);
    wal.flush_to(durable.end).unwrap();
    let (end, durable) = (wal.end(), wal.durable());
    // Plain batches that nobody was told of.
    for i in 0..10u8 {
        let at = wal.append(2, &[&[i; 5000]]);
        wal.write_to(at.end).unwrap();
    }
    drop(wal);
    lose_block(&os, durable);
    let (wal, found) = recover(&os, anchor_at(end, durable)).unwrap();
    assert_eq!((found.len(), wal.end()), (0, durable));
    wal.set_compression(Compression::Lz4);
    let mut all = Vec::new();
    for i in 0..10u8 {
        let payload = vec![100 + i; 5000];
        all.push((wal.append(3, &[&payload]).lsn, 3, payload));
    }
    wal.flush_to(wal.end()).unwrap();
    assert_eq!(wal.stats().written_bytes, BLOCK, "one packed batch, and the old ones after it");
    let (end, durable) = (wal.end(), wal.durable());
    drop(wal);
    let (wal, _) = recover(&os, anchor_at(end, durable)).unwrap();
    check_reads(&wal, &all).unwrap();
    for (i, (lsn, ..)) in all.iter().enumerate().rev() {
        let (wal, found) = recover(&os, anchor_at(*lsn, durable)).unwrap();
        assert_eq!((found.as_slice(), wal.end()), (&all[i..], end));
    }
}

/// Zeros in the block at a position, as if a power cut had lost it.
fn lose_block(os: &Arc<SimOs>, at: Lsn) {
    let path = segment_path(Path::new(DIR), 0);
    let file = os.open(&path, OpenMode { create: false, direct: true }).unwrap();
    file.write_durable(&AlignedBuf::new(BLOCK as usize), BLOCK + at.0).unwrap();
}

#[test]
fn a_damaged_packed_batch_is_an_error_and_no_other_record() {
    let os = SimOs::new(3);
    let wal = Wal::create(os.clone(), packed()).unwrap();
    let mut all = Vec::new();
    work(&wal, &mut all, 20);
    let (end, durable) = (wal.end(), wal.durable());
    drop(wal);
    let mut rng = SimRng::new(4);
    let path = segment_path(Path::new(DIR), 0);
    for _ in 0..50 {
        let file = os.open(&path, OpenMode { create: false, direct: true }).unwrap();
        let block = BLOCK * (2 + rng.below(14));
        let mut bytes = AlignedBuf::new(BLOCK as usize);
        file.read_at(&mut bytes, block).unwrap();
        let (at, before) = (rng.below(BLOCK) as usize, bytes.to_vec());
        bytes[at] ^= 1 << rng.below(8);
        file.write_durable(&bytes, block).unwrap();
        let (wal, _) = recover(&os, anchor_at(end, durable)).unwrap();
        for (lsn, kind, payload) in &all {
            if let Ok(record) = wal.read(*lsn) {
                assert_eq!((record.kind, &record.payload), (*kind, payload), "at {lsn}");
            }
        }
        drop(wal);
        bytes.copy_from_slice(&before);
        file.write_durable(&bytes, block).unwrap();
    }
}
