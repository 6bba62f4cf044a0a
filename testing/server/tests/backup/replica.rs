//! A replica by one command: restored, and started.

use crate::case::{is_empty, transaction, Case, WRITERS};
use sluice_rig::tool::{run, says};
use sluice_server_tests::replica::catch_up;
use sluice_server_tests::writer::Writers;
use std::process::Command;

fn with_password(command: &mut Command, password: &str) {
    command.env("MYSQL_PWD", password);
}

#[test]
fn a_restored_replica_follows_from_its_first_start() {
    let (case, port) = Case::with_replicas("a_restored_replica_follows");
    let writers = Writers::start(&case.d, WRITERS, 1, transaction);
    writers.wait_for(50);
    run(&mut case.backup("b", &[])).ok();
    writers.wait_for(50);
    let url = format!("--as-replica-of=mysql://r@127.0.0.1:{}", port.number);
    let mut r = case.site("r");
    let mut restore = case.restore_by("b", &r.data(""), &[&url]);
    with_password(&mut restore, "r");
    let said = run(&mut restore).ok();
    says(&format!("from {}", case.fact("b", "gtid_binlog_pos")), &said);
    writers.wait_for(50);
    writers.end();
    r.start(&[]);
    catch_up(&r, &case.d);
    for name in ["w.s", "w.n", "w.p"] {
        let checksum = format!("CHECKSUM TABLE {name}");
        assert_eq!(r.rows(&checksum), case.d.rows(&checksum));
    }
    // Also after a crash of it.
    r.kill();
    case.d.run(&["INSERT INTO w.s VALUES (-5, 'more')"]);
    r.start(&[]);
    catch_up(&r, &case.d);
    assert_eq!(r.value("SELECT b FROM w.s WHERE a = -5"), "more");
    r.stop();

    let target = case.to("target");
    let refused = |url: &str, password: &str, why: &str| {
        let mut restore = case.restore_by("b", &target, &[&format!("--as-replica-of={url}")]);
        with_password(&mut restore, password);
        run(&mut restore).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    let address = format!("mysql://r@127.0.0.1:{}", port.number);
    refused(&address, "wrong", "Access denied");
    refused("mysql://r@localhost/?socket=/x", "r", "not a socket");
    // A primary that lost its history, or another server.
    case.d.run(&["RESET MASTER"]);
    refused(&address, "r", "would be ahead of it");
    refused("mysql://r@127.0.0.1:1", "r", "cannot connect");
}
