//! The switch, and what the error log says about the other engine.

use crate::case::Case;
use sluice_rig::client::Fault;
use sluice_server_tests::writer::{insert, row_of_i};
use std::fs;

/// Setting the switch to the value that it has does nothing; where the mark cannot be written, it
/// stays OFF.
#[test]
fn the_switch_and_its_mark() {
    const ON: &str = "SET GLOBAL sluice_persist_binlog_to_redo = ON";
    let mut case = Case::new("the_switch_and_its_mark");
    let mark = case.d.data("sluice-bin.sluice");
    let written = || {
        use std::os::unix::fs::MetadataExt;
        let data = fs::metadata(&mark).expect("the mark");
        (data.ino(), data.mtime(), data.mtime_nsec())
    };
    case.d.start(&[]);
    let before = written();
    case.d.run(&[ON]);
    assert_eq!(written(), before, "the mark");
    case.d.run(&["SET GLOBAL sluice_persist_binlog_to_redo = OFF"]);
    assert!(!mark.exists(), "the mark is still there");
    fs::create_dir(&mark).unwrap();
    match case.d.client().run(ON) {
        Err(Fault::Sql(_, text)) => assert!(text.contains("stays OFF"), "{text}"),
        Err(fault) => panic!("{fault}"),
        Ok(()) => panic!("the switch is ON without a mark"),
    }
    assert_eq!(case.d.value("SELECT @@sluice_persist_binlog_to_redo"), "0", "the switch");
    assert_eq!(case.d.status("Sluice_binlog_in_log"), 0, "the binlog is in the log");
    fs::remove_dir(&mark).unwrap();
    case.d.run(&[ON]);
    assert!(mark.is_file(), "no mark");
    assert_eq!(case.d.status("Sluice_binlog_in_log"), 1, "the binlog is in the log");
}

/// InnoDB's own flushes decide what it has after a crash: that is said, and only then.
#[test]
fn what_innodb_may_lack_is_said() {
    let mut case = Case::new("what_innodb_may_lack_is_said");
    for how in [1, 2] {
        let flush = format!("--innodb-flush-log-at-trx-commit={how}");
        case.d.start(&[&flush]);
        if how == 1 {
            case.make_tables();
        }
        insert(&case.d, how * 100..=how * 100 + 5, row_of_i);
        case.d.kill();
        case.d.start(&[&flush]);
        case.d.stop();
        case.d.start(&[&flush]);
        assert_eq!(case.d.times_said("InnoDB may lack") as i64, how - 1, "times that it was said");
        case.d.stop();
    }
}
