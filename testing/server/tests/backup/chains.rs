//! Chains on the way: with another key, and as a replica.

use crate::case::{is_empty, state, transaction, Case, WRITERS};
use crate::change_tables;
use sluice_rig::tool::{run, says};
use sluice_server_tests::replica::catch_up;
use sluice_server_tests::site::Site;
use sluice_server_tests::writer::Writers;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Restores a chain as a replica of the server on the port.
#[track_caller]
fn replica(case: &Case, names: &[&str], name: &str, port: u16) -> Site {
    let r = case.site(name);
    let url = format!("--as-replica-of=mysql://r@127.0.0.1:{port}");
    let with = names[1..].iter().map(|name| format!("--with={}", case.to(name).display()));
    let options: Vec<String> = with.chain([url]).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut restore = case.restore_by(names[0], &r.data(""), &options);
    run(restore.env("MYSQL_PWD", "r")).ok();
    r
}

/// The replica has all that the primary has, by its tables.
#[track_caller]
fn follows(case: &Case, r: &Site) {
    catch_up(r, &case.d);
    let names = "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM \
                 information_schema.tables WHERE table_schema IN ('w', 'odd-näme') AND \
                 table_type = 'BASE TABLE' ORDER BY 1";
    assert_eq!(r.rows(names), case.d.rows(names), "tables");
    for name in case.d.rows(names).concat() {
        let checksum = format!("CHECKSUM TABLE {name}");
        assert_eq!(r.rows(&checksum), case.d.rows(&checksum));
    }
}

/// Were an increment's position another one than that of its rows, the replica would stop with an error, or
/// lack rows.
#[test]
fn a_chain_becomes_a_replica() {
    let (mut case, port) = Case::with_replicas("a_chain_becomes_a_replica");
    case.fill();
    let end = Arc::new(AtomicBool::new(false));
    let ddl = change_tables(&case.d, &end);
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    writers.wait_for(50);
    run(&mut case.backup("0", &[])).ok();
    for (name, base) in [("1", "0"), ("2", "1")] {
        writers.wait_for(100);
        run(&mut case.increment(name, base)).ok();
    }
    writers.wait_for(50);
    end.store(true, Ordering::Relaxed);
    ddl.join().expect("statements");
    writers.end();

    let mut first = replica(&case, &["0", "1"], "first", port.number);
    let mut r = replica(&case, &["0", "1", "2"], "r", port.number);
    // One after the other: they have the same server_id, and the primary serves one of these at a time.
    first.start(&[]);
    follows(&case, &first);
    first.stop();
    r.start(&[]);
    follows(&case, &r);

    // It is a server of its own, on which no increment of the primary rests; but a chain of its own does.
    let since = |base: &str| format!("--since={}", case.to(base).display());
    run(&mut case.backup_of(&r, "none", &[&since("2")])).refuses("was restored since");
    run(&mut case.backup_of(&r, "r0", &[])).ok();
    case.d.run(&["INSERT INTO w.s VALUES (-7, 'after the backup of the replica')"]);
    catch_up(&r, &case.d);
    run(&mut case.backup("none", &[&since("r0")])).refuses("was restored since");
    run(&mut case.backup_of(&r, "r1", &[&since("r0")])).ok();
    r.kill();
    case.d.run(&["INSERT INTO w.s VALUES (-8, 'after the increment of the replica')"]);
    let mut second = replica(&case, &["r0", "r1"], "second", port.number);
    second.start(&[]);
    assert_eq!(second.value("SELECT COUNT(*) FROM w.s WHERE a = -7"), "1");
    follows(&case, &second);
    assert_eq!(second.value("SELECT COUNT(*) FROM w.s WHERE a = -8"), "1");
    second.stop();
    case.d.stop();
}

const KEYS: [&str; 2] = ["770a8a65da156d24ee2a093277530142", "18420b5cbe31cca43c7d8a2ff59d2a5d"];

/// A file of the first keys.
fn key_file(case: &Case, count: usize) -> PathBuf {
    let path = case.to(&format!("keys-{count}"));
    let lines = KEYS[..count].iter().enumerate().map(|(n, key)| format!("{};{key}\n", n + 1));
    fs::write(&path, lines.collect::<String>()).expect("a file of keys");
    path
}

/// Without encryption at first, then with one key, then with another.
#[test]
fn a_chain_across_keys_needs_the_keys_of_all() {
    let mut case = Case::with_tables("a_chain_across_keys");
    case.fill();
    let (one, both) = (key_file(&case, 1), key_file(&case, 2));
    let manager = format!("--file-key-management-filename={}", both.display());
    let manager = ["--plugin-load-add=file_key_management", &manager];
    run(&mut case.backup("0", &[])).ok();
    let mut states = vec![state(&case.d)];
    for (name, base, key) in [("1", "0", "1"), ("2", "1", "2")] {
        case.d.stop();
        let key = format!("--sluice-encryption-key-id={key}");
        case.d.start(&[&manager[..], &["--sluice-encrypt=ON", &key]].concat());
        case.d.run(&[
            &format!("UPDATE w.big SET b = RANDOM_BYTES(900) WHERE a % 20 = {name}"),
            &format!("INSERT INTO w.s SELECT {name}0000 + seq, 'row' FROM w.seq_1_to_500"),
        ]);
        // The changes become images.
        case.d.kill();
        case.d.start(&[&manager[..], &["--sluice-encrypt=ON", &key]].concat());
        case.d.stop();
        case.d.start(&[&manager[..], &["--sluice-encrypt=ON", &key]].concat());
        says("; verified", &run(&mut case.increment(name, base)).ok());
        states.push(state(&case.d));
    }
    case.d.stop();

    let target = case.to("target");
    let with = |names: &[&str], to: &Path, keys: Option<&Path>| {
        let mut restore = case.restore_all(names, to);
        restore.args(keys.map(|keys| format!("--key-file={}", keys.display())));
        run(&mut restore)
    };
    let refused = |names: &[&str], keys: Option<&Path>, why: &str| {
        with(names, &target, keys).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    let is_needed = |key: &str| format!("key {key} version 1");
    refused(&["0", "1"], None, &is_needed("1"));
    refused(&["0", "1", "2"], None, &is_needed("2"));
    refused(&["0", "1", "2"], Some(&one), &is_needed("2"));
    let keys = [None, Some(&*one), Some(&*both)];
    for (count, (wanted, keys)) in states.iter().zip(keys).enumerate() {
        let names = &["0", "1", "2"][..=count];
        let mut r = case.site(&format!("r{count}"));
        with(names, &r.data(""), keys).ok();
        if count > 0 {
            r.refuses("key", &[]);
        }
        r.start(&manager);
        assert_eq!(&state(&r), wanted, "after {names:?}");
        r.stop();
    }
}
