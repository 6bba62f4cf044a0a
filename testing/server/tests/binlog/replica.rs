//! Replicas, and clients that copy the binlog.

use crate::case::{make_tables, Case, OPTIONS};
use crate::files;
use sluice_rig::client::Fault;
use sluice_rig::port::Port;
use sluice_server_tests::binlog::mariadb_binlog;
use sluice_server_tests::replica::{applies, catch_up, follow, listen, GRANT};
use sluice_server_tests::site::Site;
use sluice_server_tests::wait_until;
use sluice_server_tests::writer::{row_of_i, row_of_s, Writer, Writers};
use std::fs;

#[test]
fn a_replica_is_equal() {
    let mut case = Case::new("a_replica_is_equal");
    let options = [&OPTIONS[..], &["--server-id=2", "--log-slave-updates"]].concat();
    let mut replica = Site::new(&case.scratch, "r", "Sluice", &options);
    let port = Port::reserve();
    let [networking, address, number] = listen(&port);
    case.d.start(&["--max-binlog-size=1048576", &networking, &address, &number]);
    case.d.run(&[GRANT]);
    replica.start(&[]);
    follow(&replica, &port);
    case.make_tables();
    let writers =
        [Writer::start(&case.d, 1..=200, row_of_s), Writer::start(&case.d, 1..=50, row_of_i)];
    let counts = writers.map(|writer| writer.join().len());
    assert_eq!(counts, [200, 50], "acknowledged rows");
    case.d.run(&["FLUSH BINARY LOGS", "INSERT INTO test.s VALUES (1000, REPEAT('x', 6000000))"]);
    catch_up(&replica, &case.d);
    let checksums = "CHECKSUM TABLE test.s, test.i";
    assert_eq!(replica.rows(checksums), case.d.rows(checksums), "tables");
    replica.stop();
}

/// What the text of a binlog says of the rows of a table of this database.
fn row_lines(text: &str, database: &str) -> Vec<String> {
    let (mut lines, mut is_of) = (Vec::new(), false);
    for line in text.lines().filter(|line| line.starts_with("### ")) {
        if line.contains(" `") {
            is_of = line.contains(&format!("`{database}`.`"));
        }
        if is_of {
            lines.push(line.replace(&format!("`{database}`"), "`d`"));
        }
    }
    lines
}

/// A statement that loads an empty table has the row events of one that inserts row by row. Its rows
/// are there after a kill, and on a replica.
#[test]
fn a_load_is_in_the_binlog_as_its_rows() {
    let mut case = Case::new("a_load_is_in_the_binlog_as_its_rows");
    let options = [&OPTIONS[..], &["--server-id=2", "--log-slave-updates"]].concat();
    let mut replica = Site::new(&case.scratch, "r", "Sluice", &options);
    let port = Port::reserve();
    let [networking, address, number] = listen(&port);
    case.d.start(&[&networking, &address, &number]);
    case.d.run(&[GRANT, "CREATE DATABASE one", "CREATE DATABASE two"]);
    replica.start(&[]);
    follow(&replica, &port);
    let fill = "SELECT seq, 30000 - seq, REPEAT(CHAR(65 + seq % 26), 100) FROM one.seq_1_to_20000";
    let mut loads = Vec::new();
    for (database, size) in [("one", "1000000000"), ("two", "DEFAULT")] {
        let before = case.d.status("Sluice_bulk_inserts");
        case.d.run(&[
            &format!(
                "CREATE TABLE {database}.t (a INT PRIMARY KEY, u INT, p TEXT, UNIQUE (u))                  ENGINE=Sluice"
            ),
            &format!("SET sluice_bulk_insert_size={size}"),
            &format!("INSERT INTO {database}.t {fill}"),
        ]);
        loads.push(case.d.status("Sluice_bulk_inserts") - before);
    }
    assert_eq!(loads, [0, 1], "statements that loaded a table");
    case.d.kill();
    case.d.start(&[&networking, &address, &number]);
    let checksums = "CHECKSUM TABLE one.t, two.t";
    let rows = case.d.rows(checksums);
    assert_eq!(rows[0][1], rows[1][1], "tables");
    catch_up(&replica, &case.d);
    assert_eq!(replica.rows(checksums), rows, "tables of the replica");
    let mut arguments: Vec<std::path::PathBuf> =
        ["--base64-output=decode-rows", "-v"].map(Into::into).into();
    arguments.extend(case.binlogs());
    let text = mariadb_binlog(&arguments);
    let one = row_lines(&text, "one");
    assert!(one.len() > 20_000 && one == row_lines(&text, "two"), "rows in the binlog");
    replica.stop();
}

/// Rows of test.s that the replica has; none while it has no such table.
fn rows_applied(replica: &Site) -> i64 {
    match replica.client().rows("SELECT COUNT(*) FROM test.s") {
        Ok(rows) => rows[0],
        Err(Fault::Sql(1049 | 1146, _)) => 0,
        Err(fault) => panic!("{fault}"),
    }
}

/// A replica without a binlog keeps its position with the rows: killed again and again, it neither
/// skips a transaction nor applies one twice. REPLICA_OPTIONS=--gtid-pos-auto-engines=InnoDB shows
/// the error 1062 that the default prevents.
#[test]
fn a_replica_without_a_binlog_keeps_its_position() {
    let mut case = Case::new("a_replica_without_a_binlog_keeps_its_position");
    let others = std::env::var("REPLICA_OPTIONS").unwrap_or_default();
    let own = ["--server-id=2", "--skip-log-bin", "--sync-relay-log=1"];
    let options: Vec<_> = OPTIONS.into_iter().chain(own).chain(others.split_whitespace()).collect();
    let mut replica = Site::new(&case.scratch, "r", "Sluice", &options);
    let port = Port::reserve();
    let listen = listen(&port);
    case.d.start(&listen.each_ref().map(String::as_str));
    case.d.run(&[GRANT]);
    replica.start(&[]);
    follow(&replica, &port);
    make_tables(&case.d);
    let writer = Writer::start(&case.d, 1..=1_000_000, row_of_s);
    for round in 1..=8 {
        let wanted = rows_applied(&replica) + 20 + 7 * round;
        wait_until("rows that the replica applies", || {
            applies(&replica);
            rows_applied(&replica) > wanted
        });
        replica.kill();
        replica.start(&[]);
    }
    writer.end();
    catch_up(&replica, &case.d);
    let checksum = "CHECKSUM TABLE test.s";
    assert_eq!(replica.rows(checksum), case.d.rows(checksum), "tables");
    let engine =
        "SELECT engine FROM information_schema.tables WHERE table_name = 'gtid_slave_pos_Sluice'";
    assert_eq!(replica.value(engine), "Sluice", "the table of positions");
    replica.stop();
}

/// A client that copies the binlog gets the file, byte for byte, but for the flag that it is in use.
#[test]
fn raw_copies_are_equal() {
    let mut case = Case::new("raw_copies_are_equal");
    case.d.start(&["--max-binlog-size=262144"]);
    case.make_tables();
    let writers = Writers::start(&case.d, 3, 1, row_of_s);
    writers.wait_for(450);
    writers.end();
    let large = "INSERT INTO test.s VALUES (-1, REPEAT('x', 6000000))";
    case.d.run(&["FLUSH BINARY LOGS", large, "FLUSH BINARY LOGS"]);
    let raw = case.scratch.path("raw");
    fs::create_dir(&raw).unwrap();
    let binlogs = case.binlogs();
    files::copy_raw(&case.d, &files::name(&binlogs[0]), &raw);
    for file in &binlogs {
        let (there, copy) =
            (fs::read(file).unwrap(), fs::read(raw.join(files::name(file))).unwrap());
        // The server may have noted a checkpoint in the newest file since it was copied.
        if Some(file) != binlogs.last() {
            assert_eq!(copy.len(), there.len(), "bytes of {}", file.display());
        }
        assert!(
            copy.len() > 22 && copy[22..] == there[22..copy.len()],
            "{} differs",
            file.display()
        );
    }
}
