//! Whose restored files are, and where their log is.

use crate::case::{is_empty, Case};
use sluice_rig::tool::{is_silent_about, run, says};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NOBODY: u32 = 65534;

/// The user of each file and directory in `dir`, and of `dir`.
fn users(dir: &Path) -> Vec<u32> {
    let mut found = vec![fs::metadata(dir).expect("a file").uid()];
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(users(&path)),
            path => found.push(fs::metadata(path).expect("a file").uid()),
        }
    }
    found
}

#[test]
fn restored_files_have_an_owner() {
    let case = Case::with_tables("restored_files_have_an_owner");
    run(&mut case.backup("b", &[])).ok();
    let own = fs::metadata(case.to("b")).expect("a directory").uid();
    let unknown = case.to("unknown");
    let mut restore = case.restore("b", &unknown);
    run(restore.arg("--owner=no-such-user")).refuses("--owner no-such-user");
    assert!(is_empty(&unknown), "a half restore");

    let plain = case.to("plain");
    let said = run(&mut case.restore("b", &plain)).ok();
    assert!(users(&plain).iter().all(|&user| user == own));
    if own != 0 {
        is_silent_about("belong to root", &said);
        return;
    }
    says(&format!("chown -R mysql: {}", plain.display()), &said);

    let below = case.to("new/below");
    let said = run(case.restore("b", &below).arg("--owner=nobody")).ok();
    is_silent_about("belong to root", &said);
    let new = users(&case.to("new"));
    assert!(new.len() > 20 && new.iter().all(|&user| user == NOBODY), "{new:?}");

    let taken = case.to("taken");
    fs::create_dir(&taken).expect("a directory");
    std::os::unix::fs::chown(&taken, Some(NOBODY), Some(NOBODY)).expect("its owner");
    is_silent_about("belong to root", &run(&mut case.restore("b", &taken)).ok());
    assert!(users(&taken).iter().all(|&user| user == NOBODY));
}

/// The log of the old server is in its directory still, and would be taken for that of the restored tables.
#[test]
fn a_restored_server_has_its_log_in_its_directory() {
    let mut case = Case::new("a_restored_server_has_its_log");
    let elsewhere = case.to("log");
    fs::create_dir(&elsewhere).expect("a directory");
    let option = format!("--sluice-log-dir={}", elsewhere.display());
    case.d.start(&[&option]);
    case.d.run(&crate::case::TABLES);
    run(&mut case.backup("b", &[])).ok();
    let insert = "INSERT INTO w.s SELECT seq, seq FROM w.seq_1_to_1000";
    case.d.run(&[insert, "FLUSH ENGINE LOGS"]);
    case.d.stop();
    let mut r = case.restored("b", "r");
    r.refuses("two logs", &[&option]);
    fs::rename(&elsewhere, case.to("aside")).expect("the old log");
    r.refuses("two logs", &[&option]);
    r.start(&[]);
    r.run(&["INSERT INTO w.s VALUES (1, 'a')"]);
    r.stop();
    // It may lie elsewhere again.
    fs::rename(r.data("sluice/log"), &elsewhere).expect("its log");
    r.start(&[&option]);
    assert_eq!(r.value("SELECT COUNT(*) FROM w.s"), "1");
    r.stop();
}
