//! Replicas, and clients that copy the binlog.

use crate::case::{make_tables, Case, OPTIONS};
use crate::files;
use sluice_rig::client::Fault;
use sluice_rig::port::Port;
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
