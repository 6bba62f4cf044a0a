//! Increments: each restores to its own place, with what it rests on and nothing else.

use crate::case::{is_empty, state, transaction, Case, INFO, SMALL, WRITERS};
use crate::{change_tables, gets_there};
use sluice_rig::tool::{run, says, wait};
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::Writers;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Bytes of images in a backup, as they lie in it.
fn image_bytes(case: &Case, name: &str) -> u64 {
    let pages = case.to(name).join("data/sluice/pages");
    fs::metadata(pages).expect("images").len()
}

#[test]
fn each_of_a_chain_restores_to_its_place() {
    let mut case = Case::with_tables("each_of_a_chain");
    case.fill();
    case.d.run(&[
        "INSERT INTO w.s SELECT seq, REPEAT('a', seq % 3000) FROM w.seq_1_to_5000",
        "CREATE TABLE w.goes (a INT PRIMARY KEY, b CHAR(200)) AS SELECT seq AS a, 'b' AS b FROM w.seq_1_to_5000",
        "CREATE TABLE w.cut LIKE w.goes",
        "INSERT INTO w.cut SELECT * FROM w.goes",
        "CREATE TABLE w.other LIKE w.goes",
        "INSERT INTO w.other SELECT * FROM w.goes",
    ]);
    run(&mut case.backup("0", &[])).ok();
    let mut states = vec![state(&case.d)];

    case.d.run(&[
        "INSERT INTO w.s SELECT seq, REPEAT('c', seq % 3000) FROM w.seq_5001_to_6000",
        "UPDATE w.big SET b = RANDOM_BYTES(500) WHERE a % 100 = 0",
        "DROP TABLE w.goes",
        "TRUNCATE TABLE w.cut",
        "INSERT INTO w.cut VALUES (7, 'seven')",
        "ALTER TABLE w.other ADD COLUMN c INT DEFAULT 3, ALGORITHM=COPY",
        "CREATE INDEX k ON w.other (c)",
        "RENAME TABLE w.other TO w.another",
    ]);
    case.d.kill();
    case.d.start(&[]);
    let said = run(&mut case.increment("1", "0")).ok();
    says("increment of ", &said);
    says("; verified", &said);
    states.push(state(&case.d));

    case.d.run(&[
        "DELETE FROM w.s WHERE a % 7 = 0",
        "CREATE TABLE w.goes (a INT PRIMARY KEY, b CHAR(200)) AS SELECT seq AS a, 'c' AS b FROM w.seq_1_to_900",
        "ALTER TABLE w.big FORCE",
        "CREATE USER v@localhost IDENTIFIED BY 'v'",
    ]);
    case.d.stop();
    case.d.start(&[]);
    run(&mut case.increment("2", "1")).ok();
    states.push(state(&case.d));

    case.d.run(&["UPDATE w.s SET b = 'last' WHERE a = 1"]);
    run(&mut case.increment("3", "2")).ok();
    states.push(state(&case.d));
    case.nothing_is_kept();
    let (whole, least) = (image_bytes(&case, "0"), image_bytes(&case, "3"));
    assert!(least < whole / 10, "{least} bytes of images for one row, and {whole} for all");

    for (count, wanted) in states.iter().enumerate() {
        let names = &["0", "1", "2", "3"][..=count];
        let mut r = case.site(&format!("r{count}"));
        run(&mut case.restore_all(names, &r.data(""))).ok();
        run(&mut case.verification(&r.data(""))).ok();
        r.start(&[]);
        assert_eq!(&state(&r), wanted, "after {names:?}");
        assert_eq!(r.value("SELECT c = (SELECT COUNT(*) FROM w.s) FROM w.v"), "1");
        r.stop();
    }
    // Increments on one base do not know of each other.
    run(&mut case.increment("also", "1")).ok();
    let mut r = case.site("also-restored");
    run(&mut case.restore_all(&["0", "1", "also"], &r.data(""))).ok();
    r.start(&[]);
    assert_eq!(state(&r), states[3]);
    r.stop();
}

#[test]
fn increments_under_load_are_exact() {
    let (mut case, port) = Case::with_replicas("increments_under_load");
    case.fill();
    let end = Arc::new(AtomicBool::new(false));
    let ddl = change_tables(&case.d, &end);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    writers.wait_for(50);
    run(&mut case.backup("0", &["--rate-mib=10", "--no-verify"])).ok();
    for (name, base) in [("1", "0"), ("2", "1"), ("3", "2")] {
        writers.wait_for(100);
        run(&mut case.increment(name, base)).ok();
    }
    case.nothing_is_kept();
    writers.wait_for(50);
    end.store(true, Ordering::Relaxed);
    ddl.join().expect("statements");
    writers.end();
    let mut r = case.site("r");
    run(&mut case.restore_all(&["0", "1", "2", "3"], &r.data(""))).ok();
    run(&mut case.verification(&r.data(""))).ok();
    r.start(&[]);
    gets_there(&case, &mut r, &case.fact("3", "gtid_binlog_pos"), &port);
    r.stop();
    case.d.stop();
}

/// Changes a byte of a file, and changes it back in the end.
fn with_other_byte(path: &Path, at: u64, check: impl FnOnce()) {
    let file = File::options().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("a byte");
    check();
    file.write_all_at(&byte, at).expect("a byte");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let mut case = Case::with_tables("does_not_belong_together");
    case.fill();
    run(&mut case.backup("full", &[])).ok();
    for (name, base) in [("one", "full"), ("two", "one")] {
        case.d.run(&["UPDATE w.big SET b = RANDOM_BYTES(500) WHERE a % 50 = 0"]);
        // The changes become images.
        case.d.stop();
        case.d.start(&[]);
        run(&mut case.increment(name, base)).ok();
    }
    run(&mut case.backup("other", &[])).ok();
    run(&mut case.increment("foreign", "other")).ok();
    let target = case.to("target");
    let refused = |names: &[&str], why: &str| {
        run(&mut case.restore_all(names, &target)).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    refused(&["one"], "--from takes the full backup");
    refused(&["full", "two"], "two is an increment on the backup ");
    refused(&["full", "two", "one"], "it cannot follow ");
    refused(&["full", "one", "one"], "it cannot follow ");
    refused(&["full", "one", "foreign"], "which is not given");
    refused(&["full", "other"], "other is a full backup");
    refused(&["full", "none"], "none is no backup");

    let all = ["full", "one", "two"];
    let pages = case.to("one").join("data/sluice/pages");
    for name in all {
        let file = case.to(name).join("data/sluice/pages");
        with_other_byte(&file, image_bytes(&case, name) - 1, || {
            refused(&all, "has a wrong checksum")
        });
    }
    let map = case.to("two").join("data/sluice/superblock");
    with_other_byte(&map, 20, || {
        refused(&all, "has a wrong checksum");
        run(&mut case.increment("three", "two")).refuses("sluice/superblock has a wrong checksum");
    });
    let whole = fs::read(&pages).expect("images");
    fs::write(&pages, &whole[..whole.len() - 4096]).expect("images");
    refused(&all, "one/data/sluice/pages has ");
    fs::remove_file(&pages).expect("images");
    refused(&all, "one/data/sluice/pages");
    fs::write(&pages, &whole).expect("images");
    let info = case.to("one").join(INFO);
    let list = fs::read(&info).expect("a list");
    fs::remove_file(&info).expect("a list");
    refused(&all, "no backup, or one that was not finished");
    run(&mut case.increment("three", "one")).refuses("no backup, or one that was not finished");
    fs::write(&info, list).expect("a list");

    run(&mut case.increment("three", "full/sluice_backup_info")).refuses("is a file");
    run(&mut case.increment("two", "one")).refuses("is not empty");
    assert!(is_empty(&case.to("three").join("data")), "what is left of an increment");
    let mut r = case.site("r");
    run(&mut case.restore_all(&all, &r.data(""))).ok();
    r.start(&[]);
    assert_eq!(r.rows("CHECKSUM TABLE w.big"), case.d.rows("CHECKSUM TABLE w.big"));
    r.stop();
}

#[test]
fn a_server_that_does_not_go_on_from_the_base_is_refused() {
    let mut case = Case::with_tables("does_not_go_on");
    run(&mut case.backup("0", &[])).ok();
    let since = |site: &Site, base: &str, why: &str| {
        let base = case.to(base);
        let base = base.to_str().expect("a name");
        run(&mut case.backup_of(site, "none", &["--since", base])).refuses(why);
        assert!(!case.to("none").join("data").exists(), "what is left of an increment");
    };
    let mut other = Site::new(&case.scratch, "other", "Sluice", &SMALL);
    other.start(&[]);
    other.run(&["CREATE DATABASE w", "CREATE TABLE w.t (a INT PRIMARY KEY)"]);
    since(&other, "0", "is no base for an increment");
    other.stop();
    // A restored server may have any number that the original has.
    let mut r = case.restored("0", "r");
    r.start(&[]);
    since(&r, "0", "was restored since");
    run(&mut case.backup_of(&r, "r0", &["--only-sluice"])).ok();
    let mut more = case.backup_of(&r, "r1", &["--only-sluice", "--since"]);
    run(more.arg(case.to("r0"))).ok();
    r.stop();

    // Its files are put back by other means.
    let (data, kept) = (case.d.data(""), case.to("kept"));
    case.d.stop();
    run(Command::new("cp").arg("-a").arg(&data).arg(&kept)).ok();
    case.d.start(&[]);
    case.d.run(&["INSERT INTO w.s SELECT seq, 'x' FROM w.seq_1_to_3000"]);
    run(&mut case.backup("late", &[])).ok();
    case.d.stop();
    fs::remove_dir_all(&data).expect("a data directory");
    fs::rename(&kept, &data).expect("a data directory");
    case.d.start(&[]);
    let late = case.to("late");
    let mut again = case.increment("again", "late");
    run(&mut again).refuses(&format!("{} is no base for an increment", late.display()));
    case.nothing_is_kept();
}

#[test]
fn an_increment_is_streamed_and_brought_to_a_moment() {
    let case = Case::with_tables("an_increment_is_streamed");
    case.fill();
    run(&mut case.backup("0", &[])).ok();
    case.d.run(&["INSERT INTO w.s VALUES (1, 'in the increment')"]);
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    let mut command = Command::new(&case.program);
    command.args(["backup", &address, "--to", "-", "--compress", "--incremental-basedir"]);
    let file = File::create(case.to("1")).expect("a file");
    let child =
        command.arg(case.to("0")).stdin(Stdio::null()).stdout(file).stderr(Stdio::piped()).spawn();
    wait(child.expect("a child")).ok();
    case.d.run(&["INSERT INTO w.s VALUES (2, 'in the binary log')"]);
    let wanted = state(&case.d);
    let gtid = case.d.value("SELECT @@gtid_binlog_pos");
    let number: u64 = gtid.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a GTID");
    case.d.run(&["DROP TABLE w.s"]);

    let binlogs = format!("--binlogs={}", case.d.data("").display());
    let (before, with) = (format!("--before-gtid=0-1-{}", number + 1), case.to("1"));
    let with = with.to_str().expect("a name");
    let mut r = case.site("r");
    let options = ["--with", with, &binlogs, &before];
    let said = run(&mut case.restore_by("0", &r.data(""), &options)).ok();
    says("applied 1 transactions of the binary logs", &said);
    r.start(&[]);
    assert_eq!(state(&r), wanted);
    r.stop();

    let target = case.to("target");
    let refused = |from: &str, with: &[&str], why: &str| {
        let names = [&[from][..], with].concat();
        run(&mut case.restore_all(&names, &target)).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    refused("1", &[], "is an increment, on the backup");
    refused("1", &["1"], "--from is a stream");
    let whole = fs::read(with).expect("a stream");
    fs::write(case.to("cut"), &whole[..whole.len() / 2]).expect("a stream");
    refused("0", &["cut"], "the stream ends before the end");
    run(&mut case.increment("2", "1")).refuses("is a file");
}
