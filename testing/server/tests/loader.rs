//! The loader of the packages on real servers: it opens the build for the server that runs, or says
//! why there is none (docs/decisions/0040).
//!
//! `cargo test --release --workspace --test loader [NAME]`, after `make build`. For the tests with two
//! releases also after `make build SERVER=X`, X of the same series.

use sluice_rig::server::Prefix;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{checkout, run, says};
use sluice_server_tests::builds::{
    of_another_release, of_other_layouts, plugin_of, release_of, Builds,
};
use sluice_server_tests::scratch::{prefix, Scratch};
use sluice_server_tests::site::Site;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

struct World {
    scratch: Scratch,
    prefix: Prefix,
    release: String,
    count: usize,
}

fn main() -> ExitCode {
    let tests = tests![
        rows_survive_a_kill,
        an_option_for_the_version_changes_nothing,
        a_program_that_is_no_server_is_told_so,
        a_server_without_a_build_is_refused,
        a_loader_alone_is_refused,
        a_damaged_build_is_refused,
        another_library_is_refused,
        a_build_of_another_release_is_refused,
        a_server_with_other_layouts_is_refused,
        is_installed_once_the_build_is_there,
        is_closed_and_opened_again,
        one_directory_serves_two_releases,
    ];
    suite::run(&tests, || {
        let prefix = prefix();
        let release = release_of(&prefix);
        Ok(World { scratch: Scratch::new("loader", "loader"), prefix, release, count: 0 })
    })
}

impl World {
    /// A new directory of plugins, without a build.
    fn builds(&mut self) -> Builds {
        self.count += 1;
        Builds::new(self.scratch.path(&format!("plugins-{}", self.count)))
    }

    /// A server that must have the engine, on a new data directory.
    fn site(&self, builds: &Builds) -> Site {
        let options = [builds.option(), "--sluice=FORCE_PLUS_PERMANENT".into()];
        self.site_with("Sluice", &options)
    }

    fn site_with(&self, engine: &str, options: &[String]) -> Site {
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        Site::new(&self.scratch, &format!("d{}", self.count), engine, &options)
    }

    /// The server does not start, says why and has touched nothing. With the right build it starts.
    #[track_caller]
    fn refuses(&self, builds: &Builds, reasons: &[&str]) {
        let mut site = self.site(builds);
        site.refuses(reasons[0], &[]);
        for reason in reasons {
            site.says(reason);
        }
        site.says("Aborting");
        assert!(!site.data("sluice").exists(), "the engine has begun to start");
        let _ = fs::remove_file(builds.path(&self.release));
        fs::create_dir_all(builds.dir.join("sluice")).expect("a directory");
        builds.add(&self.prefix);
        site.start(&[]);
        site.does_not_say("Sluice: ");
        fill(&site);
        site.stop();
    }
}

fn fill(site: &Site) {
    site.run(&[
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(20), KEY (v)) ENGINE=Sluice",
        "INSERT INTO shop.orders SELECT seq, seq % 7 FROM mysql.seq_1_to_1000",
    ]);
    holds(site, 1000);
}

/// The keys 1 to `last`, in both indexes.
#[track_caller]
fn holds(site: &Site, last: u64) {
    let sum = "SELECT CONCAT(COUNT(*), ' ', SUM(id)) FROM shop.orders FORCE INDEX";
    for index in ["PRIMARY", "v"] {
        let found = site.value(&format!("{sum} ({index}) WHERE v >= '' AND id > 0"));
        assert_eq!(found, format!("{last} {}", last * (last + 1) / 2), "by {index}");
    }
}

fn rows_survive_a_kill(w: &mut World) {
    let builds = w.builds();
    builds.add(&w.prefix);
    // Names of others change nothing.
    builds.put("10.11.2", b"");
    builds.put("99.99.99", b"");
    let mut site = w.site(&builds);
    site.start(&[]);
    let plugins = site.rows(
        "SELECT PLUGIN_NAME, PLUGIN_LIBRARY FROM information_schema.PLUGINS
         WHERE PLUGIN_NAME LIKE 'Sluice%' AND PLUGIN_STATUS = 'ACTIVE' ORDER BY 1",
    );
    assert_eq!(plugins, [["Sluice", "ha_sluice.so"], ["SLUICE_TABLE_WRITES", "ha_sluice.so"]]);
    fill(&site);
    site.kill();
    site.start(&[]);
    holds(&site, 1000);
    assert_eq!(site.rows("CHECK TABLE shop.orders")[0][3], "OK");
    site.stop();
}

/// A server may call itself as it likes.
fn an_option_for_the_version_changes_nothing(w: &mut World) {
    let builds = w.builds();
    builds.add(&w.prefix);
    let mut site = w.site(&builds);
    site.start(&["--version=5.5.5-other"]);
    assert_eq!(site.value("SELECT VERSION()"), "5.5.5-other");
    fill(&site);
    site.stop();
}

fn a_program_that_is_no_server_is_told_so(w: &mut World) {
    let builds = w.builds();
    builds.add(&w.prefix);
    let ended = run(Command::new("true").env("LD_PRELOAD", builds.dir.join("ha_sluice.so")));
    says("does not find out which release of MariaDB has opened it: it is refused", &ended.err);
    ended.ok();
}

fn a_server_without_a_build_is_refused(w: &mut World) {
    let builds = w.builds();
    for other in ["10.11.100", "10.11.9", "11.8.6"] {
        builds.add_as(other, &w.prefix);
    }
    fs::write(builds.dir.join("sluice/README"), "").expect("a file");
    let wanted = format!(
        "[ERROR] Sluice: there is no build for MariaDB {}, which this server is (builds in {}/sluice: \
         10.11.9, 10.11.100, 11.8.6). Install a package mariadb-plugin-sluice that has a build for {0}, \
         or a server of one of these releases",
        w.release,
        builds.dir.display()
    );
    w.refuses(&builds, &[&wanted, "plugin interface version mismatch"]);
}

fn a_loader_alone_is_refused(w: &mut World) {
    let builds = w.builds();
    let wanted = format!("there is no build for MariaDB {}", w.release);
    w.refuses(&builds, &[&wanted, "/sluice: none)"]);

    let builds = w.builds();
    fs::remove_dir(builds.dir.join("sluice")).expect("an empty directory");
    w.refuses(&builds, &[&wanted, "/sluice: No such file or directory)"]);
}

fn a_damaged_build_is_refused(w: &mut World) {
    let whole = fs::read(plugin_of(&w.prefix)).expect("the plugin");
    let mut zeros = whole.clone();
    zeros[..4096].fill(0);
    let cuts = [0, 40, 4096, whole.len() / 2, whole.len() - 1].map(|end| whole[..end].to_vec());
    let builds = w.builds();
    let wanted =
        format!("the build for MariaDB {}, which this server is, cannot be loaded", w.release);
    let reasons = [
        wanted.as_str(),
        "it is damaged: this is not a whole library",
        &format!("/sluice: {})", w.release),
        "Install the package mariadb-plugin-sluice again",
    ];
    // One data directory for all but the last.
    let mut site = w.site(&builds);
    for damaged in &cuts {
        builds.put(&w.release, damaged);
        site.refuses(&wanted, &[]);
        reasons.iter().for_each(|reason| site.says(reason));
    }
    w.count += 1;
    builds.put(&w.release, &zeros);
    w.refuses(&builds, &reasons);
}

/// Also one that lacks a symbol, or a file that is none.
fn another_library_is_refused(w: &mut World) {
    let builds = w.builds();
    fs::copy(builds.dir.join("ha_sluice.so"), builds.path(&w.release)).expect("a copy");
    // It opens builds beside itself, and there it finds none: its version stays 0.
    w.refuses(&builds, &["it is no build of Sluice"]);

    let builds = w.builds();
    let library = fs::read("/lib/x86_64-linux-gnu/libz.so.1").expect("a library of the server");
    builds.put(&w.release, &library);
    w.refuses(&builds, &["it is no build of Sluice"]);

    let builds = w.builds();
    fs::create_dir(builds.path(&w.release)).expect("a directory");
    let mut site = w.site(&builds);
    site.refuses("it is damaged", &[]);
}

/// Under the name of this release. The server and the build itself find out.
fn a_build_of_another_release_is_refused(w: &mut World) {
    let builds = w.builds();
    builds.put(&w.release, &of_another_release(&w.prefix));
    let wanted =
        format!("was built for MariaDB {}", w.release.rsplit_once('.').expect("numbers").0);
    w.refuses(&builds, &[&wanted, &format!("and this server is {}", w.release)]);
}

/// Of the same release, compiled with other options.
fn a_server_with_other_layouts_is_refused(w: &mut World) {
    for (at, size) in [(0, "; THD has not "), (1, "MYSQL_BIN_LOG has ")] {
        let builds = w.builds();
        builds.put(&w.release, &of_other_layouts(&w.prefix, at));
        w.refuses(&builds, &["was compiled with other options than the one that", size]);
    }
}

/// Without a restart between.
fn is_installed_once_the_build_is_there(w: &mut World) {
    let builds = w.builds();
    let options = [builds.option(), "--plugin-maturity=experimental".into()];
    let mut site = w.site_with("InnoDB", &options);
    site.start(&[]);
    let refused = site.client().run("INSTALL SONAME 'ha_sluice'").expect_err("there is no build");
    says("plugin interface version mismatch", &refused.to_string());
    site.says("there is no build for MariaDB");
    builds.add(&w.prefix);
    site.run(&["INSTALL SONAME 'ha_sluice'"]);
    fill(&site);
    site.kill();
    // It is in mysql.plugin.
    site.start(&[]);
    holds(&site, 1000);
    site.stop();
}

/// The engine stays in a server, but the other plugin of the library goes and comes.
fn is_closed_and_opened_again(w: &mut World) {
    let builds = w.builds();
    builds.add(&w.prefix);
    let options = [builds.option(), "--plugin-maturity=experimental".into()];
    let mut site = w.site_with("InnoDB", &options);
    site.start(&[]);
    let pid = fs::read_to_string(site.value("SELECT @@pid_file")).expect("a pid file");
    let is_mapped = |name: &str| {
        let maps = fs::read_to_string(format!("/proc/{}/maps", pid.trim())).expect("the server");
        maps.contains(name)
    };
    for _ in 0..3 {
        site.run(&["INSTALL PLUGIN SLUICE_TABLE_WRITES SONAME 'ha_sluice'"]);
        assert!(is_mapped("/ha_sluice.so"), "the loader should be open");
        site.run(&["UNINSTALL PLUGIN SLUICE_TABLE_WRITES"]);
        assert!(!is_mapped("/ha_sluice.so"), "the loader should be closed");
    }
    site.run(&["INSTALL SONAME 'ha_sluice'"]);
    fill(&site);
    site.stop();
}

/// Another installation of this series, if `make build SERVER=X` has made one.
fn another_release(w: &World) -> Prefix {
    let series = w.release.rsplit_once('.').expect("three numbers").0;
    let is_other = |prefix: &Prefix| {
        let is_whole = prefix.root.join("READY").exists() && plugin_of(prefix).exists();
        let release = if is_whole { release_of(prefix) } else { String::new() };
        release != w.release && release.starts_with(&format!("{series}."))
    };
    let entries = fs::read_dir(checkout()).expect("the checkout").flatten();
    let is_prefix = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".prefix"))
    };
    let prefixes = entries.map(|entry| entry.path()).filter(is_prefix);
    let found = prefixes.map(|root| Prefix { root }).find(is_other);
    found.unwrap_or_else(|| skip(format!("needs `make build SERVER={series}.X`, another release")))
}

/// The server is updated under the plugin, and goes back: no file of the package changes.
fn one_directory_serves_two_releases(w: &mut World) {
    let other = another_release(w);
    let builds = w.builds();
    builds.add(&w.prefix);
    builds.add(&other);
    let mut site = w.site(&builds);
    site.start(&[]);
    fill(&site);
    let mut last = 1000;
    for next in [&other, &w.prefix] {
        last += 1;
        site.run(&[&format!("INSERT INTO shop.orders VALUES ({last}, 'x')")]);
        site.kill();
        site.move_to(next.clone());
        site.start(&[]);
        says(&release_of(next), &site.value("SELECT VERSION()"));
        holds(&site, last);
        assert_eq!(site.rows("CHECK TABLE shop.orders")[0][3], "OK");
    }
    site.stop();
}
