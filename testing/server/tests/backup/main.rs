//! `sluice backup` of a server at work, and `sluice restore`: exact at its place in the binary log, and a
//! clear error for everything that goes wrong on the way.
//!
//! `cargo test --release --workspace --test backup [NAME]`, after `make build`.

mod chains;
mod full_disk;
mod increments;
mod killed_restore;
mod mixed;
mod owner;
mod replica;
mod snapshot;
mod stream;
mod until;

use case::{is_empty, transaction, upgrade, Case, INFO, WRITERS};
use sluice_rig::client::Fault;
use sluice_rig::port::Port;
use sluice_rig::tool::{run, says, signal, spawn, wait};
use sluice_server_tests::backup as case;
use sluice_server_tests::replica::{catch_up, follow};
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::{done, Site};
use sluice_server_tests::wait_until;
use sluice_server_tests::writer::Writers;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two DDL statements: a replica that applies them later must not take minutes.
const DDL_REST: Duration = Duration::from_millis(20);

/// Tables come and go, and are copied, until it is told to end.
fn change_tables(site: &Site, end: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (mut client, end) = (site.client(), Arc::clone(end));
    std::thread::spawn(move || {
        for n in 0_i32.. {
            let statements = [
                format!("CREATE TABLE w.ddl{n} (a INT PRIMARY KEY, b INT)"),
                format!("INSERT INTO w.ddl{n} SELECT seq, seq FROM w.seq_1_to_3000"),
                format!("ALTER TABLE w.ddl{n} ADD COLUMN c INT DEFAULT 7, ALGORITHM=COPY"),
                format!("CREATE INDEX k ON w.ddl{n} (b)"),
                format!("RENAME TABLE w.ddl{n} TO w.ddl_{n}"),
                format!("DROP TABLE IF EXISTS w.ddl_{}", (n - 2).max(0)),
            ];
            for sql in statements {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                done(client.run(&sql), &sql);
                std::thread::sleep(DDL_REST);
            }
        }
    })
}

/// A restored server that starts from these GTIDs as a replica gets to the state of the original.
fn gets_there(case: &Case, r: &mut Site, gtid: &str, port: &Port) {
    upgrade(r);
    r.run(&[&format!("SET GLOBAL gtid_slave_pos = '{gtid}'")]);
    follow(r, port);
    catch_up(r, &case.d);
    let names = "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM \
                 information_schema.tables WHERE table_schema IN ('w', 'odd-näme') AND \
                 table_type = 'BASE TABLE' ORDER BY 1";
    assert_eq!(r.rows(names), case.d.rows(names), "tables");
    for name in case.d.rows(names).concat() {
        let checksum = format!("CHECKSUM TABLE {name}");
        assert_eq!(r.rows(&checksum), case.d.rows(&checksum));
        assert_eq!(r.rows(&format!("CHECK TABLE {name}"))[0][3], "OK", "{name}");
    }
}

/// A replica that starts from the backup's GTIDs gets to the state of the original. Were a transaction
/// missing in the backup, or one too many in it, it would not: rows would be missing, keys twice, or
/// numbers other ones.
#[test]
fn a_backup_under_load_is_exact() {
    let (mut case, port) = Case::with_replicas("a_backup_under_load_is_exact");
    case.fill();
    let end = Arc::new(AtomicBool::new(false));
    let ddl = change_tables(&case.d, &end);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    writers.wait_for(50);
    let before = writers.count();
    let said = run(&mut case.backup("b", &["--rate-mib=10", "--no-verify"])).ok();
    println!("{said}{} commits meanwhile", writers.count() - before);
    assert!(writers.count() > before + 20, "writers do not go on beside a backup");
    case.nothing_is_kept();
    writers.wait_for(50);
    end.store(true, Ordering::Relaxed);
    ddl.join().expect("statements");
    let keys = writers.end();

    run(&mut case.verification(&case.to("b").join("data"))).ok();
    let mut r = case.restored("b", "r");
    r.start(&[]);
    let sums = "SELECT (SELECT COUNT(*) FROM w.s) = (SELECT SUM(n) FROM w.n) AND \
                (SELECT COUNT(*) FROM w.s) = (SELECT COUNT(*) FROM w.p)";
    assert_eq!(r.value(sums), "1", "parts of transactions");
    let rows: usize = r.value("SELECT COUNT(*) FROM w.s").parse().expect("a number");
    assert!(rows > before && rows < keys.len(), "{before}, {rows}, {}", keys.len());
    gets_there(&case, &mut r, &case.fact("b", "gtid_binlog_pos"), &port);
    assert_eq!(r.value("CALL w.pr()"), "proc");
    r.stop();
    case.d.stop();
}

#[test]
fn a_restored_server_goes_on() {
    let case = Case::with_tables("a_restored_server_goes_on");
    case.d.run(&["INSERT INTO w.s VALUES (1, 'a'), (2, 'b')"]);
    case.d.run(&[
        "CREATE TEMPORARY TABLE w.temporary (a INT)",
        "XA START 'user'",
        "INSERT INTO w.s VALUES (3, 'prepared')",
        "XA END 'user'",
        "XA PREPARE 'user'",
    ]);
    let mut open = case.d.client();
    done(open.run("BEGIN"), "BEGIN");
    done(open.run("UPDATE w.s SET b = 'open' WHERE a = 1"), "an update");
    run(&mut case.backup("b", &[])).ok();
    done(open.run("COMMIT"), "COMMIT");
    let mut r = case.restored("b", "r");
    r.start(&[]);
    assert_eq!(r.value("SELECT GROUP_CONCAT(a, b ORDER BY a) FROM w.s"), "1a,2b");
    assert_eq!(r.value("SELECT c FROM w.v"), "2");
    assert_eq!(r.rows("XA RECOVER").len(), 1, "prepared transactions");
    r.run(&["XA COMMIT 'user'", "DELETE FROM w.s WHERE a = 2"]);
    assert_eq!(r.value("SELECT COUNT(*) FROM w.p WHERE a = -2"), "1", "the trigger");
    assert_eq!(r.value("SELECT COUNT(*) FROM mysql.user WHERE user = 'u'"), "1", "users");
    assert_eq!(r.value("SELECT COUNT(*) FROM `odd-näme`.`t-1 ü`"), "2");
    upgrade(&mut r);
    r.kill();
    r.start(&[]);
    assert_eq!(r.value("SELECT GROUP_CONCAT(a, b ORDER BY a) FROM w.s"), "1a,3prepared");
    assert_eq!(r.value("SELECT COUNT(*) >= 0 FROM mysql.innodb_table_stats"), "1");
    r.stop();
}

#[test]
fn a_damaged_backup_is_refused() {
    let case = Case::with_tables("a_damaged_backup_is_refused");
    case.fill();
    run(&mut case.backup("b", &["--no-verify"])).ok();
    let target = case.to("target");
    fs::create_dir(&target).expect("a directory");
    let refused = |why: &str| {
        run(&mut case.restore("b", &target)).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    let info = case.info("b");
    let pages = info.split("file ").find(|part| part.contains(" sluice/pages\n"));
    let piece = pages.and_then(|part| part.split("piece ").nth(1)).expect("a piece of the pages");
    let place: u64 = piece.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let data = case.to("b").join("data");
    for (name, at) in [("sluice/pages", place + 5000), ("w/s.frm", 100), ("sluice/superblock", 20)]
    {
        let file = fs::File::options().read(true).write(true).open(data.join(name)).expect(name);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 1], at).expect("a byte");
        refused("has a wrong checksum");
        file.write_all_at(&byte, at).expect("a byte");
    }
    let frm = data.join("w/n.frm");
    let whole = fs::read(&frm).expect("a definition");
    fs::write(&frm, &whole[..whole.len() - 1]).expect("a definition");
    refused("the backup is damaged");
    fs::remove_file(&frm).expect("a definition");
    refused("the backup is damaged");
    fs::write(&frm, &whole).expect("a definition");
    fs::write(case.to("b").join(INFO), &info[..info.len() / 2]).expect("a list");
    refused("is damaged");
    fs::remove_file(case.to("b").join(INFO)).expect("a list");
    refused("no backup, or one that was not finished");
    fs::write(case.to("b").join(INFO), &info).expect("a list");
    fs::write(target.join("ibdata1"), "x").expect("a file");
    run(&mut case.restore("b", &target)).refuses("is not empty");
    fs::remove_file(target.join("ibdata1")).expect("a file");
    run(&mut case.restore("b", &target)).ok();
    run(&mut case.backup("b", &[])).refuses("is not empty");
}

#[test]
fn two_backups_at_once_and_clients_that_die() {
    let case = Case::with_tables("two_backups_at_once");
    case.fill();
    let first = case.slow_backup("first");
    run(&mut case.backup("second", &["--wait=1"])).refuses("another backup");
    // A client that is killed, one that is told to end, and a session that is killed.
    signal("KILL", first.id());
    wait(first);
    case.nothing_is_kept();
    run(&mut case.restore("first", &case.to("none"))).refuses("not finished");
    let stopped = case.slow_backup("stopped");
    signal("TERM", stopped.id());
    wait(stopped).refuses("stopped");
    case.nothing_is_kept();
    assert!(!case.to("stopped").join("data").exists(), "what is left of a backup");
    let killed = case.slow_backup("killed");
    case.kill_sessions();
    wait(killed).refuses("onnection");
    case.nothing_is_kept();
    run(&mut case.backup("last", &[])).ok();
}

/// The server needs nothing of a verification, but its disk.
#[test]
fn a_verification_is_as_slow_as_the_copy_and_ends_at_once() {
    let case = Case::with_tables("a_verification_is_as_slow_as_the_copy");
    case.fill();
    // Each page is read to be copied, for itself and for its table: 60 MiB and more.
    let begun = Instant::now();
    run(&mut case.backup("whole", &["--rate-mib=15"])).ok();
    let elapsed = begun.elapsed();
    assert!(elapsed > Duration::from_secs(3), "a slow verification took {elapsed:?}");
    let child = spawn(&mut case.backup("stopped", &["--rate-mib=10"]));
    wait_until("a backup under way", || case.d.status("Sluice_backup_state") == 1);
    wait_until("the end of the copy", || case.d.status("Sluice_backup_state") == 0);
    std::thread::sleep(Duration::from_secs(1));
    signal("TERM", child.id());
    let begun = Instant::now();
    wait(child).refuses("stopped: there is no backup");
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(2), "the end of a verification took {elapsed:?}");
    assert!(!case.to("stopped").join("data").exists(), "what is left of a backup");
    let begun = Instant::now();
    run(case.verification(&case.to("whole").join("data")).arg("--rate-mib=13")).ok();
    let elapsed = begun.elapsed();
    assert!(elapsed > Duration::from_secs(3), "a slow verification took {elapsed:?}");
}

#[test]
fn a_killed_server_leaves_no_backup() {
    let mut case = Case::with_tables("a_killed_server_leaves_no_backup");
    case.fill();
    let backup = case.slow_backup("b");
    case.d.run(&["INSERT INTO w.s VALUES (1, 'a')"]);
    case.d.kill();
    wait(backup).refuses("onnection");
    run(&mut case.restore("b", &case.to("none"))).refuses("not finished");
    case.d.start(&[]);
    case.nothing_is_kept();
    assert_eq!(case.d.value("SELECT COUNT(*) FROM w.s"), "1");
    run(&mut case.backup("c", &[])).ok();
}

#[test]
fn tables_of_other_engines_are_named() {
    let case = Case::with_tables("tables_of_other_engines_are_named");
    case.d.run(&[
        "CREATE TABLE w.`other-one` (a INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE w.aria (a INT PRIMARY KEY) ENGINE=Aria",
        "CREATE TRIGGER w.of_other BEFORE INSERT ON w.`other-one` FOR EACH ROW SET NEW.a = 1",
    ]);
    run(&mut case.backup("b", &[])).refuses("w.other-one (InnoDB)");
    assert!(!case.to("b").exists());
    let said = run(&mut case.backup("b", &["--only-sluice"])).ok();
    says("not copied: w.other-one (InnoDB)", &said);
    says("not copied: mysql.innodb_table_stats (InnoDB)", &said);
    let mut r = case.restored("b", "r");
    r.start(&[]);
    let tables = "SELECT GROUP_CONCAT(table_name ORDER BY 1) FROM information_schema.tables WHERE table_schema = 'w'";
    assert_eq!(r.value(tables), "n,p,s,v");
    r.run(&[
        "CREATE TABLE w.`other-one` (a INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TRIGGER w.of_other BEFORE INSERT ON w.`other-one` FOR EACH ROW SET NEW.a = 2",
    ]);
    r.stop();
}

/// A file that cannot grow is what a full disk is to the program.
#[test]
fn a_full_disk_of_the_backup_is_an_error() {
    let case = Case::with_tables("a_full_disk_of_the_backup");
    case.fill();
    let plain = case.backup("b", &[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]);
    limited.arg(plain.get_program()).args(plain.get_args());
    run(&mut limited).refuses("the disk is full");
    assert!(!case.to("b").join("data").exists(), "what is left of a backup");
    case.nothing_is_kept();
    run(&mut case.backup("b", &[])).ok();
}

/// `make crash KIND=backup` compares many backups under load; here a copy is falsified, which it must report.
#[test]
fn the_crash_test_finds_a_falsified_copy() {
    let program = sluice_rig::tool::built("sluice-crash").expect("the program");
    for (option, why) in [("--inject-loss", "lost row"), ("--inject-phantom", "phantom row")] {
        let scratch = Scratch::new("backup", option.trim_start_matches("--"));
        let mut crash = Command::new(&program);
        crash.args(["backup", "--rounds", "3", "--seed", "1", option]);
        run(crash.arg("--dir").arg(scratch.path("run"))).refuses(why);
    }
}

/// A session that takes the lock of BACKUP STAGE, but is not `sluice backup`, is refused.
#[test]
fn other_tools_are_refused() {
    let case = Case::with_tables("other_tools_are_refused");
    let mut client = case.d.client();
    match client.run("BACKUP STAGE START") {
        Err(Fault::Sql(1178, text)) => says("Use sluice backup", &text),
        Err(fault) => panic!("{fault}"),
        Ok(()) => panic!("BACKUP STAGE START was let pass"),
    }
}
