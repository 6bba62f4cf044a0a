//! Recovery with a thread that unpacks ahead sees what one thread would see.

use super::segments::segment_path;
use super::tests::{anchor_at, options, Records, DIR};
use super::*;
use crate::base::{Error, Result};
use crate::os::sim::{SimOs, SimRng};
use std::path::Path;
use std::sync::Arc;

/// A log of many batches, and its records.
fn filled() -> (Arc<SimOs>, Records, WalAnchor, Place) {
    let os = SimOs::new(1);
    let with = WalOptions { compression: Compression::Lz4, ..options() };
    let wal = Wal::create(os.clone(), with).unwrap();
    let (mut rng, mut all) = (SimRng::new(9), Records::new());
    let begin = wal.end();
    for batch in 0..300u32 {
        let payload = vec![batch as u8; rng.below(6000) as usize];
        all.push((wal.append((batch % 32) as u8, &[&payload]).lsn, (batch % 32) as u8, payload));
        wal.flush_to(wal.end()).unwrap();
        wal.prepare_step().unwrap();
    }
    let (durable, place) = wal.durable_end();
    (os, all, anchor_at(begin, durable), place)
}

/// Visits so many records at most; answers what was seen.
fn visit(os: &Arc<SimOs>, anchor: WalAnchor, most: usize) -> (Result<()>, Records) {
    let mut found = Records::new();
    let outcome = Wal::recover(os.clone(), options(), anchor, &mut |lsn, r| {
        if found.len() == most {
            return Err(Error::Interrupted);
        }
        found.push((lsn, r.kind, r.payload.to_vec()));
        Ok(())
    });
    (outcome.map(drop), found)
}

#[test]
fn a_caller_that_fails_has_seen_what_came_before() {
    let (os, all, anchor, _) = filled();
    for most in [0, 1, 7, 150, 299] {
        let (outcome, found) = visit(&os, anchor, most);
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
        assert_eq!(found, all[..most]);
    }
    let (outcome, found) = visit(&os, anchor, usize::MAX);
    outcome.unwrap();
    assert_eq!(found, all);
}

#[test]
fn a_disk_that_fails_shows_all_records_before_the_place() {
    let (os, all, anchor, end) = filled();
    let segment_bytes = options().segment_bytes;
    let mut seen = Vec::new();
    for n in 0..end.0 / segment_bytes {
        let path = segment_path(Path::new(DIR), n);
        os.set_bad_place(&path, segment_bytes / 2, true);
        let (outcome, found) = visit(&os, anchor, usize::MAX);
        os.set_bad_place(&path, segment_bytes / 2, false);
        assert!(matches!(outcome, Err(Error::Io { .. })), "segment {n}: {outcome:?}");
        assert_eq!(found, all[..found.len()]);
        seen.push(found.len());
    }
    assert!(seen.is_sorted() && seen.iter().any(|&n| n > 20), "{seen:?}");
}
