//! The packages of scripts/deb in a clean root of their distribution: `make test-deb`.

mod guides;
mod root;
mod session;
mod upgrade;
mod world;

use root::release_of;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{checkout, is_silent_about, run, says};
use std::fs;
use std::process::{Command, ExitCode};
use std::time::Instant;
use world::{packages_in, World};

fn main() -> ExitCode {
    let tests = tests![
        wants_one_of_its_servers,
        the_first_commit_comes_within_a_minute,
        has_a_build_for_each_server,
        rows_survive_a_kill,
        a_backup_is_restored_to_a_new_installation,
        the_program_has_a_manual_and_completions,
        is_not_removed_while_there_are_tables,
        is_not_removed_while_there_are_tables_and_no_server,
        is_not_removed_after_a_crash,
        is_removed_and_the_server_runs_without_it,
        is_purged_and_its_data_stay,
        is_installed_again,
        the_error_log_is_rotated,
        a_full_disk_leaves_nothing_half,
        is_upgraded_from_an_older_version,
        a_full_disk_leaves_the_older_version,
        the_server_is_updated_under_it,
        a_server_without_a_build_is_kept_back,
        session::a_session_from_installation_to_a_restored_backup,
        guides::the_guide_leads_away_from_the_packages,
        guides::a_tarball_comes_and_goes_by_its_text,
        upgrade::leaves_the_data_directory_of_a_killed_server,
        upgrade::serves_the_data_directory_of_the_distribution_before,
        is_removed_with_the_server,
        equal_sources_give_equal_bytes,
    ];
    suite::run(&tests, World::new)
}

/// A server that the packages have no build for.
const UNKNOWN: &str = r#"
    mkdir -p /srv/other/DEBIAN
    printf 'Package: mariadb-server-core\nVersion: 1:99\nArchitecture: amd64\nMaintainer: x <x@x>\nDescription: x\n' \
        >/srv/other/DEBIAN/control
    dpkg-deb --build /srv/other /srv/other.deb"#;

fn wants_one_of_its_servers(w: &mut World) {
    w.root.sh(UNKNOWN).ok();
    let both = w.root.apt("install --simulate /srv/packages/*.deb /srv/other.deb");
    both.refuses("unmet dependencies");
    for server in &w.distribution.servers {
        says(&format!("mariadb-server-core (= {server})"), &both.text());
    }
}

/// The minute is for all of it, the installation of the distribution's server included.
fn the_first_commit_comes_within_a_minute(w: &mut World) {
    assert!(!w.root.has("/usr/sbin/mariadbd"), "the root should have no server yet");
    w.root.pin(w.distribution.newest());
    let begun = Instant::now();
    w.root.apt("install mariadb-server").ok();
    let server = begun.elapsed().as_secs_f64();
    w.install().ok();
    w.wait_for_server();
    w.root.sql(
        "CREATE DATABASE shop;
         CREATE TABLE shop.orders (id INT PRIMARY KEY) ENGINE=Sluice;
         INSERT INTO shop.orders VALUES (1);",
    );
    let whole = begun.elapsed().as_secs_f64();
    let packages = whole - server;
    print!(
        "{server:.1} s for the server, {packages:.1} s for the packages to the first commit ... "
    );
    assert!(whole < 60.0);
    assert_eq!(w.engine(), "YES");
    let version = w.root.sql("SELECT @@version");
    assert!(
        w.distribution.newest().contains(version.split('-').next().expect("a part")),
        "{version}"
    );
}

fn has_a_build_for_each_server(w: &mut World) {
    w.running();
    let list = "cd /usr/lib/mysql/plugin/sluice && ls -A";
    let releases = w.distribution.releases();
    let wanted: Vec<_> = releases.iter().map(|r| format!("ha_sluice-{r}.so")).collect();
    assert_eq!(w.root.sh(list).ok().lines().collect::<Vec<_>>(), wanted);
}

fn rows_survive_a_kill(w: &mut World) {
    let root = w.with_table();
    let insert =
        "INSERT INTO shop.orders SELECT seq FROM shop.orders JOIN shop.seq_2_to_1000 WHERE id = 1";
    root.sql(&format!("DELETE FROM shop.orders WHERE id > 1; {insert}"));
    w.kill();
    w.start();
    assert_eq!(root.sql("SELECT COUNT(*), SUM(id) FROM shop.orders").trim(), "1000\t500500");
}

/// The steps of docs/backup.md, "On a packaged server".
const RESTORE: &str = "
    install -d -o mysql -g mysql -m 700 /var/lib/mysql
    sluice restore --from /srv/backup --to /var/lib/mysql";

/// The machine is lost: another one has the packages and the backup only.
fn a_backup_is_restored_to_a_new_installation(w: &mut World) {
    let root = w.with_table();
    root.sql(
        "CREATE TABLE IF NOT EXISTS shop.lines (id INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(200), KEY (b)) \
             ENGINE=Sluice;
         INSERT INTO shop.lines (b) SELECT REPEAT(MD5(seq), 1 + seq % 5) FROM shop.seq_1_to_20000;
         UPDATE shop.lines SET b = 'changed' WHERE id % 7 = 0;
         CREATE USER IF NOT EXISTS clerk@localhost;",
    );
    let sums = "CHECKSUM TABLE shop.orders, shop.lines";
    let before = root.sql(sums);
    root.sh("rm -rf /srv/backup").ok();
    let backup =
        "sluice backup 'mysql://root@localhost/?socket=/run/mysqld/mysqld.sock' --to /srv/backup \
                  --only-sluice";
    says("; verified", &root.sh(backup).ok());
    root.sql("INSERT INTO shop.lines (b) VALUES ('after the backup')");
    w.kill();
    let purge = "SLUICE_REMOVE_ANYWAY=1 apt-get -y purge mariadb-server mariadb-server-core \
                 mariadb-plugin-sluice sluice-tools";
    root.sh(purge).ok();
    root.sh("rm -rf /var/lib/mysql").ok();
    w.install().ok();
    w.wait_for_server();
    w.stop();
    root.sh("mv /var/lib/mysql /var/lib/mysql.old").ok();
    is_silent_about("belong to root", &root.sh(RESTORE).ok());
    w.start();
    root.sh("mariadb-upgrade").ok();
    w.stop();
    w.start();
    assert_eq!((root.sql(sums), w.engine().as_str()), (before, "YES"));
    assert_eq!(root.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'clerk'").trim(), "1");
    let tables = "mariadb-check mysql && mariadb-check --databases shop";
    is_silent_about("error", &root.sh(tables).ok().to_lowercase());
    root.sql("DROP TABLE shop.lines; DROP USER clerk@localhost");
    root.sh("rm -rf /var/lib/mysql.old /srv/backup").ok();
}

fn the_program_has_a_manual_and_completions(w: &mut World) {
    let root = w.with_table();
    says("sluice ", &root.sh("sluice --version").ok());
    for path in [
        "/usr/share/man/man1/sluice.1.gz",
        "/usr/share/man/man1/sluice-inspect-verify.1.gz",
        "/usr/share/bash-completion/completions/sluice.bash",
        "/usr/share/zsh/vendor-completions/_sluice",
        "/usr/share/fish/vendor_completions.d/sluice.fish",
    ] {
        assert!(root.has(path), "no {path}");
    }
    w.stop();
    says("no damage found", &root.sh("sluice inspect /var/lib/mysql verify").ok());
}

fn is_not_removed_while_there_are_tables(w: &mut World) {
    let root = w.with_table();
    root.sql(
        "CREATE TABLE IF NOT EXISTS shop.parts (id INT) ENGINE=Sluice
             PARTITION BY HASH (id) PARTITIONS 2;
         CREATE TABLE IF NOT EXISTS shop.notes (sluice INT) ENGINE=InnoDB COMMENT 'not Sluice';",
    );
    let removal = root.apt("remove mariadb-plugin-sluice");
    w.assert_refused(&removal, "2 tables with ENGINE=Sluice are left");
    says("shop.orders", &removal.text());
    says("shop.parts", &removal.text());
    assert_eq!(root.sql("SELECT COUNT(*) > 0 FROM shop.orders").trim(), "1");
}

fn is_not_removed_while_there_are_tables_and_no_server(w: &mut World) {
    let root = w.with_table();
    w.stop();
    let removal = root.apt("remove mariadb-plugin-sluice");
    w.assert_refused(&removal, "with ENGINE=Sluice are left");
    let server = root.apt("remove mariadb-server");
    w.assert_refused(&server, "with ENGINE=Sluice are left");
    // apt has removed Debian's own plugins before. They leave options that stop the server.
    root.apt("purge 'mariadb-plugin-provider-*'").ok();
    assert_eq!(w.running().sql("SELECT COUNT(*) > 0 FROM shop.orders").trim(), "1");
}

const BINLOG: &str = "/etc/mysql/mariadb.conf.d/99-binlog.cnf";

/// The log may hold the end of the binary log, also where no table of the engine is left.
fn is_not_removed_after_a_crash(w: &mut World) {
    w.without_tables();
    w.root.sh("install -d -o mysql /srv/bin.log").ok();
    for name in ["bin", "/srv/bin.log/bin"] {
        w.stop();
        w.root.sh(&format!("printf '[mariadbd]\nlog-bin = {name}\n' >{BINLOG}")).ok();
        w.start();
        w.root.sql(
            "CREATE DATABASE shop; CREATE TABLE shop.other (id INT);
             INSERT INTO shop.other VALUES (1); DROP DATABASE shop;",
        );
        w.kill();
        let removal = w.root.apt("remove mariadb-plugin-sluice");
        w.assert_refused(&removal, "The last stop of the server was not clean");
        // Completes the binary log.
        w.start();
    }
}

fn is_removed_and_the_server_runs_without_it(w: &mut World) {
    let root = w.without_tables();
    root.sql(
        "CREATE DATABASE shop; CREATE TABLE shop.other (id INT); INSERT INTO shop.other VALUES (1)",
    );
    says("starts it again without it", &root.apt("remove mariadb-plugin-sluice").ok());
    w.wait_for_server();
    assert_eq!(w.engine(), "");
    assert_eq!(root.sql("SELECT * FROM shop.other").trim(), "1");
    root.sql("DROP DATABASE shop");
    assert!(root.has("/etc/mysql/mariadb.conf.d/sluice.cnf"), "a removal keeps the configuration");
    assert!(!root.has("/usr/lib/mysql/plugin/ha_sluice.so"));
    assert!(!root.has("/usr/lib/mysql/plugin/sluice"));
}

fn is_purged_and_its_data_stay(w: &mut World) {
    w.without_tables();
    let purge = w.root.apt("purge mariadb-plugin-sluice");
    says("the files of the engine stay in /var/lib/mysql/sluice", &purge.ok());
    assert!(!w.root.has("/etc/mysql/mariadb.conf.d/sluice.cnf"));
    assert!(w.root.has("/var/lib/mysql/sluice/superblock"));
    let left = w.root.sh("dpkg --listfiles mariadb-plugin-sluice 2>&1 || true").ok();
    says("not installed", &left);
}

fn is_installed_again(w: &mut World) {
    w.without_tables();
    w.root.apt("purge mariadb-plugin-sluice sluice-tools").ok();
    // Also beside the server's own first start, which makes its system tables.
    w.root.apt("remove mariadb-server").ok();
    w.install().ok();
    w.wait_for_server();
    assert_eq!(w.with_table().sql("SELECT id FROM shop.orders").trim(), "1");
}

/// A file of the server as `/etc/logrotate.d/mariadb` expects it, in place of syslog or the journal.
const ERROR_LOG: &str = "[mariadbd]\nlog-error = /var/log/mysql/error.log\n\
                         [mysqld_safe]\nlog-error = /var/log/mysql/error.log\n";
/// As the timer of the distribution has it, but at once.
const ROTATE: &str = "logrotate --force /etc/logrotate.conf";

/// With the server's own configuration.
fn the_error_log_is_rotated(w: &mut World) {
    let root = w.with_table();
    root.apt("install logrotate").ok();
    let option = root.dir.join("etc/mysql/mariadb.conf.d/99-log.cnf");
    w.stop();
    fs::write(&option, ERROR_LOG).expect("in our root");
    // Debian 13 has no such directory: its server logs into the journal.
    root.sh("install -d -o mysql -g adm -m 2750 /var/log/mysql").ok();
    w.start();
    let log = |name: &str| root.sh(&format!("cat /var/log/mysql/{name}")).ok();
    let of_engine = "Sluice: mariadb-backup does not copy the 1 Sluice tables";
    says(of_engine, &log("error.log"));
    root.sh(ROTATE).ok();
    // The server that ran before writes to the new file.
    root.sh("mariadb --user=stranger -e 'SELECT 1'").refuses("Access denied");
    let refused = "Access denied for user 'stranger'@'localhost'";
    says(refused, &log("error.log"));
    is_silent_about(of_engine, &log("error.log"));
    says(of_engine, &log("error.log.1"));
    is_silent_about(refused, &log("error.log.1"));
    w.stop();
    w.start();
    says(of_engine, &log("error.log"));
    w.stop();
    fs::remove_file(option).expect("ours");
    w.start();
    assert_eq!(w.engine(), "YES");
}

/// 256 KiB are free for plugins, until [`GIVE_ROOM`].
const TAKE_ROOM: &str = r#"
    cd "$1/usr/lib/mysql/plugin"
    mkdir -p "$1/srv/full"
    mount -t tmpfs -o size=$(($(du -sk . | cut -f 1) + 256))k tmpfs "$1/srv/full"
    cp -a . "$1/srv/full"
    mount --move "$1/srv/full" "$1/usr/lib/mysql/plugin""#;
const GIVE_ROOM: &str = "umount \"$1/usr/lib/mysql/plugin\"";

fn a_full_disk_leaves_nothing_half(w: &mut World) {
    w.without_tables();
    w.root.apt("purge mariadb-plugin-sluice").ok();
    w.root.run_outside(TAKE_ROOM).ok();
    let failed = w.install();
    failed.refuses("No space left on device");
    let left = w
        .root
        .sh("ls -AR /usr/lib/mysql/plugin /usr/share/mariadb-plugin-sluice 2>&1 || true")
        .ok();
    is_silent_about("ha_sluice", &left);
    assert!(!w.is_installed());
    assert!(w.answers(), "the server was disturbed");
    w.root.run_outside(GIVE_ROOM).ok();
    w.install().ok();
    w.running();
}

/// The older version is installed, and there is a table.
fn with_older_version(w: &World) {
    w.without_tables();
    w.root.apt("purge mariadb-plugin-sluice sluice-tools").ok();
    w.bring_older();
    w.root.apt("install /srv/older/*.deb").ok();
    says("0.0.9", &w.version());
    w.with_table();
}

fn is_upgraded_from_an_older_version(w: &mut World) {
    with_older_version(w);
    w.root.sh("echo '#loose-sluice-log-capacity = 1G' >>/etc/mysql/mariadb.conf.d/sluice.cnf").ok();
    w.install().ok();
    assert!(!w.version().contains("0.0.9"));
    w.wait_for_server();
    assert_eq!(w.root.sql("SELECT id FROM shop.orders").trim(), "1");
    let kept = "grep -c capacity.=.1G /etc/mysql/mariadb.conf.d/sluice.cnf";
    assert_eq!(w.root.sh(kept).ok().trim(), "1", "an upgrade keeps what the user wrote");
}

/// The upgrade fails, and the version before it goes on.
fn a_full_disk_leaves_the_older_version(w: &mut World) {
    with_older_version(w);
    let files = "cd /usr/lib/mysql/plugin && find . -type f -exec sha256sum {} + | sort";
    let before = w.root.sh(files).ok();
    w.root.run_outside(TAKE_ROOM).ok();
    w.install().refuses("No space left on device");
    assert_eq!((w.is_installed(), w.version().contains("0.0.9")), (true, true));
    assert_eq!(w.root.sh(files).ok(), before, "files of the older version");
    assert!(w.answers(), "the server was disturbed");
    w.stop();
    rows_survive_a_kill(w);
    w.stop();
    w.root.run_outside(GIVE_ROOM).ok();
    w.install().ok();
    assert!(!w.version().contains("0.0.9"));
    assert_eq!(w.running().sql("SELECT COUNT(*) FROM shop.orders").trim(), "1000");
}

/// By apt, as a security update comes: the package of the plugin stays as it is, and so do its rows.
fn the_server_is_updated_under_it(w: &mut World) {
    let servers = w.distribution.servers.clone();
    let (Some(first), true) = (servers.first(), servers.len() > 1) else {
        skip("the packages are for one release of the server");
    };
    w.without_tables();
    w.root.apt("purge mariadb-server mariadb-server-core mariadb-plugin-sluice").ok();
    w.root.sh("rm -rf /var/lib/mysql").ok();
    w.root.pin(first);
    // Of the clients, which are still there.
    w.root.apt("install --allow-downgrades /srv/packages/*.deb").ok();
    w.with_table();
    let plugin = w.version();
    for (from, to) in servers.iter().zip(&servers[1..]) {
        assert_eq!(&w.server_version(), from);
        w.root.pin(to);
        let upgrade = w.root.apt("upgrade").ok();
        is_silent_about("kept back", &upgrade);
        is_silent_about("REMOVED", &upgrade);
        w.wait_for_server();
        assert_eq!(&w.server_version(), to);
        assert_eq!((w.version(), w.engine().as_str()), (plugin.clone(), "YES"));
        says(release_of(to), &w.root.sql("SELECT @@version"));
        assert_eq!(w.root.sql("SELECT id FROM shop.orders").trim(), "1");
        rows_survive_a_kill(w);
    }
}

fn a_server_without_a_build_is_kept_back(w: &mut World) {
    w.with_table();
    let list = r#"
        mkdir -p /srv/newer
        cp /srv/other.deb /srv/newer
        echo 'deb [trusted=yes] file:/srv/newer ./' >/etc/apt/sources.list.d/newer.list
        rm -f /etc/apt/preferences.d/mariadb"#;
    w.root.sh(UNKNOWN).ok();
    w.root.sh(list).ok();
    // The root has no dpkg-scanpackages.
    let scan = "cd \"$1/srv/newer\" && dpkg-scanpackages --multiversion . >Packages";
    w.root.run_outside(scan).ok();
    w.root.apt("update").ok();
    // The distribution may have newer packages beside the server's, which this root cannot download.
    let plan = w.root.apt("upgrade --simulate").ok();
    w.root.sh("rm /etc/apt/sources.list.d/newer.list").ok();
    w.root.apt("update").ok();
    assert!(kept_back(&plan).contains(&"mariadb-server-core"), "{plan}");
    is_silent_about("Inst mariadb-server", &plan);
    is_silent_about("Remv ", &plan);
    assert!(w.is_installed() && w.engine() == "YES");
}

/// The packages that apt keeps back.
fn kept_back(plan: &str) -> Vec<&str> {
    let rest = plan.split_once("kept back:\n").map_or("", |(_, rest)| rest);
    rest.lines().take_while(|line| line.starts_with("  ")).flat_map(str::split_whitespace).collect()
}

fn is_removed_with_the_server(w: &mut World) {
    w.without_tables();
    w.root.apt("purge mariadb-server mariadb-plugin-sluice sluice-tools").ok();
    assert!(!w.is_installed());
    assert!(!w.root.has("/etc/mysql/mariadb.conf.d/sluice.cnf"));
}

/// Built anew, in another directory.
fn equal_sources_give_equal_bytes(w: &mut World) {
    let (elsewhere, again) = (w.tool.work.join("a/checkout"), w.tool.work.join("again"));
    fs::create_dir_all(&elsewhere).expect("our own directory");
    let copy = "git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C \"$1\"";
    run(Command::new("bash").args(["-ec", copy, "copy"]).arg(&elsewhere).current_dir(checkout()))
        .ok();
    let commit =
        run(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(checkout())).ok();
    let mut build = w.pack("scripts/deb", &again);
    build.current_dir(&elsewhere).env("PACK_VERSION", w.built_version());
    build
        .env("SOURCE_DATE_EPOCH", commit.trim())
        .env("CARGO_TARGET_DIR", w.tool.work.join("target"));
    run(&mut build).ok();
    let (first, second) = (packages_in(&w.packages), packages_in(&again));
    assert_eq!(first.len(), second.len());
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one.file_name(), other.file_name());
        assert!(fs::read(one).ok() == fs::read(other).ok(), "{} differs", one.display());
    }
}
