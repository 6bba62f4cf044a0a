//! Random work, crashes at random calls and reopening, against a list of records as the model.

use super::format::BLOCK;
use super::tests::{anchor_at, options, recover, Records, DIR};
use super::*;
use crate::base::compress::Compression;
use crate::base::{Error, Result};
use crate::cipher::{Cipher, FixedKeys};
use crate::os::sim::{Fault, SimOs, SimRng};
use crate::os::{OpenMode, Os};
use std::path::Path;
use std::sync::Arc;

/// What must be true of the log, kept outside of it.
struct Model {
    /// Every record that may be in the log, in order: lsn, end, kind, payload.
    records: Vec<(Appended, u8, Vec<u8>)>,
    /// Everything below was acknowledged as durable.
    acknowledged: Lsn,
    anchor: WalAnchor,
    unique: u64,
}

impl Model {
    fn index_from(&self, lsn: Lsn) -> usize {
        self.records.partition_point(|r| r.0.lsn < lsn)
    }

    /// The recovered records are a prefix of what was appended from the anchor on, and hold all
    /// that was acknowledged. Lost records are forgotten.
    fn check_recovered(&mut self, found: &Records, end: Lsn) {
        let from = self.index_from(self.anchor.scan_from);
        assert!(found.len() <= self.records.len() - from, "records nobody appended");
        for (found, model) in found.iter().zip(&self.records[from..]) {
            let (lsn, kind, payload) = found;
            assert_eq!((*lsn, *kind), (model.0.lsn, model.1));
            assert_eq!(*payload, model.2, "contents of {lsn}");
        }
        self.records.truncate(from + found.len());
        let last = self.records.last().map_or(Lsn(BLOCK), |r| r.0.end);
        assert!(end >= self.acknowledged, "ends at {end}, acknowledged {}", self.acknowledged);
        assert!(end >= last);
        // Not one more acknowledged record may be missing: the end above lies after them all,
        // and the next batch starts there.
        self.acknowledged = end;
    }
}

struct Run {
    os: Arc<SimOs>,
    options: WalOptions,
    rng: SimRng,
    model: Model,
    /// No new segment can be made for now.
    disk_full: bool,
}

fn random_options(rng: &mut SimRng) -> WalOptions {
    let segment_bytes = BLOCK * (4 + rng.below(13));
    WalOptions {
        segment_bytes,
        capacity_bytes: segment_bytes * rng.below(20),
        cache_bytes: BLOCK * (8 + rng.below(40)),
        compression: match rng.below(3) {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => Compression::Zstd(1),
        },
        ..options()
    }
}

fn some_cipher(seed: u64, encrypts: bool) -> Option<Arc<Cipher>> {
    let os = SimOs::new(seed);
    Some(Cipher::new(&*os, FixedKeys::new(3), encrypts.then_some(1)).unwrap())
}

impl Run {
    fn new(seed: u64) -> (Run, Arc<Wal>) {
        let os = SimOs::new(seed);
        let mut rng = SimRng::new(seed + 1_000_000);
        let mut options = random_options(&mut rng);
        if seed % 3 == 0 {
            options.cipher = some_cipher(seed, true);
        }
        let wal = Wal::create(os.clone(), options.clone()).unwrap();
        let begin = wal.end();
        let anchor = anchor_at(begin, begin);
        let model = Model { records: Vec::new(), acknowledged: begin, anchor, unique: seed };
        (Run { os, options, rng, model, disk_full: false }, wal)
    }

    fn append(&mut self, wal: &Wal) {
        // Few sizes, so that lives after a crash reuse the places of lost batches exactly.
        let bytes = match self.rng.below(10) {
            0 => self.rng.below(60_000),
            1..=3 => self.rng.below(6000),
            _ => 500,
        };
        self.model.unique += 1;
        let mut fill = SimRng::new(self.model.unique);
        // Half of them can be compressed, more or less.
        let period = if fill.chance(50) { 1 + fill.below(200) } else { bytes.max(1) };
        let pattern: Vec<u8> = (0..period).map(|_| fill.next_u64() as u8).collect();
        let payload: Vec<u8> = pattern.iter().copied().cycle().take(bytes as usize).collect();
        let kind = fill.below(RECORD_KINDS as u64) as u8;
        let cut = fill.below(bytes + 1) as usize;
        let at = wal.append(kind, &[&payload[..cut], &payload[cut..]]);
        self.model.records.push((at, kind, payload));
    }

    fn any_record(&mut self) -> Option<usize> {
        let n = self.model.records.len() as u64;
        (n > 0).then(|| self.rng.below(n) as usize)
    }

    fn step(&mut self, wal: &Wal) -> Result<()> {
        let wish = self.rng.below(100);
        match wish {
            0..=44 => self.append(wal),
            45..=59 => {
                if let Some(i) = self.any_record() {
                    let end = self.model.records[i].0.end;
                    wal.flush_to(end)?;
                    assert!(wal.durable() >= end);
                }
            }
            60..=64 => wal.flush_to(wal.end())?,
            65..=79 => wal.write_to(wal.end())?,
            80..=84 => {
                wal.write_step()?;
            }
            85..=89 => {
                wal.prepare_step()?;
            }
            90..=94 => self.checkpoint(wal),
            _ => self.check_read(wal)?,
        }
        self.model.acknowledged = self.model.acknowledged.max(wal.durable());
        Ok(())
    }

    /// Power goes; or only the process ends, at the call planned for the cut if there was one.
    fn end_life(&mut self) {
        match self.rng.chance(70) {
            true => self.os.crash(),
            false => self.os.clear_fault(),
        }
    }

    fn toggle_disk_full(&mut self) {
        self.disk_full = !self.disk_full;
        match self.disk_full {
            true => self.os.fail_after(0, Fault::DiskFull),
            false => self.os.clear_fault(),
        }
    }

    /// Moves the anchor to a durable record or end, and lets older segments go.
    fn checkpoint(&mut self, wal: &Wal) {
        let durable = wal.durable();
        let known = self.model.index_from(durable);
        let low = self.model.index_from(self.model.anchor.scan_from);
        let scan_from = match self.rng.below(4) {
            0 => durable,
            1 => self.model.anchor.scan_from,
            _ if low < known => {
                let pick = low + self.rng.below((known - low) as u64) as usize;
                self.model.records[pick].0.lsn
            }
            _ => durable,
        };
        self.model.anchor = anchor_at(scan_from, durable);
        wal.retain_from(scan_from);
    }

    fn check_read(&mut self, wal: &Wal) -> Result<()> {
        let Some(i) = self.any_record() else { return Ok(()) };
        let (at, kind, payload) = &self.model.records[i];
        match wal.read(at.lsn) {
            Err(Error::NotRetained) => assert!(at.lsn < wal.oldest()),
            other => {
                let record = other?;
                assert_eq!((record.kind, &record.payload), (*kind, payload));
            }
        }
        assert!(wal.oldest() <= self.model.anchor.scan_from);
        Ok(())
    }

    /// Reopens, with more crashes on the way at times.
    fn reopen(&mut self) -> Arc<Wal> {
        loop {
            let interrupted = self.rng.chance(40);
            if interrupted {
                self.os.fail_after(self.rng.below(12), Fault::PowerCut);
            }
            if self.options.cipher.is_some() {
                // A new life, with or without encryption of what it writes.
                self.options.cipher = some_cipher(self.rng.next_u64(), self.rng.chance(70));
            }
            let mut found = Vec::new();
            let wal = Wal::recover(
                self.os.clone(),
                self.options.clone(),
                self.model.anchor,
                &mut |lsn, r| {
                    found.push((lsn, r.kind, r.payload.to_vec()));
                    Ok(())
                },
            );
            match wal {
                Ok(wal) => {
                    self.os.clear_fault();
                    self.model.check_recovered(&found, wal.end());
                    self.check_all(&wal);
                    return wal;
                }
                Err(e) if interrupted => {
                    assert!(matches!(e, Error::Io { .. }), "{e}");
                    self.end_life();
                }
                Err(e) => panic!("recovery failed: {e}"),
            }
        }
    }

    fn check_all(&mut self, wal: &Wal) {
        let mut expected = self.model.records[self.model.index_from(wal.oldest())..].iter();
        wal.scan(self.model.anchor.scan_from.min(wal.end()), wal.end(), &mut |_, _| Ok(()))
            .unwrap();
        assert!(expected.all(|(at, kind, payload)| {
            let record = wal.read(at.lsn).unwrap();
            record.kind == *kind && record.payload == *payload
        }));
    }
}

/// One seed: several lives, each ended by a power cut at a random call, a power cut between
/// calls, or the mere end of the process.
fn run_seed(seed: u64) {
    let (mut run, mut wal) = Run::new(seed);
    for _ in 0..8 {
        let steps = 5 + run.rng.below(60);
        let cut = run.rng.chance(60);
        if cut {
            run.os.fail_after(run.rng.below(60), Fault::PowerCut);
        }
        for _ in 0..steps {
            if !cut && run.rng.chance(4) {
                run.toggle_disk_full();
            }
            match run.step(&wal) {
                Ok(()) => {}
                Err(Error::Full { what: "log" }) if run.disk_full => assert!(!wal.is_poisoned()),
                Err(e) => {
                    assert!(cut, "no fault was planned: {e}");
                    break;
                }
            }
        }
        drop(wal);
        if run.disk_full {
            run.toggle_disk_full();
        }
        run.end_life();
        wal = run.reopen();
    }
}

#[test]
fn acknowledged_records_survive_any_crash() {
    for seed in 0..400 {
        let result = std::panic::catch_unwind(|| run_seed(seed));
        if let Err(panic) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn segment(number: u64) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{number:012}.log"))
}

#[test]
fn rot_in_the_tail_is_refused_not_cut() {
    let os = SimOs::new(5);
    let wal = super::tests::create(&os);
    let begin = wal.end();
    let ends: Vec<_> = (0..10)
        .map(|_| {
            let at = wal.append(1, &[&[1; 500]]);
            wal.flush_to(at.end).unwrap();
            at
        })
        .collect();
    drop(wal);
    // All but the last batch: the one after says that it was durable.
    let (last, others) = ends.split_last().unwrap();
    for at in others {
        os.flip_bit(&segment(0), BLOCK + at.lsn.0 + 9, 3);
        assert!(recover_fails(&os, anchor_at(begin, begin)), "{at:?}");
        os.flip_bit(&segment(0), BLOCK + at.lsn.0 + 9, 3);
    }
    // The last one is known to the checkpoint only.
    os.flip_bit(&segment(0), BLOCK + last.lsn.0 + 9, 3);
    assert!(recover_fails(&os, anchor_at(begin, last.end)));
    let (_, found) = recover(&os, anchor_at(begin, begin)).unwrap();
    assert_eq!(found.len(), others.len());
}

fn recover_fails(os: &Arc<SimOs>, anchor: WalAnchor) -> bool {
    matches!(recover(os, anchor), Err(Error::Corrupt { .. }))
}

#[test]
fn one_control_copy_is_enough_and_none_is_refused() {
    let os = SimOs::new(5);
    let wal = super::tests::create(&os);
    let at = wal.append(1, &[b"kept"]);
    wal.flush_to(at.end).unwrap();
    drop(wal);
    let begin = Lsn(BLOCK);
    let control = Path::new(DIR).join("control");
    for slot in 0..2 {
        os.flip_bit(&control, slot * BLOCK + 20, 1);
        let (wal, found) = recover(&os, anchor_at(begin, at.end)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(wal.stats().incarnation & u64::from(u32::MAX), slot + 2);
    }
    for slot in 0..2 {
        os.flip_bit(&control, slot * BLOCK + 20, 1);
    }
    assert!(recover_fails(&os, anchor_at(begin, at.end)));
}

/// Rule M1 (a): A torn, B after it whole; A' of A's length is written in A's place by the next
/// life; B must not come back: it is cleared.
#[test]
fn a_stale_batch_behind_a_new_one_stays_dead() {
    let mut met = 0;
    for seed in 0..60 {
        let os = SimOs::new(seed);
        let wal = super::tests::create(&os);
        let begin = wal.end();
        let a = wal.append(1, &[&[0xa; 300]]);
        wal.write_to(a.end).unwrap();
        let b = wal.append(1, &[&[0xb; 300]]);
        wal.write_to(b.end).unwrap();
        drop(wal);
        os.crash();
        let was_whole = block_is_batch(&os, b.lsn);
        let (wal, found) = recover(&os, anchor_at(begin, begin)).unwrap();
        if !found.is_empty() {
            continue;
        }
        met += u32::from(was_whole);
        assert!(!block_is_batch(&os, b.lsn), "seed {seed}");
        let a = wal.append(1, &[&[0xc; 300]]);
        wal.flush_to(a.end).unwrap();
        drop(wal);
        os.crash();
        let (wal, found) = recover(&os, anchor_at(begin, begin)).unwrap();
        assert_eq!(found, [(a.lsn, 1, vec![0xc; 300])], "seed {seed}");
        assert!(matches!(wal.read(b.lsn), Err(Error::Corrupt { .. })));
    }
    assert!(met > 3, "the stale batch was there only {met} times");
}

fn block_is_batch(os: &SimOs, lsn: Lsn) -> bool {
    let mut block = vec![0; BLOCK as usize];
    let file = os.open(&segment(0), OpenMode::default()).unwrap();
    file.read_at(&mut block, BLOCK + lsn.0 / BLOCK * BLOCK).unwrap();
    let header = super::format::BatchHeader::decode(&block, lsn.0 / BLOCK * BLOCK);
    header.is_some_and(|h| h.verify(&block[..h.length as usize]))
}

/// What a killed process left in volatile caches counts only after recovery made it durable.
#[test]
fn recovery_makes_durable_what_it_accepts() {
    for seed in 0..40 {
        let os = SimOs::new(seed);
        let wal = super::tests::create(&os);
        let begin = wal.end();
        let a = wal.append(1, &[&[1; 3000]]);
        wal.write_to(a.end).unwrap();
        drop(wal);
        let (wal, found) = recover(&os, anchor_at(begin, begin)).unwrap();
        assert_eq!(found.len(), 1);
        assert!(wal.durable() >= a.end);
        drop(wal);
        os.crash();
        let (_, found) = recover(&os, anchor_at(begin, begin)).unwrap();
        assert_eq!(found.len(), 1, "seed {seed}");
    }
}
