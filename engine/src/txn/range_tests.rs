use super::*;
use crate::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};

/// Bounds lie on even points only, so odd points stand for the gaps.
const POINTS: u8 = 24;

fn random_bound(rng: &mut SimRng) -> Bound<[u8; 1]> {
    let key = [rng.below(u64::from(POINTS / 2)) as u8 * 2];
    match rng.below(8) {
        0 => Bound::Unbounded,
        1..4 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn as_slice(bound: &Bound<[u8; 1]>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

#[test]
fn intervals_agree_with_sets_of_points() {
    for seed in 0..400 {
        let mut rng = SimRng::new(seed);
        let owners: Vec<_> = (0..3).map(|n| Owner::new(n, n)).collect();
        let mut intervals = Intervals::default();
        let mut model: BTreeMap<(u64, Mode), BTreeSet<u8>> = BTreeMap::new();
        for _ in 0..30 {
            let owner = &owners[rng.below(3) as usize];
            if rng.chance(10) {
                intervals.remove(owner);
                model.retain(|key, _| key.0 != owner.number);
                continue;
            }
            let mode = if rng.chance(50) { Mode::Shared } else { Mode::Exclusive };
            let (low, high) = (random_bound(&mut rng), random_bound(&mut rng));
            if is_empty_range(as_slice(&low), as_slice(&high)) {
                continue;
            }
            intervals.grow(owner, as_slice(&low), as_slice(&high), mode);
            let range = (as_slice(&low), as_slice(&high));
            let points =
                (0..POINTS).filter(|p| std::ops::RangeBounds::<[u8]>::contains(&range, &[*p][..]));
            model.entry((owner.number, mode)).or_default().extend(points);
        }
        check(&intervals, &owners, &model);
    }
}

fn check(
    intervals: &Intervals,
    owners: &[Arc<Owner>],
    model: &BTreeMap<(u64, Mode), BTreeSet<u8>>,
) {
    for point in 0..POINTS {
        for owner in owners {
            let key = [point];
            let covers = |n: u64, mode| model.get(&(n, mode)).is_some_and(|s| s.contains(&point));
            let by =
                [Mode::Shared, Mode::Exclusive].into_iter().filter(|m| covers(owner.number, *m));
            assert_eq!(intervals.covering(owner, &key), by.max());
            for asked in [None, Some(Mode::Shared), Some(Mode::Exclusive)] {
                let found: BTreeSet<u64> =
                    intervals.against(owner, &key, asked).map(|o| o.number).collect();
                let expected: BTreeSet<u64> = owners
                    .iter()
                    .filter(|o| o != &owner)
                    .filter(|o| {
                        let shared = asked != Some(Mode::Shared) && covers(o.number, Mode::Shared);
                        shared || covers(o.number, Mode::Exclusive)
                    })
                    .map(|o| o.number)
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }
    for (at, a) in intervals.list.iter().enumerate() {
        for b in &intervals.list[at + 1..] {
            let same = a.owner == b.owner && a.mode == b.mode;
            assert!(!same || !a.touches(borrowed(&b.low), borrowed(&b.high)), "not joined");
        }
    }
}

#[test]
fn a_scan_grows_one_interval() {
    let owner = Owner::new(1, 1);
    let mut intervals = Intervals::default();
    for key in 1..100u8 {
        let (low, high) = ([key - 1], [key]);
        intervals.grow(&owner, Bound::Excluded(&low), Bound::Included(&high), Mode::Shared);
    }
    assert_eq!(intervals.len(), 1);
}
