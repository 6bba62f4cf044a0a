//! A server of the distribution in a clean root, with and without the packages of scripts/deb.

use crate::root::{Distribution, Root};
use sluice_rig::tool::{checkout, run, says, wait_until, Ended, Tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct World {
    pub root: Root,
    pub distribution: Distribution,
    /// Of the last build of the packages.
    pub packages: PathBuf,
    pub tool: Tool,
}

/// Without those of debug symbols.
pub fn packages_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".deb") && !name.contains("-dbgsym_")
    };
    let mut found: Vec<_> = entries.filter(is_wanted).collect();
    found.sort();
    found
}

impl World {
    pub fn new() -> Result<World, String> {
        let tool = Tool::new("deb")?;
        let distribution = Distribution::of(&tool.prefix.root);
        let target = tool.program.ancestors().nth(2).ok_or("no target directory")?;
        let packages = target.join("deb").join(&distribution.suite);
        if packages_in(&packages).len() < 2 {
            return Err(format!("no packages in {}: run `make deb`", packages.display()));
        }
        let root = Root::unpack(&distribution, &tool.work);
        let world = World { root, distribution, packages, tool };
        world.bring(&world.packages, "packages");
        Ok(world)
    }

    /// A script that packs for the same servers, into another directory.
    pub fn pack(&self, script: &str, into: &Path) -> Command {
        let mut command = Command::new("bash");
        command.arg(script).current_dir(checkout());
        command.env("PACK_OUT", into).env("PACK_PREFIXES", checkout());
        let releases = self.distribution.releases();
        command.env("PACK_RELEASES", releases.join(" "));
        command
    }

    /// What was compiled for the packages that are tested.
    pub fn pack_compiled(&self, script: &str, into: &Path) -> Command {
        let mut command = self.pack(script, into);
        command.env("PACK_COMPILED", self.packages.with_file_name("cargo"));
        command
    }

    /// Packages with the version 0.0.9, in /srv/older.
    pub fn bring_older(&self) {
        let older = self.tool.work.join("older");
        if !older.exists() {
            run(self.pack_compiled("scripts/deb", &older).env("PACK_VERSION", "0.0.9")).ok();
            self.bring(&older, "older");
        }
    }

    /// The version of the packages that are tested, without the distribution at its end.
    pub fn built_version(&self) -> String {
        let name = packages_in(&self.packages)[0].clone();
        let name = name.file_name().expect("a name").to_string_lossy().into_owned();
        let version = name.split('_').nth(1).expect("a version");
        version.rsplit_once('~').expect("a distribution").0.to_owned()
    }

    /// That of the installed plugin.
    pub fn version(&self) -> String {
        self.root.sh("dpkg-query -W -f '${Version}' mariadb-plugin-sluice").ok()
    }

    /// That of the installed server.
    pub fn server_version(&self) -> String {
        self.root.sh("dpkg-query -W -f '${Version}' mariadb-server-core").ok()
    }

    pub fn wait_for_server(&self) {
        wait_until("the server", Duration::from_secs(60), || self.answers());
    }

    /// Puts the packages of `from` into a directory of the root.
    pub fn bring(&self, from: &Path, name: &str) {
        let to = self.root.dir.join("srv").join(name);
        fs::create_dir_all(&to).expect("in our root");
        for package in packages_in(from) {
            fs::copy(&package, to.join(package.file_name().expect("a name"))).expect("a copy");
        }
    }

    /// The packages, and the newest server that they have a build for.
    pub fn install(&self) -> Ended {
        self.root.pin(self.distribution.newest());
        self.root.apt("install /srv/packages/*.deb")
    }

    /// The package is installed and the server runs with the engine.
    pub fn running(&self) -> &Root {
        if !self.is_installed() {
            self.install().ok();
        }
        self.start();
        assert_eq!(self.engine(), "YES");
        &self.root
    }

    pub fn is_installed(&self) -> bool {
        let query = "dpkg-query -W -f '${db:Status-Status}' mariadb-plugin-sluice 2>&1 || true";
        self.root.sh(query).ok() == "installed"
    }

    pub fn answers(&self) -> bool {
        self.root.sh("mariadb-admin ping").code == Some(0)
    }

    pub fn start(&self) {
        self.root.sh("invoke-rc.d mariadb start >/dev/null 2>&1").ok();
        self.wait_for_server();
    }

    pub fn stop(&self) {
        self.root.sh("invoke-rc.d mariadb stop >/dev/null 2>&1").ok();
    }

    /// Runs commands of a page, each only if the one before was good. The root has no systemd.
    #[track_caller]
    pub fn follow(&self, commands: &str) -> String {
        let mut script = commands.to_owned();
        for verb in ["start", "stop", "restart"] {
            let with_service = format!("service mariadb {verb}");
            script = script.replace(&format!("systemctl {verb} mariadb"), &with_service);
        }
        fs::write(self.root.dir.join("srv/commands"), script).expect("in our root");
        let said = "sh -e /srv/commands >/srv/said 2>&1 || echo failed >>/srv/said; cat /srv/said";
        let said = self.root.sh(said).ok();
        assert!(!said.ends_with("failed\n"), "{commands}\nsaid:\n{said}");
        said
    }

    pub fn engine(&self) -> String {
        let query = "SELECT support FROM information_schema.engines WHERE engine = 'Sluice'";
        self.root.sql(query).trim().to_owned()
    }

    /// A table of the engine is there, with at least one row.
    pub fn with_table(&self) -> &Root {
        let root = self.running();
        root.sql(
            "CREATE DATABASE IF NOT EXISTS shop;
             CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY) ENGINE=Sluice;
             INSERT IGNORE INTO shop.orders VALUES (1);",
        );
        root
    }

    pub fn without_tables(&self) -> &Root {
        let root = self.running();
        root.sql("DROP DATABASE IF EXISTS shop");
        root
    }

    pub fn kill(&self) {
        // Its wrapper first, which would start it again.
        let script =
            "pkill -KILL mariadbd-safe || pkill -KILL mysqld_safe || true; pkill -KILL -x mariadbd";
        self.root.sh(script).ok();
        self.wait_for_end();
    }

    pub fn wait_for_end(&self) {
        wait_until("the end", Duration::from_secs(10), || !self.answers());
    }

    pub fn assert_refused(&self, removal: &Ended, reason: &str) {
        removal.refuses(reason);
        says("Nothing was removed", &removal.text());
        assert!(self.is_installed());
        assert!(self.root.has("/usr/lib/mysql/plugin/ha_sluice.so"));
    }
}
