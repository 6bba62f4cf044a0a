//! `sluice bench`, its reports, `sluice writes` and `sluice top` on private servers.

use serde_json::Value;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{
    ensure_package, is_silent_about, run, says, signal, spawn, wait, wait_until, Home, Tool,
};
use sluice_server_tests::mounted::FileSystem;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

struct World {
    tool: Tool,
    home: Home,
}

fn main() -> ExitCode {
    let tests = tests![
        interrupted_bench_leaves_nothing,
        bench_goes_on_where_it_was,
        another_configuration_is_refused,
        reports_are_written,
        report_shows_in_a_browser,
        running_server_is_measured_without_a_trace,
        foreign_schema_is_left_alone,
        empty_schema_is_used_and_emptied,
        too_many_threads_are_refused,
        bytes_by_cause_are_those_of_the_kernel,
        bytes_by_table_are_those_of_the_kernel,
        data_and_journal_of_ext4_are_what_the_device_got,
        data_and_journal_of_xfs_are_what_the_device_got,
        discards_are_counted_and_what_is_not_known_is_said,
        errors_are_clear,
        writes_counts_bytes,
        top_shows_a_screen,
    ];
    suite::run(&tests, || {
        let tool = Tool::new("tools")?;
        match ensure_package("sysbench") {
            true => Ok(World { home: tool.home("d"), tool }),
            false => Err("no sysbench, and it cannot be installed".into()),
        }
    })
}

/// A short measurement with results in directory `out` of the work directory.
fn bench(tool: &Tool, out: &str, args: &[&str]) -> Command {
    let mut command = tool.sluice(["bench", "run", "--out"]);
    command.arg(tool.work.join(out)).args([
        "--workloads=rows_update_non_index",
        "--threads=1,2",
        "--seconds=1",
        "--warmup=0",
        "--rows=500",
        "--tables=1",
        "--pool-mib=32",
        "--log-mib=32",
    ]);
    command.args(args);
    command
}

fn two_engines(tool: &Tool, args: &[&str]) -> Command {
    let engines = ["--repetitions", "2", "--target", "innodb=InnoDB", "--target", "sluice=Sluice"];
    bench(tool, "b", &[&engines, args].concat())
}

fn running_programs() -> String {
    run(Command::new("ps").args(["-eo", "args"])).ok()
}

/// Nothing of a run may be left but its results.
fn nothing_left_of(out: &Path) {
    let servers = out.join("servers");
    assert!(!servers.exists());
    is_silent_about(&format!("--datadir={}/", servers.display()), &running_programs());
}

impl World {
    /// The measured points that directory b has, one a line.
    fn points(&self) -> Vec<String> {
        let results = fs::read_to_string(self.tool.work.join("b/results.jsonl"));
        let results = results.unwrap_or_default();
        let points = results.lines().filter(|line| line.contains(r#""kind":"point""#));
        points.map(str::to_owned).collect()
    }

    /// Directory b has some points of an interrupted run.
    fn interrupted_bench(&self) {
        if self.points().is_empty() {
            let bench = spawn(&mut two_engines(&self.tool, &[]));
            let limit = Duration::from_secs(120);
            wait_until("a point of the measurement", limit, || !self.points().is_empty());
            signal("TERM", bench.id());
            wait(bench).with_code(130);
        }
    }

    /// Directory b has all points.
    fn finished_bench(&self) {
        if self.points().len() < 8 {
            run(&mut two_engines(&self.tool, &[])).ok();
        }
    }

    fn server(&self) -> &Home {
        if !self.home.is_running() {
            self.home.start(&[
                "--innodb-buffer-pool-size=32M",
                "--performance-schema=ON",
                "--sluice-buffer-pool-size=16M",
                "--sluice-log-capacity=64M",
            ]);
        }
        &self.home
    }

    /// The target that is the running server.
    fn there(&self) -> String {
        format!("there={}", self.server().address())
    }
}

fn interrupted_bench_leaves_nothing(w: &mut World) {
    w.interrupted_bench();
    nothing_left_of(&w.tool.work.join("b"));
}

fn bench_goes_on_where_it_was(w: &mut World) {
    w.interrupted_bench();
    let before = w.points();
    run(&mut two_engines(&w.tool, &[])).ok();
    let after = w.points();
    assert_eq!(after.len(), 8);
    assert!(after.starts_with(&before), "{before:#?}\n{after:#?}");
    for point in &after {
        let point: Value = serde_json::from_str(point).expect("a line of JSON");
        let storage = &point["storage"];
        assert!(["devices", "journals", "drives"].iter().all(|n| storage[n].is_array()), "{point}");
        let devices = storage["devices"].as_array().expect("devices");
        // No less than the device of the data alone.
        let all: f64 = devices.iter().map(|device| number(device, "written_bytes")).sum();
        assert!(all >= point["device"]["written_bytes"].as_f64().unwrap_or(0.0), "{point}");
    }
    nothing_left_of(&w.tool.work.join("b"));
}

fn another_configuration_is_refused(w: &mut World) {
    w.finished_bench();
    run(&mut two_engines(&w.tool, &["--schema", "other"])).refuses("another configuration");
}

fn reports_are_written(w: &mut World) {
    w.finished_bench();
    let report = |name: &str| {
        let text = fs::read_to_string(w.tool.work.join("b").join(name));
        text.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(!report("report.html").is_empty());
    let judged = ["sluice did", "sluice and innodb show"];
    let judged = judged.map(|judgement| format!("- rows_update_non_index: {judgement}"));
    let text = report("report.md");
    assert!(text.lines().any(|line| judged.iter().any(|j| line.starts_with(j))), "{text}");
    assert_eq!(report("report.csv").lines().count(), 11);
}

/// What only this test adds to the report: does anything stick out to the right?
const CHECK_OF_WIDTH: &str = r#"<script>
document.title = "width " + (document.documentElement.scrollWidth <= window.innerWidth) + " charts " +
  [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height > 100).length
</script></main>"#;

fn report_shows_in_a_browser(w: &mut World) {
    if !ensure_package("chromium") {
        skip("chromium cannot be installed");
    }
    w.finished_bench();
    let dir = w.tool.work.join("b");
    let report = fs::read_to_string(dir.join("report.html")).expect("a report");
    let checked = dir.join("checked.html");
    fs::write(&checked, report.replace("</main>", CHECK_OF_WIDTH)).expect("a page");
    for width in [390, 1200] {
        let mut browser = Command::new("timeout");
        browser.args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
        browser.args(["--disable-background-networking", "--disable-component-update"]);
        browser.args(["--disable-sync", "--no-first-run", "--dump-dom"]);
        browser.arg(format!("--window-size={width},900"));
        browser.arg(format!("--user-data-dir={}", w.tool.work.join("chromium").display()));
        let shown = run(browser.arg(format!("file://{}", checked.display()))).ok();
        let title = shown.split("<title>").nth(1).and_then(|t| t.split('<').next());
        let title = title.unwrap_or_default();
        let charts = title.strip_prefix("width true charts ").and_then(|n| n.parse().ok());
        assert!(charts.is_some_and(|n: usize| n >= 6), "{width} pixels wide: {title}");
    }
}

const PASSWORD: &str = "p4ssw0rd-of-the-test";

fn running_server_is_measured_without_a_trace(w: &mut World) {
    w.server().sql(&format!(
        "CREATE OR REPLACE USER measure@localhost IDENTIFIED BY '{PASSWORD}';
         GRANT ALL ON *.* TO measure@localhost"
    ));
    let target = format!("there={}#Sluice", w.home.address_of("measure"));
    let mut measuring = bench(&w.tool, "r", &["--repetitions", "1", "--target", &target]);
    let mut measuring = spawn(measuring.env("MYSQL_PWD", PASSWORD));
    let mut seen = String::new();
    while measuring.try_wait().expect("our child").is_none() {
        seen += &running_programs();
        sleep(Duration::from_millis(100));
    }
    wait(measuring).ok();
    says("sysbench --config-file", &seen);
    is_silent_about(PASSWORD, &seen);
    let leak = run(Command::new("grep").args(["-r", PASSWORD]).arg(w.tool.work.join("r")));
    assert_eq!(leak.with_code(1), "");
    assert_eq!(w.home.sql(r"SHOW DATABASES LIKE 'sluice\_bench%'"), "");
}

/// A schema with a name that `sluice bench` would use, in which somebody else has a table.
fn foreign_schema(home: &Home) {
    home.sql(
        "CREATE DATABASE IF NOT EXISTS sluice_bench_188;
         CREATE TABLE IF NOT EXISTS sluice_bench_188.precious (id INT)",
    );
}

fn foreign_schema_is_left_alone(w: &mut World) {
    foreign_schema(w.server());
    run(&mut bench(&w.tool, "f", &["--target", &w.there()])).refuses("left alone");
    assert_eq!(w.home.sql("SHOW TABLES FROM sluice_bench_188"), "precious");
}

fn empty_schema_is_used_and_emptied(w: &mut World) {
    foreign_schema(w.server());
    w.home.sql("DROP TABLE sluice_bench_188.precious");
    run(&mut bench(&w.tool, "e", &["--repetitions", "1", "--target", &w.there()])).ok();
    assert_eq!(w.home.sql(r"SHOW DATABASES LIKE 'sluice\_bench%'"), "sluice_bench_188");
    assert_eq!(w.home.sql("SHOW TABLES FROM sluice_bench_188"), "");
}

fn too_many_threads_are_refused(w: &mut World) {
    let target = w.there();
    let args = ["--target", &target, "--workloads", "oltp_insert", "--threads", "500"];
    let mut command = w.tool.sluice(["bench", "run", "--seconds", "1", "--out"]);
    run(command.arg(w.tool.work.join("m")).args(args)).refuses("max_connections");
}

fn sysbench(home: &Home, args: &[&str]) {
    let mut command = Command::new("sysbench");
    command.arg(format!("--mysql-socket={}", home.socket().display())).args([
        "--mysql-user=root",
        "--mysql-db=bytes",
        "--mysql_storage_engine=Sluice",
        "--tables=2",
        "--table_size=60000",
        "--rand-type=uniform",
        "--threads=8",
    ]);
    run(command.args(args)).ok();
}

/// `sluice writes` for one sample of so many seconds, while `load` runs.
fn sample(w: &World, seconds: &str, load: impl FnOnce(&Home)) -> Value {
    let address = w.server().address();
    let args =
        ["writes", &address, "--interval", seconds, "--count", "1", "--json", "--tables=1000"];
    let writes = spawn(&mut w.tool.sluice(args));
    load(&w.home);
    let sample = wait(writes).ok();
    serde_json::from_str(&sample).unwrap_or_else(|error| panic!("{error}: {sample}"))
}

fn number(sample: &Value, name: &str) -> f64 {
    sample[name].as_f64().unwrap_or_else(|| panic!("no {name}: {sample}"))
}

fn bytes_by_cause_are_those_of_the_kernel(w: &mut World) {
    w.server().sql("DROP DATABASE IF EXISTS bytes; CREATE DATABASE bytes");
    sysbench(&w.home, &["oltp_write_only", "prepare"]);
    for binlog_in_log in [true, false] {
        w.home.sql(&format!("SET GLOBAL sluice_persist_binlog_to_redo = {binlog_in_log}"));
        // The load lies within the sample: at both ends the server is idle, and all counters agree.
        let sample = sample(w, "9", |home| {
            sleep(Duration::from_secs(1));
            sysbench(home, &["oltp_write_only", "--time=5", "run"]);
        });
        adds_up(&sample, binlog_in_log);
    }
    w.home.sql("SET GLOBAL sluice_persist_binlog_to_redo = DEFAULT; DROP DATABASE bytes");
}

/// Records of pages that have a place and are not in the file yet.
const OPEN_CHUNK_BYTES: f64 = 1048576.0;

fn adds_up(sample: &Value, binlog_in_log: bool) {
    let causes = &sample["bytes_by_cause"];
    let bytes = causes.as_object().expect("causes").values();
    let named: f64 = bytes.map(|b| b.as_f64().expect("a number")).sum();
    let (calls, kernel) = (number(sample, "write_call_bytes"), number(sample, "process_bytes"));
    assert!(
        calls > 5e6 && number(causes, "log") > 0.0 && number(causes, "pages") > 0.0,
        "{sample}"
    );
    assert!((named / calls - 1.0).abs() < 0.02, "{named} of {calls} are named: {sample}");
    // The tables are those of Sluice: the rest is of the binlog, and little of InnoDB.
    let tables = sample["tables"].as_array().expect("tables");
    let bytes: Vec<f64> = tables.iter().map(|table| number(table, "bytes")).collect();
    let of_tables: f64 = bytes.iter().sum();
    let of_causes = named - number(causes, "binlog");
    assert!(bytes.is_sorted_by(|a, b| a >= b), "{sample}");
    // A page counts for its table when it gets its place: some wait in memory at each end of the sample.
    let beside = (of_tables - of_causes).abs();
    assert!(beside < of_causes * 0.02 + OPEN_CHUNK_BYTES, "{of_tables} of {of_causes}: {sample}");
    // What the kernel counts beyond the calls are pages of the binlog that a sync leaves half
    // filled: at most two for each sync, one per group of commits, or one in 50 ms.
    let syncs = match binlog_in_log {
        true => number(sample, "seconds") * 20.0,
        false => number(sample, "commits") / number(sample, "group_size"),
    };
    let beyond = kernel - calls;
    assert!((0.0..syncs * 2.0 * 4096.0 + 1e6).contains(&beyond), "{beyond}, {syncs}: {sample}");
}

/// Bytes that the server has given to write calls, and that the kernel counts as written by it.
fn kernel_bytes(home: &Home) -> [f64; 2] {
    let text = fs::read_to_string(format!("/proc/{}/io", home.pid())).expect("our process");
    ["wchar: ", "write_bytes: "].map(|name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name}: {text}"))
    })
}

/// A sum of columns over rows of the table; 0 if there is none.
fn written(home: &Home, sum: &str, rows: &str) -> f64 {
    let sql = format!(
        "SELECT IFNULL(SUM({sum}), 0) FROM information_schema.SLUICE_TABLE_WRITES WHERE {rows}"
    );
    home.sql(&sql).parse().expect("a number")
}

/// A checkpoint writes what waits in memory.
fn checkpoint(home: &Home) {
    home.sql("SET SESSION sluice_hot_backup = ON; BACKUP STAGE START; BACKUP STAGE END");
}

/// More than twice the pool: rows, an index whose entries are sorted in a file, partitions, a table that
/// is dropped, and changes all over them.
const ALL_OVER: &str = "
    CREATE DATABASE written; USE written;
    CREATE TABLE wide (id INT PRIMARY KEY, v VARCHAR(200) NOT NULL, n INT) ENGINE=Sluice
      SELECT seq id, CONCAT(SHA2(seq, 512), MD5(seq)) v, 0 n FROM seq_1_to_120000;
    CREATE TABLE gone ENGINE=Sluice SELECT * FROM wide;
    ALTER TABLE wide ADD KEY (v), ALGORITHM=INPLACE;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200) NOT NULL, n INT) ENGINE=Sluice
      PARTITION BY HASH (id) PARTITIONS 3;
    INSERT INTO parts SELECT * FROM wide WHERE id <= 60000;
    UPDATE wide SET n = 1, v = REVERSE(v) WHERE id % 5 = 0;
    DROP TABLE gone;
    CREATE PROCEDURE scatter(first INT, rows_left INT) BEGIN
      WHILE rows_left > 0 DO
        START TRANSACTION;
        FOR i IN 1..100 DO
          SET @id = first + FLOOR(RAND() * 15000);
          UPDATE wide SET n = n + 1, v = REVERSE(v) WHERE id = @id;
          UPDATE parts SET v = REVERSE(v) WHERE id = @id;
        END FOR;
        COMMIT;
        SET rows_left = rows_left - 100;
      END WHILE;
    END";

fn bytes_by_table_are_those_of_the_kernel(w: &mut World) {
    let home = w.tool.home("tables");
    // Without the binlog, which is not the engine's and has rounded pages.
    home.start(&[
        "--skip-log-bin",
        "--innodb-buffer-pool-size=32M",
        "--sluice-buffer-pool-size=16M",
        "--sluice-log-capacity=64M",
    ]);
    checkpoint(&home);
    let (kernel, named) = (kernel_bytes(&home), written(&home, "TOTAL_BYTES", "TRUE"));
    let (tables, scatter) = ALL_OVER.split_once("CREATE PROCEDURE").expect("a procedure");
    home.sql(tables);
    let scatter = format!("CREATE PROCEDURE written.{}", scatter.trim_start());
    assert!(home.connect().run(&scatter).is_ok());
    // Each has rows of its own: there is no deadlock.
    std::thread::scope(|scope| {
        for first in [1, 15_001, 30_001, 45_001] {
            let home = &home;
            let call = format!("USE written; CALL scatter({first}, 7500)");
            scope.spawn(move || home.sql(&call));
        }
    });
    checkpoint(&home);
    let named = written(&home, "TOTAL_BYTES", "TRUE") - named;
    let rows = home.sql("SELECT * FROM information_schema.SLUICE_TABLE_WRITES ORDER BY 2, 3");
    for (kernel, before) in kernel_bytes(&home).into_iter().zip(kernel) {
        let written = kernel - before;
        println!("{named} named of {written}");
        assert!(written > 100e6, "{written}: {rows}");
        assert!((named / written - 1.0).abs() < 0.02, "{named} of {written}: {rows}");
    }
    let wide = "TABLE_SCHEMA = 'written' AND TABLE_NAME = 'wide'";
    let parts = "TABLE_SCHEMA = 'written' AND TABLE_NAME = 'parts' AND PARTITION_NAME";
    let pages = "EVICTION_BYTES + CHECKPOINT_BYTES";
    for (sum, of, least) in [
        ("LOG_BYTES", wide, 10e6),
        ("BUILD_BYTES", wide, 20e6),
        (pages, wide, 10e6),
        ("GC_BYTES", "TRUE", 1e6),
        (pages, &format!("{parts} = 'p0'"), 1e6),
        (pages, &format!("{parts} = 'p2'"), 1e6),
        (pages, "TABLE_NAME = '(dropped)'", 1e6),
        ("TOTAL_BYTES", "TABLE_SCHEMA IS NULL AND TABLE_NAME = '(shared)'", 1e6),
    ] {
        let bytes = written(&home, sum, of);
        assert!(bytes > least, "{sum} of {of}: {bytes}: {rows}");
    }
    for verb in ["writes", "top"] {
        let args = [verb, &home.address(), "--tables=100", "--interval", "0.2", "--count", "1"];
        let shown = run(&mut w.tool.sluice(args)).ok();
        for name in ["written.wide", "written.parts p1", "(dropped)", "(shared)"] {
            says(name, &shown);
        }
    }
    home.stop();
}

/// `sluice writes` about a server for one sample, while `load` runs. It begins after the first of its
/// two readings.
fn sample_of(w: &World, home: &Home, seconds: &str, load: impl FnOnce()) -> Value {
    let args = ["writes", &home.address(), "--interval", seconds, "--count", "1", "--json"];
    let writes = spawn(&mut w.tool.sluice(args));
    sleep(Duration::from_secs(1));
    load();
    let sample = wait(writes).ok();
    serde_json::from_str(&sample).unwrap_or_else(|error| panic!("{error}: {sample}"))
}

/// The one journal of a sample.
fn journal<'a>(sample: &'a Value, kind: &str) -> &'a Value {
    let journals = sample["storage"]["journals"].as_array().expect("journals");
    let [journal] = journals.as_slice() else { panic!("one journal: {sample}") };
    assert_eq!(journal["file_system"], kind, "{sample}");
    let [least, bytes, most] = ["bytes_least", "bytes", "bytes_most"].map(|n| number(journal, n));
    assert!(least <= bytes && bytes <= most, "{sample}");
    assert_eq!(number(sample, "journal_bytes"), bytes, "{sample}");
    journal
}

const SYNCS: usize = 500;
const DATA_BYTES: f64 = (SYNCS * 4096) as f64;

/// A server, otherwise idle, on a file system whose device has no other writer, while a file beside
/// it grows by a block and a sync at a time. So what the device got is the data and the journal,
/// within the bounds of the journal that the kernel's rounding leaves.
fn adds_up_below(w: &World, on: &FileSystem, kind: &str) -> Value {
    let home = w.tool.home_at(on.at.join("d"));
    home.start(&["--innodb-buffer-pool-size=32M", "--sluice-buffer-pool-size=16M"]);
    let sample = sample_of(w, &home, "8", || {
        let mut file = fs::File::create(on.at.join("appended")).expect("a new file");
        for _ in 0..SYNCS {
            file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).expect("a durable block");
        }
    });
    let journal = journal(&sample, kind);
    let (least, most) = (number(journal, "bytes_least"), number(journal, "bytes_most"));
    // The server may write something of its own, and metadata reach their places.
    let rest = number(&sample, "process_bytes") + 1048576.0;
    let bounds = DATA_BYTES + least..DATA_BYTES + most + rest;
    let device = number(&sample, "device_bytes");
    assert!(bounds.contains(&device), "{device} is not in {bounds:?}: {sample}");
    home.stop();
    sample
}

fn data_and_journal_of_ext4_are_what_the_device_got(w: &mut World) {
    let on = FileSystem::ext4(&w.tool, "ext4");
    on.mount("rw").ok();
    let sample = adds_up_below(w, &on, "ext4");
    on.unmount().ok();
    // Each sync of a file that grows commits a transaction: its inode and what else changed.
    let journal = journal(&sample, "ext4");
    assert!(number(journal, "transactions") >= SYNCS as f64, "{sample}");
    assert!(number(journal, "bytes_least") > DATA_BYTES * 2.0, "{sample}");
}

fn data_and_journal_of_xfs_are_what_the_device_got(w: &mut World) {
    let on = FileSystem::xfs(&w.tool, "xfs");
    on.mount("rw").ok();
    let sample = adds_up_below(w, &on, "xfs");
    on.unmount().ok();
    let journal = journal(&sample, "xfs");
    assert_eq!(journal["bytes_least"], journal["bytes_most"], "it is counted: {sample}");
    // A sector at least for each sync.
    assert!(number(journal, "bytes") >= (SYNCS * 512) as f64, "{sample}");
}

/// A file that goes away is told to the device with the commit of the next transaction.
fn discards_are_counted_and_what_is_not_known_is_said(w: &mut World) {
    let on = FileSystem::ext4(&w.tool, "trim");
    on.mount("discard").ok();
    let home = w.tool.home_at(on.at.join("d"));
    home.start(&["--innodb-buffer-pool-size=32M", "--sluice-buffer-pool-size=16M"]);
    let (file, length) = (on.at.join("ballast"), 64 << 20);
    run(Command::new("fallocate").args(["-l", &length.to_string()]).arg(&file)).ok();
    let sync = || run(Command::new("sync").arg("-f").arg(&on.at)).ok();
    sync();
    let sample = sample_of(w, &home, "4", || {
        fs::remove_file(&file).expect("our file");
        sync();
    });
    assert!(number(&sample, "discarded_bytes") >= f64::from(length), "{sample}");
    // A loop device is no NVMe drive: no number stands there.
    assert_eq!(sample["storage"]["drives"], Value::Array(Vec::new()));
    says("it is no NVMe drive", &sample["missing"].to_string());
    let args = ["writes", &home.address(), "--interval", "0.2", "--count", "2"];
    let shown = run(&mut w.tool.sluice(args));
    assert_eq!(
        shown.err.matches("not known: bytes inside of the drive loop").count(),
        1,
        "{}",
        shown.err
    );
    is_silent_about("not known", &shown.out);
    home.stop();
    on.unmount().ok();
}

fn errors_are_clear(w: &mut World) {
    let refused = |args: &[&str], why: &str| run(&mut w.tool.sluice(args)).refuses(why);
    refused(&["advise", "mysql://root@127.0.0.1:1", "--interval", "1"], "cannot connect");
    refused(&["writes", "mysql://root@127.0.0.1:1"], "cannot connect");
    refused(&["top", "mysql://me:secret@localhost"], "MYSQL_PWD");
}

fn writes_counts_bytes(w: &mut World) {
    let sample = sample(w, "6", |home| {
        // The rows are to come after the first of the two samples.
        sleep(Duration::from_secs(2));
        home.sql(
            "SET SESSION binlog_format = ROW; CREATE DATABASE w; CREATE TABLE w.t (id INT PRIMARY KEY, v CHAR(100)) ENGINE=Sluice;
             INSERT INTO w.t SELECT seq, seq FROM w.seq_1_to_5000; DROP DATABASE w",
        );
    });
    assert!(number(&sample, "rows") >= 5000.0, "{sample}");
    // 5000 rows of 4 + 5 bytes and what goes with them.
    assert!(number(&sample["bytes_by_cause"], "binlog") > 45_000.0, "{sample}");
    assert!(number(&sample["bytes_by_cause"], "log") > 100_000.0, "{sample}");
}

fn top_shows_a_screen(w: &mut World) {
    let address = w.server().address();
    let shown =
        run(&mut w.tool.sluice(["top", &address, "--interval", "0.2", "--count", "1"])).ok();
    says("write amplification", &shown);
}
