//! Wrong starts after a crash that lost the end of the binlog: each refuses or says what it lacks,
//! and the right one after it completes everything.

use crate::case::unsynced;
use crate::files::drop_last;
use sluice_server_tests::writer::{insert, row_of_i, row_of_s};
use std::fs;

const WITHOUT_PLUGIN: [&str; 2] = ["--sluice=OFF", "--default-storage-engine=InnoDB"];

#[test]
fn a_wrong_start_gives_up_nothing() {
    unsynced("a_wrong_start_gives_up_nothing", |case| {
        let [volume, index, away] = ["volume", "index", "away"].map(|name| case.scratch.path(name));
        fs::create_dir(&volume).unwrap();
        case.lose_fifty_rows(&[])?;
        case.d.refuses("start with log_bin=", &["--log-bin=other"]);
        fs::copy(&case.index, &index).unwrap();
        drop_last(&case.index);
        case.d.refuses("does not name it", &[]);
        fs::copy(&index, &case.index).unwrap();
        let last = case.last_binlog();
        fs::rename(&last, &away).unwrap();
        case.d.refuses("does not exist", &[]);
        fs::rename(&away, &last).unwrap();
        let other = format!("--log-bin={}", volume.join("other").display());
        case.d.refuses("start with log_bin=", &[&other]);
        case.d.start(&[]);
        case.same_rows(50, 1275);
        case.gtid_position_is("0-1-55");
        Ok(())
    });
}

/// The volume of the binlog is not mounted: the index is away, too.
#[test]
fn a_missing_volume_gives_up_nothing() {
    unsynced("a_missing_volume_gives_up_nothing", |case| {
        let [volume, away] = ["volume", "away"].map(|name| case.scratch.path(name));
        fs::create_dir(&volume).unwrap();
        case.index = volume.join("bin.index");
        let there = format!("--log-bin={}", volume.join("bin").display());
        case.lose_fifty_rows(&[&there])?;
        fs::rename(&volume, &away).unwrap();
        fs::create_dir(&volume).unwrap();
        case.d.refuses("mounted", &[&there]);
        case.d.refuses("start with log_bin=", &[]);
        case.d.refuses("mounted", &["--skip-log-bin"]);
        fs::remove_dir_all(&volume).unwrap();
        fs::rename(&away, &volume).unwrap();
        case.d.start(&[&there]);
        assert_eq!(case.d.count_and_sum("s"), (50, 1275), "rows");
        case.gtid_position_is("0-1-55");
        Ok(())
    });
}

/// Without a binlog nothing is held any more: its files are completed at that start.
#[test]
fn a_start_without_a_binlog_completes_it() {
    unsynced("a_start_without_a_binlog_completes_it", |case| {
        case.lose_fifty_rows(&[])?;
        case.d.start(&["--skip-log-bin"]);
        assert_eq!(case.d.count_and_sum("s"), (50, 1275), "rows without a binlog");
        assert_eq!(case.d.status("Sluice_log_pin_binlog_bytes"), 0, "pinned bytes");
        case.d.run(&["INSERT INTO test.s VALUES (1000, 'not in the binlog')"]);
        case.d.kill();
        case.d.start(&[]);
        assert_eq!(case.d.count_and_sum("s"), (51, 2275), "rows");
        case.gtid_position_is("0-1-55");
        case.d.run(&["DELETE FROM test.s WHERE a = 1000"]);
        insert(&case.d, 51..=60, row_of_s);
        case.same_rows(60, 1830);
        Ok(())
    });
}

/// The plugin is missing at the first start after a crash, and nothing is written then.
#[test]
fn a_start_without_the_plugin_uses_no_gtid_twice() {
    unsynced("a_start_without_the_plugin_uses_no_gtid_twice", |case| {
        case.lose_fifty_rows(&[])?;
        case.d.start(&WITHOUT_PLUGIN);
        let replaced = case.last_binlog();
        case.d.stop();
        case.d.start(&[]);
        case.d.says("was started without Sluice after a crash");
        case.gtid_position_is("0-1-55");
        insert(&case.d, 51..=60, row_of_s);
        case.gtid_position_is("0-1-65");
        assert!(!case.binlogs().contains(&replaced), "its file is in the index");
        case.same_rows(60, 1830);
        // Nothing is missing this time: its file stays.
        insert(&case.d, 61..=70, row_of_s);
        case.d.kill();
        case.d.start(&WITHOUT_PLUGIN);
        let kept = case.last_binlog();
        case.d.stop();
        case.d.start(&[]);
        insert(&case.d, 71..=80, row_of_s);
        case.gtid_position_is("0-1-85");
        assert!(case.binlogs().contains(&kept), "its file is not in the index");
        case.same_rows(80, 3240);
        Ok(())
    });
}

/// Without the plugin the server wrote to the binlog, which lacks what the log holds.
#[test]
fn events_without_the_plugin_are_not_passed_over() {
    unsynced("events_without_the_plugin_are_not_passed_over", |case| {
        case.lose_fifty_rows(&[])?;
        case.d.start(&WITHOUT_PLUGIN);
        insert(&case.d, 1..=5, row_of_i);
        case.d.stop();
        for _ in 0..2 {
            case.d.refuses("GTIDs may have been used twice", &[]);
        }
        case.d.start(&["--loose-sluice-abandon-binlog=ON"]);
        assert_eq!(case.d.count_and_sum("s"), (50, 1275), "rows");
        insert(&case.d, 51..=60, row_of_s);
        case.d.kill();
        case.d.start(&[]);
        assert_eq!(case.d.count_and_sum("s"), (60, 1830), "rows");
        Ok(())
    });
}

/// A plugin that cannot start keeps the server from going on without it.
#[test]
fn a_refusal_stops_the_server() {
    unsynced("a_refusal_stops_the_server", |case| {
        let index = case.scratch.path("index");
        case.lose_fifty_rows(&[])?;
        fs::rename(&case.index, &index).unwrap();
        case.d.refuses("must not start without it", &["--sluice=ON"]);
        fs::rename(&index, &case.index).unwrap();
        case.d.start(&[]);
        case.same_rows(50, 1275);
        Ok(())
    });
}
