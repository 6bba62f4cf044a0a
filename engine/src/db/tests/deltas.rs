//! Deltas in the log: written where pages have few changes, needed after a crash, shown by the tools.

use super::damage::*;
use super::redo::{assert_contents, open};
use crate::base::Result;
use crate::db::inspect::{Directory, LogItem};
use crate::db::*;
use crate::os::sim::{SimOs, SimRng};
use crate::os::Os;
use std::sync::Arc;

fn status(engine: &Engine, name: &str) -> u64 {
    let found = engine.status().into_iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value).unwrap_or_else(|| panic!("no status {name}"))
}

const ROWS: u32 = 6000;

fn body_of(round: u32) -> Vec<u8> {
    let mut body = vec![b'b'; 300];
    body[..4].copy_from_slice(&round.to_be_bytes());
    body
}

/// A machine whose pages owe deltas: killed after updates of single rows of more pages than memory holds, for
/// several redo windows.
fn killed(is_on: bool) -> (Arc<SimOs>, Contents, u64) {
    let os = SimOs::new(5);
    let (engine, mut rng, mut contents) = (open(&os, 1 << 20), SimRng::new(5), Contents::new());
    engine.set_page_deltas(is_on);
    for name in TABLES {
        engine.create_table(name, spec(name)).unwrap();
        let table = engine.table(name).unwrap().unwrap();
        let rows = contents.entry(name).or_default();
        for id in 0..ROWS {
            write(&engine, |trx| with_row(id, &body_of(id), |row| trx.insert(&table, row)));
            rows.insert(id, body_of(id));
        }
    }
    for round in ROWS..3 * ROWS {
        let (name, id) = (TABLES[(round % 2) as usize], rng.below(u64::from(ROWS)) as u32);
        let table = engine.table(name).unwrap().unwrap();
        let rows = contents.entry(name).or_default();
        let (old, new) = (rows[&id].clone(), body_of(round));
        write(&engine, |trx| {
            with_row(id, &old, |a| with_row(id, &new, |b| trx.update(&table, a, b)))
        });
        rows.insert(id, new);
    }
    assert!(engine.pool.gathers(), "{} pages", status(&engine, "store_pages"));
    (machine_with(&read_files(&os)), contents, status(&engine, "buffer_pool_deltas"))
}

fn write(engine: &Arc<Engine>, change: impl FnOnce(&mut Trx) -> Result<()>) {
    let mut trx = engine.begin(1);
    trx.statement_start();
    change(&mut trx).unwrap();
    trx.commit(true).unwrap();
    engine.step().unwrap();
}

#[test]
fn what_pages_owe_to_deltas_is_there_after_a_crash() {
    let (os, contents, deltas) = killed(true);
    assert!(deltas > 10, "{deltas} deltas");
    // Also where recovery has memory for a part of the changes only, and where deltas are off by then.
    for pool_bytes in [8 << 10, 64 << 10, 1 << 20] {
        let engine = open(&machine_with(&read_files(&os)), pool_bytes);
        assert_contents(&engine, &contents);
        assert!(status(&engine, "buffer_pool_delta_reads") > 0);
        engine.checkpoint_now().unwrap();
        assert_contents(&engine, &contents);
        assert_eq!(status(&engine, "buffer_pool_deltas"), 0, "they are off");
    }
}

#[test]
fn without_the_setting_there_are_none() {
    let (os, contents, deltas) = killed(false);
    assert_eq!(deltas, 0);
    assert_contents(&open(&os, 1 << 20), &contents);
}

#[test]
fn tools_show_deltas_and_verify_pages_that_owe_them() {
    let (os, _, _) = killed(true);
    let dir = Directory::open(os as Arc<dyn Os>, DATA, None).unwrap();
    let mut lines = Vec::new();
    dir.log(None, &mut |item| {
        if let LogItem::Record(line) = item {
            lines.extend((line.name == "delta").then_some(line.detail));
        }
        true
    })
    .unwrap();
    assert!(lines.iter().any(|line| line.contains(" changes of ")), "{lines:?}");
    let report = dir.verify(geometry()).unwrap();
    let faults: Vec<String> = report.checks.into_iter().flat_map(|check| check.faults).collect();
    assert_eq!(faults, Vec::<String>::new());
}
