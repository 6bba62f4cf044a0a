//! Histories made by hand: each anomaly is found, and a clean history is clean.

use super::check::{check, forbidden};
use super::model::{Anomaly, History, Kind, Outcome};
use super::plant::{plant, Forger};
use crate::level::Level;

const KINDS: [Kind; 2] = [Kind::List, Kind::Register];

const ALL: [Anomaly; 13] = [
    Anomaly::LostWrite,
    Anomaly::TornCommit,
    Anomaly::Garbage,
    Anomaly::Internal,
    Anomaly::Order,
    Anomaly::G0,
    Anomaly::G1a,
    Anomaly::G1b,
    Anomaly::G1c,
    Anomaly::ReadSkew,
    Anomaly::LostUpdate,
    Anomaly::GSingle,
    Anomaly::G2Item,
];

/// Three transactions one after the other, one that was rolled back, one killed.
fn clean(kind: Kind) -> History {
    let mut history = History::new(kind);
    let mut f = Forger { history: &mut history };
    f.ends_as(1, &[11, 12, 21]);
    f.ends_as(2, &[13]);
    let a = f.txn(Outcome::Committed);
    f.read(a, 1, &[], false);
    f.write(a, 1, 11, 1);
    f.read(a, 1, &[11], false);
    f.write(a, 1, 12, 2);
    f.write(a, 2, 13, 1);
    let aborted = f.txn(Outcome::Aborted);
    f.write(aborted, 1, 99, 3);
    let killed = f.txn(Outcome::Unknown);
    f.write(killed, 3, 98, 1);
    let b = f.txn(Outcome::Unknown);
    f.read(b, 2, &[13], false);
    f.read(b, 1, &[11, 12], true);
    f.write(b, 1, 21, 3);
    let reader = f.txn(Outcome::Committed);
    f.read(reader, 1, &[11, 12, 21], false);
    f.read(reader, 3, &[98], false);
    history
}

#[test]
fn a_clean_history_is_clean() {
    for kind in KINDS {
        let report = check(&clean(kind));
        assert!(report.findings.is_empty(), "{kind:?}: {:?}", report.findings);
        assert_eq!(report.reads_of_killed, 1);
    }
}

#[test]
fn each_anomaly_is_found() {
    for kind in KINDS {
        for anomaly in ALL {
            if (kind, anomaly) == (Kind::Register, Anomaly::Order) {
                continue; // a register shows one version, which cannot be out of order
            }
            let mut history = clean(kind);
            plant(&mut history, anomaly);
            let report = check(&history);
            assert!(report.has(anomaly), "{kind:?} {anomaly}: {:?}", report.findings);
        }
    }
}

#[test]
fn an_anomaly_is_not_taken_for_a_worse_one() {
    for kind in KINDS {
        for (anomaly, level) in [
            (Anomaly::G1a, Level::ReadUncommitted),
            (Anomaly::G1b, Level::ReadUncommitted),
            (Anomaly::G1c, Level::ReadUncommitted),
            (Anomaly::ReadSkew, Level::ReadCommitted),
            (Anomaly::LostUpdate, Level::RepeatableRead),
            (Anomaly::GSingle, Level::RepeatableRead),
            (Anomaly::G2Item, Level::RepeatableRead),
        ] {
            let mut history = clean(kind);
            plant(&mut history, anomaly);
            let found = check(&history).forbidden_at(level).len();
            assert_eq!(found, 0, "{kind:?} {anomaly} at {level}");
        }
    }
}

#[test]
fn each_level_forbids_what_the_one_below_does_and_more() {
    for pair in Level::ALL.windows(2) {
        let (lower, upper) = (forbidden(pair[0]), forbidden(pair[1]));
        assert!(upper.len() > lower.len() && lower.iter().all(|a| upper.contains(a)));
    }
    assert_eq!(forbidden(Level::Serializable).len(), ALL.len());
}

#[test]
fn a_durable_write_after_a_read_of_a_killed_one_is_found() {
    for kind in KINDS {
        let mut history = clean(kind);
        let mut f = Forger { history: &mut history };
        let writer = f.txn(Outcome::Committed);
        f.read(writer, 3, &[98], false);
        f.write(writer, 4, 97, 1);
        f.ends_as(4, &[97]);
        assert!(check(&history).has(Anomaly::G1a));
    }
}

#[test]
fn a_non_repeatable_read_is_read_skew() {
    for kind in KINDS {
        let mut history = clean(kind);
        let mut f = Forger { history: &mut history };
        let reader = f.txn(Outcome::Committed);
        f.read(reader, 1, &[11, 12], false);
        f.read(reader, 1, &[11, 12, 21], false);
        assert!(check(&history).has(Anomaly::ReadSkew));
    }
}

#[test]
fn a_long_cycle_of_two_anti_dependencies_is_g2() {
    // r sees the first write and not the second, s the other way about.
    for kind in KINDS {
        let mut history = clean(kind);
        let mut f = Forger { history: &mut history };
        let [v, w, r, s] = [(); 4].map(|()| f.txn(Outcome::Committed));
        f.write(v, 7, 71, 1);
        f.write(w, 8, 81, 1);
        f.read(r, 7, &[71], false);
        f.read(r, 8, &[], false);
        f.read(s, 7, &[], false);
        f.read(s, 8, &[81], false);
        f.ends_as(7, &[71]);
        f.ends_as(8, &[81]);
        let report = check(&history);
        assert_eq!(report.kinds(), [Anomaly::G2Item], "{:?}", report.findings);
    }
}
