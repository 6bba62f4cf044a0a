//! Replicas of a Sluice server, one with the tables in Sluice and one with them in InnoDB: GTID,
//! semi-synchronous at both wait points, applied in parallel; kills of replica and primary.
//!
//! `cargo test --release --workspace --test replicas [NAME]`, with the environment
//! variables THREADS=4, TABLES=4, SIZE=5000 (rows of a table), KILLS=3 and SEED=1 (of the kills).

mod load;
mod world;

use load::Load;
use sluice_rig::rng::Rng;
use sluice_server_tests::replica::catch_up;
use std::time::Duration;
use world::{setting, World};

#[test]
fn replicas_in_both_engines_are_equal() {
    let w = World::new("replicas_in_both_engines_are_equal");
    w.load_for(Duration::from_secs(5));
    w.both_are_equal();
    for (replica, engine) in [(&w.sluice, "Sluice"), (&w.innodb, "InnoDB")] {
        let engines = "SELECT DISTINCT engine FROM information_schema.tables \
                       WHERE table_schema = 'sbtest'";
        assert_eq!(replica.rows(engines), [[engine]], "engines");
    }
    w.stop();
}

#[test]
fn semi_sync_after_sync() {
    semi_sync("semi_sync_after_sync", "AFTER_SYNC");
}

#[test]
fn semi_sync_after_commit() {
    semi_sync("semi_sync_after_commit", "AFTER_COMMIT");
}

fn semi_sync(name: &str, wait_point: &str) {
    let w = World::new(name);
    for replica in [&w.sluice, &w.innodb] {
        let enable = "SET GLOBAL rpl_semi_sync_slave_enabled = 1";
        replica.run(&[enable, "STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD"]);
    }
    let wait_point = format!("SET GLOBAL rpl_semi_sync_master_wait_point = {wait_point}");
    w.primary.run(&[&wait_point, "SET GLOBAL rpl_semi_sync_master_enabled = 1"]);
    let status = |what: &str| w.primary.status(&format!("Rpl_semi_sync_master_{what}"));
    sluice_server_tests::wait_until("two semi-synchronous replicas", || status("clients") == 2);
    let (alone, acknowledged) = (status("no_tx"), status("yes_tx"));
    w.load_for(Duration::from_secs(5));
    assert_eq!(status("clients"), 2, "clients");
    assert_eq!(status("no_tx") - alone, 0, "commits without a replica");
    assert!(status("yes_tx") - acknowledged > 100, "few commits with a replica");
    w.both_are_equal();
    w.stop();
}

/// What it had applied is there, and what it goes on with is neither lost nor applied twice.
///
/// The replica makes the tables before the first kill: the server commits a DDL statement and its
/// position one after the other, in any engine, and stops with error 1950 after a kill between them.
fn goes_on_after_kills(w: &mut World) {
    catch_up(&w.sluice, &w.primary);
    let load = Load::start(&w.primary);
    let mut rng = Rng::new(setting("SEED", 1));
    for _ in 0..setting("KILLS", 3) {
        load.wait_for(rng.between(1, 300) as u64);
        w.sluice.kill();
        w.sluice.start(&[]);
        w.follow(&w.sluice);
    }
    load.wait_for(300);
    load.end();
    w.is_equal(&w.sluice);
}

#[test]
fn a_killed_replica_goes_on() {
    let mut w = World::new("a_killed_replica_goes_on");
    goes_on_after_kills(&mut w);
    w.stop();
}

#[test]
fn a_replica_with_its_position_in_sluice() {
    let mut w = World::new("a_replica_with_its_position_in_sluice");
    w.sluice.run(&["STOP SLAVE", "SET GLOBAL gtid_pos_auto_engines = 'Sluice'", "START SLAVE"]);
    goes_on_after_kills(&mut w);
    let engine = "SELECT engine FROM information_schema.tables \
                  WHERE table_name = 'gtid_slave_pos_Sluice'";
    assert_eq!(w.sluice.value(engine), "Sluice", "engine of the position");
    w.stop();
}

/// What a replica has the primary has too, after kill -9.
#[test]
fn no_replica_is_ahead_of_a_killed_primary() {
    let mut w = World::new("no_replica_is_ahead_of_a_killed_primary");
    let load = Load::start(&w.primary);
    load.wait_for(500);
    w.primary.kill();
    load.lose();
    w.start_primary();
    w.load_for(Duration::from_secs(2));
    for replica in [&w.sluice, &w.innodb] {
        replica.run(&["STOP SLAVE", "START SLAVE"]);
    }
    w.both_are_equal();
    w.stop();
}
