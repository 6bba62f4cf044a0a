//! Binary logs made by hand, and the places in them.

use super::*;
use std::fs;

/// A directory with the binary logs b.000001, b.000002 ...
struct Logs {
    dir: PathBuf,
    files: Vec<Vec<u8>>,
    /// Places where transactions begin and end, in order.
    places: Vec<(usize, u64, u64)>,
    state: State,
}

impl Logs {
    fn new(name: &str) -> Logs {
        let dir = std::env::temp_dir().join(format!("sluice-until-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let mut logs = Logs { dir, files: Vec::new(), places: Vec::new(), state: State::default() };
        logs.file();
        logs
    }

    fn event(&mut self, time: u32, kind: u8, server: u32, body: &[u8]) {
        let file = self.files.last_mut().unwrap();
        let bytes = 19 + body.len() as u32 + 4;
        file.extend(time.to_le_bytes());
        file.push(kind);
        file.extend(server.to_le_bytes());
        file.extend(bytes.to_le_bytes());
        file.extend([0; 6]);
        file.extend(body);
        file.extend([0xcc; 4]);
    }

    /// A new file, which says what was before it.
    fn file(&mut self) {
        self.files.push(b"\xfebin".to_vec());
        // Its last byte before the checksum says that there are checksums.
        self.event(0, 15, 1, &[[0; 60].as_slice(), &[1]].concat());
        let gtids = Gtid::parse_list(&self.state.text()).unwrap();
        let mut list = (gtids.len() as u32).to_le_bytes().to_vec();
        for Gtid { domain, server, sequence } in gtids {
            list.extend(domain.to_le_bytes());
            list.extend(server.to_le_bytes());
            list.extend(sequence.to_le_bytes());
        }
        self.event(0, 163, 1, &list);
        self.event(0, 161, 1, &[0; 20]);
    }

    fn gtid(&mut self, gtid: &str, time: u32, flags: u8) {
        let Gtid { domain, server, sequence } = Gtid::parse(gtid).unwrap();
        let body = [&sequence.to_le_bytes()[..], &domain.to_le_bytes(), &[flags, 0, 0, 0, 0, 0, 0]]
            .concat();
        self.event(time, 162, server, &body);
    }

    fn query(&mut self, text: &str) {
        let variables = [9, 9, 9];
        let front = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, variables.len() as u8, 0];
        self.event(0, 2, 1, &[&front[..], &variables, b"w\0", text.as_bytes()].concat());
    }

    fn transaction(&mut self, gtid: &str, time: u32) {
        let start = self.files.last().unwrap().len() as u64;
        self.gtid(gtid, time, 0);
        self.event(0, 19, 1, &[0; 30]);
        self.event(0, 23, 1, &[0; 50]);
        self.event(0, 16, 1, &[0; 8]);
        self.ends(gtid, start);
    }

    fn ends(&mut self, gtid: &str, start: u64) {
        self.state.add(Gtid::parse(gtid).unwrap());
        let end = self.files.last().unwrap().len() as u64;
        self.places.push((self.files.len(), start, end));
    }

    /// A backup that stands here.
    fn backup(&self) -> Manifest {
        let facts = [
            ("made_at_unix_time", "100".to_owned()),
            ("binlog_file", format!("b.{:06}", self.files.len())),
            ("binlog_position", self.files.last().unwrap().len().to_string()),
            ("gtid_binlog_state", self.state.text()),
        ];
        Manifest {
            facts: facts.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            files: Vec::new(),
        }
    }

    fn write(&self) {
        for (n, file) in self.files.iter().enumerate() {
            fs::write(self.dir.join(format!("b.{:06}", n + 1)), file).unwrap();
        }
    }

    fn find(&self, backup: &Manifest, until: Until) -> Result<Replay> {
        self.write();
        find(backup, &self.dir, &until)
    }

    /// Where a replay ends, by the number of the transaction before, and its count.
    fn end(&self, backup: &Manifest, until: Until) -> (usize, u64) {
        let replay = self.find(backup, until).unwrap();
        let at = |place: &(usize, u64, u64)| {
            replay.stop_file == format!("b.{:06}", place.0) && replay.stop == place.2
        };
        (self.places.iter().position(at).unwrap() + 1, replay.transactions)
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn gtids(text: &str) -> Until {
    Until::gtids(text).unwrap()
}

fn at(seconds: i64) -> Until {
    Until::Time { seconds, shown: "then".into() }
}

/// Two transactions, the backup, and six more in two files and two domains.
fn logs(name: &str) -> (Logs, Manifest) {
    let mut logs = Logs::new(name);
    logs.transaction("0-1-1", 90);
    logs.transaction("1-1-1", 91);
    let backup = logs.backup();
    logs.transaction("0-1-2", 100);
    logs.transaction("1-1-2", 110);
    logs.transaction("0-1-3", 110);
    logs.file();
    logs.transaction("0-2-4", 120);
    logs.transaction("1-1-3", 130);
    logs.transaction("0-1-5", 125);
    (logs, backup)
}

#[test]
fn each_target_ends_between_its_transactions() {
    let (logs, backup) = logs("targets");
    assert_eq!(logs.end(&backup, Until::End), (8, 6));
    assert_eq!(logs.end(&backup, gtids("0-1-3")), (5, 3));
    assert_eq!(logs.end(&backup, gtids("0-1-3,1-1-2")), (5, 3));
    assert_eq!(logs.end(&backup, gtids("1-1-3,0-2-4")), (7, 5));
    assert_eq!(logs.end(&backup, gtids("0-1-1,1-1-1")), (2, 0), "those of the backup");
    assert_eq!(logs.end(&backup, Until::Before(Gtid::parse("0-2-4").unwrap())), (5, 3));
    // Before the first transaction of that time, whatever comes after it.
    assert_eq!(logs.end(&backup, at(110)), (3, 1));
    assert_eq!(logs.end(&backup, at(111)), (5, 3));
    assert_eq!(logs.end(&backup, at(126)), (6, 4));
    assert_eq!(logs.end(&backup, at(999)), (8, 6));
    for (n, (file, start, end)) in logs.places.iter().enumerate().skip(2) {
        let place = |at| Until::Position(format!("b.{file:06}"), at);
        assert_eq!(logs.end(&backup, place(*end)), (n + 1, n as u64 - 1));
        assert_eq!(logs.end(&backup, place(*start)), (n, n as u64 - 2));
    }
    let replay = logs.find(&backup, gtids("0-1-3")).unwrap();
    assert_eq!(replay.state.text(), "0-1-3,1-1-2");
    assert_eq!(replay.next.unwrap().gtid.to_string(), "0-2-4");
    assert_eq!(logs.find(&backup, Until::End).unwrap().state.text(), "0-2-4,0-1-5,1-1-3");
}

#[test]
fn a_target_that_is_not_there_is_refused() {
    let (logs, backup) = logs("no-target");
    let refused = |until| logs.find(&backup, until).unwrap_err();
    assert!(refused(gtids("0-1-6"))
        .contains("do not have 0-1-6: their last one of its domain is 0-1-5"));
    assert!(refused(gtids("7-1-1")).contains("do not have 7-1-1"));
    assert!(refused(gtids("0-9-3")).contains("do not have 0-9-3"));
    assert!(refused(gtids("0-1-1,0-1-0")).contains("before the backup"));
    assert!(refused(gtids("1-1-0")).contains("before the backup"));
    assert!(refused(gtids("0-2-4,1-1-1")).contains("no place"));
    assert!(refused(Until::Before(Gtid::parse("0-1-1").unwrap())).contains("before the backup"));
    assert!(refused(Until::Before(Gtid::parse("0-1-9").unwrap())).contains("do not have 0-1-9"));
    assert!(refused(at(99)).contains("made after"));
    let (_, start, end) = logs.places[3];
    assert!(refused(Until::Position("b.000001".into(), start + 30))
        .contains("inside of transaction 1-1-2"));
    assert!(refused(Until::Position("b.000002".into(), end + 99_999)).contains("ends before"));
    assert!(refused(Until::Position("b.000001".into(), 5)).contains("before the backup"));
    assert!(refused(Until::Position("b.000009".into(), 5)).contains("none of the binary logs"));
}

#[test]
fn other_files_are_refused() {
    let (mut logs, backup) = logs("other-files");
    logs.file();
    logs.transaction("0-1-6", 140);
    logs.write();
    let refused = |logs: &Logs| find(&backup, &logs.dir, &Until::End).unwrap_err();
    fs::remove_file(logs.dir.join("b.000002")).unwrap();
    assert!(refused(&logs).contains("but not b.000002"));
    fs::remove_file(logs.dir.join("b.000003")).unwrap();
    assert!(find(&backup, &logs.dir, &Until::End).is_ok(), "it ends there");
    fs::remove_file(logs.dir.join("b.000001")).unwrap();
    assert!(refused(&logs).contains("does not have b.000001"));

    // Another server has another history in files of the same names.
    let mut other = Logs::new("other-server");
    other.transaction("0-7-1", 90);
    other.transaction("1-1-1", 91);
    assert!(other
        .find(&backup, Until::End)
        .unwrap_err()
        .contains("not that of the backup's server"));
    other.files[0].truncate(200);
    assert!(other.find(&backup, Until::End).unwrap_err().contains("ends before the backup"));

    // A file in the middle that is not the one that was there.
    let whole = logs.files[1].clone();
    logs.files[1] = Logs::new("in-between").files[0].clone();
    logs.files[2] = whole;
    assert!(logs.find(&backup, Until::End).unwrap_err().contains("does not go on"));
}

#[test]
fn an_end_that_was_lost_is_no_transaction() {
    let (mut logs, backup) = logs("lost-end");
    let whole = logs.files[1].len();
    logs.transaction("0-1-6", 140);
    let longer = logs.files[1].len();
    for cut in whole..longer {
        logs.files[1].truncate(longer);
        let file = logs.files[1].clone();
        logs.files[1].truncate(cut);
        let replay = logs.find(&backup, Until::End).unwrap();
        assert_eq!((replay.transactions, replay.stop), (6, whole as u64), "cut at {cut}");
        assert!(logs.find(&backup, gtids("0-1-6")).is_err());
        logs.files[1] = file;
    }
    assert_eq!(logs.end(&backup, gtids("0-1-6")), (9, 7));
    logs.files[0].pop();
    assert!(logs.find(&backup, Until::End).unwrap_err().contains("in the middle of an event"));
}

#[test]
fn statements_that_end_a_transaction_are_known() {
    let mut logs = Logs::new("statements");
    let backup = logs.backup();
    let mut count = 0;
    for (flags, statements, is_whole) in [
        (1, &["CREATE TABLE t (a INT)"][..], true),
        (0, &["INSERT INTO t VALUES ('COMMIT')", "COMMIT"], true),
        (0, &["INSERT INTO t VALUES (1)", "ROLLBACK"], true),
        (0, &["XA COMMIT X'71',X'',1"], true),
        (0, &["INSERT INTO t VALUES (1)"], false),
        (0, &["SAVEPOINT COMMIT"], false),
    ] {
        count += 1;
        let (gtid, start) = (format!("0-1-{count}"), logs.files[0].len() as u64);
        logs.gtid(&gtid, 200, flags);
        statements.iter().for_each(|text| logs.query(text));
        let replay = logs.find(&backup, Until::End).unwrap();
        assert_eq!(
            replay.last.map(|last| last.gtid.to_string() == gtid),
            Some(is_whole),
            "{statements:?}"
        );
        match is_whole {
            true => logs.ends(&gtid, start),
            false => logs.files[0].truncate(start as usize),
        }
    }
}

#[test]
fn damage_and_encryption_are_no_panic() {
    let (mut logs, backup) = logs("damage");
    let whole = logs.files[0].clone();
    for at in 0..whole.len() {
        logs.files[0] = whole.clone();
        logs.files[0][at] ^= 0x81;
        let _ = logs.find(&backup, Until::End);
    }
    logs.files[0] = whole;
    logs.event(0, 164, 1, &[0; 20]);
    assert!(logs.find(&backup, Until::End).unwrap_err().contains("is encrypted"));
    logs.files[0][0] = 0;
    assert!(logs.find(&backup, Until::End).unwrap_err().contains("no binary log"));
}

#[test]
fn times_and_places_are_read() {
    let utc = |text: &str| match Until::time(text) {
        Ok(Until::Time { seconds, .. }) => seconds,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(utc("1970-01-01 00:00:01Z"), 1);
    assert_eq!(utc("2026-11-24 21:52:45 Z"), 1_795_557_165);
    assert_eq!(utc("2000-02-29T12:00:00Z"), 951_825_600);
    assert!((utc("2026-11-24 21:52:45") - 1_795_557_165).abs() <= 14 * 3600);
    for text in [
        "",
        "2026-11-24",
        "2026-02-30 00:00:00Z",
        "2026-11-24 24:00:00",
        "2026-11-24 1:2",
        "yesterday",
    ] {
        assert!(Until::time(text).is_err(), "{text}");
    }
    assert_eq!(Until::position("a.b.000001:77"), Ok(Until::Position("a.b.000001".into(), 77)));
    for text in ["77", "a:b", "a.000001:"] {
        assert!(Until::position(text).is_err(), "{text}");
    }
    assert!(Until::gtids(" ").is_err());
}
