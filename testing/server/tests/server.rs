//! `sluice server` on real servers, started without the plugin; the last test starts one with it.

use sluice_rig::port::Port;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{run, says, spawn, wait, wait_until, Ended, Home, Tool};
use sluice_server_tests::builds::of_another_release;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

struct World {
    tool: Tool,
    /// The server that most tests use, and its TCP port.
    home: Home,
    port: Port,
}

fn main() -> ExitCode {
    let tests = tests![
        starts_on_a_new_directory,
        status_knows_the_running_server,
        no_account_can_use_tcp,
        no_account_can_use_tcp_with_name_resolution,
        refuses_a_second_server,
        refuses_a_used_port,
        a_refused_directory_can_be_used_later,
        survives_its_terminal,
        stops_cleanly,
        stop_twice_is_no_error,
        status_is_3_when_not_running,
        options_after_dashes_override,
        restarts_after_kill,
        leaves_the_process_of_a_reused_pid_alone,
        one_of_two_simultaneous_starts_wins,
        makes_an_interrupted_directory_anew,
        refuses_a_foreign_directory,
        refuses_a_file_as_directory,
        refuses_a_newer_format,
        refuses_a_newer_server_version,
        refuses_to_drop_the_engine,
        refuses_a_long_socket_path,
        refuses_too_little_disk,
        refuses_a_prefix_that_is_not_built,
        refuses_options_for_its_own_paths,
        shows_the_log_of_a_server_that_dies,
        works_for_another_user,
        runs_the_engine,
        gives_space_back,
        knows_levels_of_compression,
        refuses_a_plugin_of_another_release,
    ];
    suite::run(&tests, || {
        let tool = Tool::new("server")?;
        Ok(World { home: tool.home("d"), tool, port: Port::reserve() })
    })
}

/// `sluice server start` without the plugin; `args` may end with options after dashes.
fn starting(home: &Home, args: &[&str]) -> Command {
    let ours = ["--without-engine", "--min-free-mib", "256", "--timeout", "120"];
    home.server("start", &[&ours, args].concat())
}

fn start(home: &Home, args: &[&str]) -> Ended {
    run(&mut starting(home, args))
}

impl World {
    fn port(&self) -> String {
        self.port.number.to_string()
    }

    /// The server runs on its port.
    fn running(&self) -> &Home {
        if !self.home.is_running() {
            start(&self.home, &["--port", &self.port()]).ok();
        }
        &self.home
    }

    /// The directory has had a server, and has none now.
    fn stopped(&self) -> &Home {
        if !self.home.dir.exists() {
            self.running();
        }
        self.home.stop();
        &self.home
    }

    /// A new directory with the marker of the usual server, in which `from` is now `to`.
    fn marked(&self, name: &str, from: &str, to: &str) -> Home {
        let marker =
            fs::read_to_string(self.stopped().dir.join("sluice.server")).expect("a marker");
        let lines: Vec<_> =
            marker.lines().map(|l| if l.starts_with(from) { to } else { l }).collect();
        assert!(lines.contains(&to), "no line {from} in {marker}");
        self.with_marker(name, &lines.join("\n"))
    }

    fn with_marker(&self, name: &str, marker: &str) -> Home {
        let home = self.tool.home(name);
        fs::create_dir(&home.dir).expect("a new directory");
        fs::write(home.dir.join("sluice.server"), format!("{marker}\n")).expect("a marker");
        home
    }

    /// `mariadb` as this user over TCP.
    fn over_tcp(&self, user: &str) -> Ended {
        let user = format!("-u{user}");
        let args = [&user, "-h127.0.0.1", "-P", &self.port(), "-N", "-e", "SELECT 1"];
        run(self.tool.mariadb("mariadb").args(args))
    }
}

fn starts_on_a_new_directory(w: &mut World) {
    assert!(!w.home.dir.exists());
    start(&w.home, &["--port", &w.port()]).ok();
    let answer = w.home.sql("SELECT @@log_bin, @@sync_binlog, @@server_id, @@port");
    assert_eq!(answer, format!("1\t1\t1\t{}", w.port()));
}

fn status_knows_the_running_server(w: &mut World) {
    let home = w.running();
    let status = run(&mut home.server("status", &[])).ok();
    let value = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name}: {status}")).trim().to_owned()
    };
    assert_eq!(value("pid"), home.pid().to_string());
    let build = fs::read_to_string(w.tool.prefix.root.join("build.env")).expect("in the prefix");
    let version =
        build.lines().find_map(|l| l.strip_prefix("MARIADB_VERSION=")).expect("a version");
    assert!(value("version").starts_with(version), "{status}");
    assert_eq!(value("socket"), home.socket().to_string_lossy());
    assert!(!value("uptime").is_empty());
}

fn no_account_can_use_tcp(w: &mut World) {
    w.running();
    for user in ["root", "mariadb.sys", "nobody", ""] {
        w.over_tcp(user).refuses("ERROR");
    }
}

/// Even an option that makes 127.0.0.1 match the account root@localhost.
fn no_account_can_use_tcp_with_name_resolution(w: &mut World) {
    w.stopped();
    start(&w.home, &["--port", &w.port(), "--", "--skip-name-resolve=0"]).ok();
    w.over_tcp("root").refuses("Access denied");
}

fn refuses_a_second_server(w: &mut World) {
    let home = w.running();
    let already = format!("a server already runs on {}, pid {}", home.dir.display(), home.pid());
    start(home, &[]).refuses(&already);
}

fn refuses_a_used_port(w: &mut World) {
    w.running();
    let refused = start(&w.tool.home("other"), &["--port", &w.port()]);
    refused.refuses(&format!("port {} cannot be used", w.port()));
}

fn a_refused_directory_can_be_used_later(w: &mut World) {
    refuses_a_used_port(w);
    let other = w.tool.home("other");
    start(&other, &[]).ok();
    other.stop();
}

fn survives_its_terminal(w: &mut World) {
    // The leader of the server's session is the server itself.
    let pid = w.running().pid().to_string();
    assert_eq!(run(Command::new("ps").args(["-o", "sid=", "-p", &pid])).ok().trim(), pid);
}

fn stops_cleanly(w: &mut World) {
    let home = w.running();
    home.stop();
    assert!(!home.dir.join("mariadbd.pid").exists() && !home.socket().exists());
    says("Shutdown complete", home.error_log().lines().last().unwrap_or_default());
}

fn stop_twice_is_no_error(w: &mut World) {
    says("no server runs", &w.stopped().stop());
}

fn status_is_3_when_not_running(w: &mut World) {
    run(&mut w.stopped().server("status", &[])).with_code(3);
}

fn options_after_dashes_override(w: &mut World) {
    let home = w.stopped();
    start(home, &["--", "--sync-binlog=0", "--server-id=7"]).ok();
    assert_eq!(home.sql("SELECT @@sync_binlog, @@server_id, @@skip_networking"), "0\t7\t1");
}

fn restarts_after_kill(w: &mut World) {
    let home = w.running();
    home.kill();
    run(&mut home.server("status", &[])).with_code(3);
    says("removing a stale pid file", &start(home, &[]).ok());
    home.stop();
}

fn leaves_the_process_of_a_reused_pid_alone(w: &mut World) {
    let home = w.stopped();
    let mut bystander = Command::new("sleep").arg("60").spawn().expect("sleep");
    fs::write(home.dir.join("mariadbd.pid"), format!("{}\n", bystander.id())).expect("a pid file");
    says("no server runs", &home.stop());
    says("another process (sleep)", &start(home, &[]).ok());
    assert!(bystander.try_wait().expect("our child").is_none(), "the bystander has ended");
    bystander.kill().and_then(|()| bystander.wait()).expect("our child");
    home.stop();
}

fn one_of_two_simultaneous_starts_wins(w: &mut World) {
    let twins = w.tool.home("twins");
    let both = [spawn(&mut starting(&twins, &[])), spawn(&mut starting(&twins, &[]))];
    let ended = both.map(wait);
    twins.stop();
    let won = ended.iter().filter(|e| e.code == Some(0)).count();
    assert_eq!(won, 1, "{}\n{}", ended[0].text(), ended[1].text());
}

fn makes_an_interrupted_directory_anew(w: &mut World) {
    let half = w.tool.home("half");
    fs::create_dir_all(half.dir.join("data.unfinished/mysql")).expect("a new directory");
    let marker = w.stopped().dir.join("sluice.server");
    fs::copy(marker, half.dir.join("sluice.server")).expect("a marker");
    start(&half, &[]).ok();
    half.stop();
}

fn refuses_a_foreign_directory(w: &mut World) {
    let foreign = w.tool.home("foreign");
    fs::create_dir(&foreign.dir).expect("a new directory");
    fs::write(foreign.dir.join("precious"), "").expect("a file");
    start(&foreign, &[]).refuses("is not a directory of `sluice server`");
    run(&mut foreign.server("stop", &[])).refuses("is not a directory of `sluice server`");
    let names: Vec<_> = fs::read_dir(&foreign.dir).expect("it is left").flatten().collect();
    assert_eq!(names.iter().map(|e| e.file_name()).collect::<Vec<_>>(), ["precious"]);
}

fn refuses_a_file_as_directory(w: &mut World) {
    let file = w.tool.home("file");
    fs::write(&file.dir, "").expect("a file");
    start(&file, &[]).refuses("cannot use");
}

fn refuses_a_newer_format(w: &mut World) {
    let newer = w.with_marker("newer", "sluice-server-format=99");
    start(&newer, &[]).refuses("newer than this sluice");
}

fn refuses_a_newer_server_version(w: &mut World) {
    let ahead = w.marked("ahead", "server=", "server=99.1.2");
    start(&ahead, &[]).refuses("was used by MariaDB 99.1.2");
}

fn refuses_to_drop_the_engine(w: &mut World) {
    let engine = w.marked("engine", "engine=", "engine=Sluice");
    start(&engine, &[]).refuses("cannot be started without it");
}

fn refuses_a_long_socket_path(w: &mut World) {
    start(&w.tool.home(&"x".repeat(100)), &[]).refuses("a Unix socket allows 107");
}

fn refuses_too_little_disk(w: &mut World) {
    let args = ["--without-engine", "--min-free-mib", "999999999"];
    run(&mut w.tool.home("big").server("start", &args)).refuses("see --min-free-mib");
}

fn refuses_a_prefix_that_is_not_built(w: &mut World) {
    let no_prefix = w.tool.work.join("no-prefix");
    fs::create_dir(&no_prefix).expect("a new directory");
    let home = w.tool.home("x");
    start(&home, &["--prefix", &no_prefix.to_string_lossy()]).refuses("no MariaDB in the prefix");
    assert!(!home.dir.exists());
}

fn refuses_options_for_its_own_paths(w: &mut World) {
    start(&w.tool.home("x"), &["--", "--socket=/tmp/x.sock"]).refuses("follows from --dir");
}

fn shows_the_log_of_a_server_that_dies(w: &mut World) {
    let home = w.stopped();
    start(home, &["--", "--no-such-option=1"]).refuses("unknown variable 'no-such-option=1'");
    assert!(!home.dir.join("mariadbd.pid").exists());
}

/// A command for user nobody that begins with the program of `command`.
fn as_nobody(tool: &Tool, command: &Command) -> Command {
    let mut other = Command::new("setpriv");
    other.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", "HOME=/nonexistent"]);
    other.arg(format!("SLUICE_PREFIX={}", tool.prefix.root.display()));
    other.arg(command.get_program()).args(command.get_args());
    other
}

fn nobody_can_run(tool: &Tool, program: &Path) -> bool {
    let mut test = Command::new("test");
    run(&mut as_nobody(tool, test.arg("-x").arg(program))).code == Some(0)
}

fn works_for_another_user(w: &mut World) {
    if run(Command::new("id").arg("-u")).ok().trim() != "0" {
        skip("needs root to become another user");
    }
    let programs = [w.tool.prefix.program("mariadbd"), w.tool.program.clone()];
    if !programs.iter().all(|p| nobody_can_run(&w.tool, p)) {
        skip("the checkout cannot be read by user nobody");
    }
    let home = w.tool.home("nobody");
    fs::set_permissions(&w.tool.work, fs::Permissions::from_mode(0o711)).expect("our directory");
    run(Command::new("install").args(["-d", "-o", "nobody"]).arg(&home.dir)).ok();
    w.stopped();
    let open = ["--", "--skip-name-resolve=0"];
    run(&mut as_nobody(&w.tool, &starting(&home, &open))).refuses("open the server");
    run(&mut as_nobody(&w.tool, &starting(&home, &["--port", &w.port()]))).ok();
    let mut client = w.tool.mariadb("mariadb");
    client.arg("-S").arg(home.socket()).args(["-N", "-uroot", "-e", "SELECT CURRENT_USER()"]);
    assert_eq!(run(&mut as_nobody(&w.tool, &client)).ok().trim(), "root@localhost");
    w.over_tcp("root").refuses("not allowed to connect");
    // Root of the machine may connect as well.
    assert_eq!(home.sql("SELECT 1"), "1");
    run(&mut as_nobody(&w.tool, &home.server("stop", &[]))).ok();
}

fn runs_the_engine(w: &mut World) {
    if !w.tool.has_plugin("ha_sluice.so") {
        skip("the plugin is not installed in the prefix");
    }
    let home = w.tool.home("with-engine");
    home.start(&[]);
    let plugin = home.sql(
        "SELECT PLUGIN_STATUS, LOAD_OPTION, @@default_storage_engine FROM
         information_schema.PLUGINS WHERE PLUGIN_NAME = 'Sluice'",
    );
    assert_eq!(plugin, "ACTIVE\tFORCE_PLUS_PERMANENT\tSluice");
    start(&home, &[]).refuses("cannot be started without it");
    home.stop();
}

/// DELETE with the purge after it, TRUNCATE and DROP: the file takes less on the disk within a
/// minute, and all of it can be used again.
fn gives_space_back(w: &mut World) {
    if !w.tool.has_plugin("ha_sluice.so") {
        skip("the plugin is not installed in the prefix");
    }
    let home = w.tool.home("space");
    home.start(&["--sluice-buffer-pool-size=16M"]);
    let pages = home.dir.join("data/sluice/pages");
    let on_disk = || fs::metadata(&pages).expect("the file of pages").blocks() * 512;
    home.sql("CREATE DATABASE test; CREATE TABLE test.kept (id INT PRIMARY KEY) ENGINE=Sluice");
    home.sql("INSERT INTO test.kept SELECT seq FROM test.seq_1_to_1000");
    let fill = || {
        // What does not compress: about 60 MB.
        home.sql(
            "CREATE OR REPLACE TABLE test.large (id INT PRIMARY KEY, v VARBINARY(3000)) ENGINE=Sluice;
             INSERT INTO test.large
             SELECT seq, RANDOM_BYTES(1000) FROM test.seq_1_to_60000",
        );
        wait_until("the load is in the file", Duration::from_secs(60), || on_disk() > 55 << 20);
    };
    for end in ["DELETE FROM test.large", "TRUNCATE test.large", "DROP TABLE test.large"] {
        fill();
        home.sql(end);
        wait_until(end, Duration::from_secs(60), || on_disk() < 40 << 20);
    }
    let status = |name: &str| -> u64 {
        let sql = format!("SHOW GLOBAL STATUS LIKE 'Sluice_store_{name}_bytes'");
        home.sql(&sql).split('\t').nth(1).expect("a value").parse().expect("a number")
    };
    assert!(status("returned") > 100 << 20, "{}", status("returned"));
    wait_until("nothing is left", Duration::from_secs(60), || status("live") < 4 << 20);
    fill();
    assert_eq!(home.sql("SELECT COUNT(*), SUM(LENGTH(v)) FROM test.large"), "60000\t60000000");
    assert_eq!(home.sql("SELECT COUNT(*) FROM test.kept"), "1000");
    home.stop();
}

/// `sluice_compression` takes what a table's COMPRESSION does, and nothing else.
fn knows_levels_of_compression(w: &mut World) {
    if !w.tool.has_plugin("ha_sluice.so") {
        skip("the plugin is not installed in the prefix");
    }
    // Random digits: there are no repetitions for LZ4 to find.
    let live_bytes = |compression: &str| -> u64 {
        let home = w.tool.home(&compression.replace(':', "-"));
        let option = format!("--sluice-compression={compression}");
        home.start(&[&option]);
        assert_eq!(home.sql("SELECT @@sluice_compression"), compression);
        home.sql(
            "CREATE DATABASE test;
             CREATE TABLE test.digits (id INT PRIMARY KEY, v VARCHAR(400)) ENGINE=Sluice;
             INSERT INTO test.digits SELECT seq, CONCAT(RAND(), RAND(), RAND(), RAND(), RAND(), RAND())
             FROM test.seq_1_to_20000",
        );
        home.stop();
        home.start(&[&option]);
        let live = home.sql("SHOW GLOBAL STATUS LIKE 'Sluice_store_live_bytes'");
        home.stop();
        live.split('\t').nth(1).expect("a value").parse().expect("a number")
    };
    let (lz4, zstd) = (live_bytes("LZ4"), live_bytes("zstd:1"));
    assert!(zstd < lz4 * 3 / 4, "{zstd} and {lz4}");
    let home = w.tool.home("no-level");
    for wrong in ["zstd:23", "snappy", ""] {
        run(&mut home.server("start", &["--", &format!("--sluice-compression={wrong}")]))
            .refuses("must be none, lz4, zstd or zstd:N with a level N from 1 to 22");
    }
}

/// The reason names both releases, which the server's own message does not.
fn refuses_a_plugin_of_another_release(w: &mut World) {
    if !w.tool.has_plugin("ha_sluice.so") {
        skip("the plugin is not installed in the prefix");
    }
    let dir = w.tool.work.join("other-release");
    fs::create_dir_all(dir.join("plugin")).expect("a new directory");
    fs::write(dir.join("plugin/ha_sluice.so"), of_another_release(&w.tool.prefix))
        .expect("a plugin");
    let usr = w.tool.prefix.root.join("usr");
    let ended = run(w
        .tool
        .mariadb("mariadbd")
        .args(["--bootstrap", "--user=root", "--plugin-maturity=experimental"])
        .args(["--plugin-load-add=ha_sluice.so", "--sluice=FORCE_PLUS_PERMANENT"])
        .arg(format!("--plugin-dir={}", dir.join("plugin").display()))
        .arg(format!("--datadir={}", dir.display()))
        .arg(format!("--lc-messages-dir={}", usr.join("share/mysql").display())));
    ended.refuses("ha_sluice.so was built for MariaDB ");
    ended.refuses("and this server is ");
    ended.refuses("Aborting");
    assert!(!dir.join("sluice").exists());
}
