//! Damaged files of a real server: it starts, or refuses with a clear line; the statement that needs
//! the damage fails, the rest works. See docs/damage.md.

use serde_json::Value;
use sluice_rig::suite;
use sluice_rig::tests;
use sluice_rig::tool::{run, says, Ended, Home, Tool};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

struct World {
    tool: Tool,
    home: Home,
}

fn main() -> ExitCode {
    let tests = tests![
        makes_tables_and_checks_them,
        inspect_refuses_a_running_server,
        inspect_finds_nothing_in_a_sound_directory,
        inspect_sums_up_a_stopped_and_a_killed_server,
        damaged_pages_cost_their_table_only,
        truncate_repairs_a_damaged_table,
        a_killed_server_recovers_around_damaged_pages,
        refuses_without_one_of_its_files,
    ];
    suite::run(&tests, || {
        let tool = Tool::new("damage")?;
        Ok(World { home: tool.home("d"), tool })
    })
}

impl World {
    fn files(&self) -> PathBuf {
        self.home.dir.join("data/sluice")
    }

    fn inspect(&self, args: &[&str]) -> Ended {
        run(self.tool.sluice(["inspect"]).arg(self.files()).args(args))
    }

    fn running(&self) {
        if !self.home.is_running() {
            self.home.start(&[]);
        }
    }

    /// A running server with sound tables test.first and test.second of 1000 rows each.
    fn sound_tables(&self) {
        self.running();
        self.home.sql(
            "CREATE DATABASE IF NOT EXISTS test;
             DROP TABLE IF EXISTS test.first, test.second;
             CREATE TABLE test.first (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE=Sluice;
             CREATE TABLE test.second (id INT PRIMARY KEY, v VARCHAR(100), KEY (v)) ENGINE=Sluice;
             INSERT INTO test.first SELECT seq, CONCAT('row ', seq) FROM test.seq_1_to_1000;
             INSERT INTO test.second SELECT seq, CONCAT('row ', seq) FROM test.seq_1_to_1000",
        );
    }

    /// Flips a bit in every page of the rows of test.first, which was created first.
    fn flip_pages_of_first(&self) {
        let map = self.inspect(&["map", "--json"]).ok();
        let map: Value = serde_json::from_str(&map).expect("JSON");
        let number = |page: &Value, name: &str| page[name].as_u64().expect("a number");
        let pages = map["pages"].as_array().expect("pages");
        let tables = pages.iter().filter(|page| number(page, "tree") >= 16);
        let first = tables.clone().map(|p| number(p, "tree")).min().expect("a table");
        let file = File::options().read(true).write(true).open(self.files().join("pages"));
        let file = file.expect("the file of pages");
        for page in tables.filter(|p| number(p, "tree") == first) {
            let (at, mut byte) = (number(page, "offset") + 40, [0]);
            file.read_exact_at(&mut byte, at).expect("a page");
            file.write_all_at(&[byte[0] ^ 4], at).expect("a page");
        }
    }

    /// A running server whose table test.first is damaged.
    fn damaged_first(&self) {
        self.sound_tables();
        self.home.stop();
        self.flip_pages_of_first();
        self.home.start(&[]);
    }

    fn first_fails_and_second_works(&self) {
        let (home, pid) = (&self.home, self.home.pid());
        let read = "SELECT SUM(LENGTH(v)), MAX(id) FROM test.first IGNORE INDEX (v)";
        assert!(home.try_sql(read).is_err());
        says("table test/first", &home.error_log());
        says("sluice/pages offset", &home.error_log());
        assert_eq!(home.sql("SELECT COUNT(*) FROM test.second"), "1000");
        home.sql("INSERT INTO test.second VALUES (100000, 'new')");
        home.sql("DELETE FROM test.second WHERE id = 100000");
        let check = home.sql("CHECK TABLE test.first");
        let is_error = |line: &str| line.contains("error") && line.contains("Corrupt");
        assert!(check.lines().any(is_error), "{check}");
        says("status\tOK", &home.sql("CHECK TABLE test.second EXTENDED"));
        assert_eq!(home.pid(), pid);
    }
}

fn makes_tables_and_checks_them(w: &mut World) {
    w.sound_tables();
    for how in ["QUICK", "EXTENDED"] {
        let checked = w.home.sql(&format!("CHECK TABLE test.first, test.second {how}"));
        assert_eq!(checked.matches("status\tOK").count(), 2, "{checked}");
    }
}

fn inspect_refuses_a_running_server(w: &mut World) {
    w.running();
    w.inspect(&["verify"]).with_code(2);
}

fn inspect_finds_nothing_in_a_sound_directory(w: &mut World) {
    w.sound_tables();
    w.home.stop();
    let verified = w.inspect(&["verify"]).ok();
    assert!(verified.lines().any(|line| line == "no damage found"), "{verified}");
    let report = w.inspect(&["verify", "--json"]).ok();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["clean"], true, "{report}");
    w.inspect(&["log", "--limit", "5"]).ok();
    let page = w.inspect(&["page", "1"]).ok();
    assert!(page.starts_with("page 1 of tree 1") || page.contains("\npage 1 of tree 1"), "{page}");
}

fn inspect_sums_up_a_stopped_and_a_killed_server(w: &mut World) {
    w.sound_tables();
    w.inspect(&["summary"]).with_code(2);
    w.home.stop();
    let stopped = w.inspect(&["summary"]).ok();
    for line in ["last stop    clean", "log          0 records to apply", "nothing to complete"] {
        says(line, &stopped);
    }
    w.home.start(&["--log-bin=seen"]);
    w.home.sql("INSERT INTO test.first VALUES (5000, 'in the log only')");
    w.home.kill();
    let killed = w.inspect(&["summary"]).ok();
    says("last stop    not clean", &killed);
    says("the next start completes ./seen.000001", &killed);
    says("data/seen.sluice: start the server with the plugin before all else", &killed);
    let report: Value =
        serde_json::from_str(&w.inspect(&["summary", "--json"]).ok()).expect("JSON");
    assert_eq!(
        (&report["clean"], &report["format"]),
        (&Value::Bool(false), &Value::from(2)),
        "{report}"
    );
    assert!(report["records"].as_u64() > Some(0), "{report}");
    w.home.start(&["--log-bin=seen"]);
    w.home.stop();
    says("last stop    clean", &w.inspect(&["summary"]).ok());
}

fn damaged_pages_cost_their_table_only(w: &mut World) {
    w.sound_tables();
    w.home.stop();
    w.flip_pages_of_first();
    says("checksum", &w.inspect(&["verify"]).with_code(1));
    w.home.start(&[]);
    w.first_fails_and_second_works();
}

fn truncate_repairs_a_damaged_table(w: &mut World) {
    w.damaged_first();
    w.first_fails_and_second_works();
    w.home.sql("TRUNCATE test.first; INSERT INTO test.first VALUES (1, 'again')");
    assert_eq!(w.home.sql("SELECT v FROM test.first"), "again");
    says("status\tOK", &w.home.sql("CHECK TABLE test.first"));
}

fn a_killed_server_recovers_around_damaged_pages(w: &mut World) {
    w.sound_tables();
    w.home.stop();
    w.home.start(&[]);
    w.home.sql(
        "UPDATE test.first SET v = CONCAT(v, '!');
         UPDATE test.second SET v = CONCAT(v, '!')",
    );
    w.home.kill();
    w.flip_pages_of_first();
    w.home.start(&[]);
    w.first_fails_and_second_works();
    assert_eq!(w.home.sql("SELECT COUNT(*) FROM test.second WHERE v LIKE '%!'"), "1000");
    // Given up for good: also after the pages are readable again.
    w.home.stop();
    w.flip_pages_of_first();
    w.home.start(&[]);
    w.first_fails_and_second_works();
    w.home.sql("DROP TABLE test.first");
    w.home.stop();
    let verified = w.inspect(&["verify"]).ok();
    assert!(verified.lines().any(|line| line == "no damage found"), "{verified}");
}

fn refuses_without_one_of_its_files(w: &mut World) {
    w.sound_tables();
    w.home.stop();
    let kept = w.tool.work.join("kept");
    for name in ["superblock", "log/control"] {
        let file = w.files().join(name);
        fs::rename(&file, &kept).expect("a file");
        let before = w.home.error_log().len();
        run(&mut w.home.server("start", &["--min-free-mib", "256"])).with_code(1);
        let log = w.home.error_log().split_off(before);
        let ours: Vec<_> = log.lines().filter(|l| l.contains("Sluice")).collect();
        says(name, &ours.join("\n"));
        fs::rename(&kept, &file).expect("a file");
    }
    w.home.start(&[]);
    assert_eq!(w.home.sql("SELECT COUNT(*) FROM test.second"), "1000");
    w.home.stop();
}
