//! A clean root of a distribution: its base system and the packages that a server needs, nothing else.
//!
//! It is made once with mmdebstrap and kept in the user's cache. Each test run unpacks it and works in
//! it as root, in a namespace of processes and mounts that ends with the test.

use sluice_rig::tool::{checkout, run, wait_until, Ended};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the distribution's packages of the server are called here and there.
pub struct Distribution {
    pub suite: String,
    /// Versions of the server's packages, lowest first, as 1:10.11.18-0+deb12u1.
    pub servers: Vec<String>,
    /// Of each, the downloads of scripts/fetch-mariadb.
    downloads: Vec<PathBuf>,
    cache: PathBuf,
    /// Lines for apt.
    sources: String,
}

/// Tests install these besides a server.
const PROGRAMS: &str = "logrotate sysbench";

/// Of each release for which there are builds in the packages: as scripts/deb has it.
const ASK: &str = r#"
SCRIPT_NAME=deb; . scripts/lib/common.sh; . scripts/lib/debian.sh; . scripts/lib/servers.sh
version=$(sed -n 's/^MARIADB_VERSION=//p' "$SLUICE_PREFIX/build.env")
suite=$(suite_of "${version%.*}")
ensure_packages mmdebstrap dpkg-dev 1>&2
printf '%s\n' "$suite" "$SLUICE_CACHE"
for release in ${PACK_RELEASES:-$(scripts/known-releases "${version%.*}")}; do
  printf 'server %s %s\n' "$release" "$(sed -n 's/^package=//p' "$(prefix_of "$release" "$CHECKOUT")/READY")"
done
{ source_lines "$SUITE" "$suite" && source_lines "$SUITE-security" "$suite-security"; } | grep -v ^deb-src
"#;

impl Distribution {
    /// That of the server in the prefix.
    pub fn of(prefix: &Path) -> Distribution {
        let mut bash = Command::new("bash");
        bash.args(["-ec", ASK]).current_dir(checkout()).env("SLUICE_PREFIX", prefix);
        let answer = run(&mut bash).ok();
        let mut lines = answer.lines();
        let mut next = || lines.next().expect("a line").to_owned();
        let (suite, cache) = (next(), PathBuf::from(next()));
        let (servers, sources): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with("server "));
        let word = |line: &&str, n: usize| line.split(' ').nth(n).expect("a word").to_owned();
        let downloads = servers.iter().map(|line| cache.join("mariadb").join(word(line, 1)));
        Distribution {
            downloads: downloads.collect(),
            servers: servers.iter().map(|line| word(line, 2)).collect(),
            sources: sources.join("\n"),
            suite,
            cache,
        }
    }

    /// The newest server that the packages are for.
    pub fn newest(&self) -> &str {
        self.servers.last().expect("a server")
    }

    /// As 10.11.18.
    pub fn releases(&self) -> Vec<String> {
        self.servers.iter().map(|server| release_of(server).to_owned()).collect()
    }

    /// The kept root, as a tar file.
    fn kept(&self) -> PathBuf {
        let servers = self.servers.join("-").replace([':', '/'], "_");
        let programs = PROGRAMS.replace(' ', "-");
        self.cache.join("roots").join(format!("{}-{servers}-{programs}.tar", self.suite))
    }

    fn make(&self, into: &Path, mut log: impl FnMut(&str)) {
        let kept = self.kept();
        if kept.exists() {
            return;
        }
        log("makes a root of the distribution, once");
        fs::create_dir_all(kept.parent().expect("a parent")).expect("the cache can be written");
        let (sources, base) = (into.with_extension("list"), into.with_extension("tar"));
        fs::write(&sources, format!("{}\n", self.sources)).expect("a new file");
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--variant=apt", "--mode=root", "--skip=cleanup/apt"]);
        run(bootstrap.arg(&self.suite).arg(&base).arg(&sources)).ok();
        unpack(&base, into);
        self.add_server(into);
        let part = kept.with_extension("part");
        run(Command::new("tar").arg("-cf").arg(&part).arg("-C").arg(into).arg(".")).ok();
        fs::rename(&part, &kept).expect("the cache can be written");
        fs::remove_dir_all(into).expect("our own directory");
    }

    /// The servers' packages as a repository on disk, and in apt's cache whatever else they need.
    fn add_server(&self, root: &Path) {
        const COPY: &str = r#"
            mkdir -p "$1/srv/server"
            cp "$2"/*.deb "$1/srv/server"
            rm -f "$1"/srv/server/*-dev_* "$1"/srv/server/mariadb-test*"#;
        const LIST: &str = r#"
            (cd "$1/srv/server" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
            echo 'deb [trusted=yes] file:/srv/server ./' >>"$1/etc/apt/sources.list"
            cp /etc/resolv.conf "$1/etc/resolv.conf"
            chroot "$1" apt-get -qq update"#;
        let download = format!(
            "chroot \"$1\" apt-get -qq --yes --download-only install mariadb-server {PROGRAMS}"
        );
        let sh = |script: &str, argument: &Path| {
            let mut sh = Command::new("sh");
            run(sh.args(["-ec", script, "add"]).arg(root).arg(argument)).ok();
        };
        self.downloads.iter().for_each(|downloads| sh(COPY, downloads));
        sh(LIST, root);
        for server in &self.servers {
            pin(root, server);
            sh(&download, root);
        }
        // From here on nothing comes from the network.
        fs::remove_file(root.join("etc/resolv.conf")).expect("a copy");
    }
}

/// Of 1:10.11.18-0+deb12u1 the release, 10.11.18.
pub fn release_of(server: &str) -> &str {
    server.split([':', '-', '+']).nth(1).expect("a version with an epoch")
}

/// Makes this version of the server's packages that which apt installs.
fn pin(root: &Path, server: &str) {
    let text = format!("Package: src:mariadb\nPin: version {server}\nPin-Priority: 1001\n");
    fs::write(root.join("etc/apt/preferences.d/mariadb"), text).expect("in our root");
}

fn unpack(tar: &Path, into: &Path) {
    fs::create_dir(into).expect("a new directory");
    run(Command::new("tar").arg("-xf").arg(tar).arg("-C").arg(into)).ok();
}

pub struct Root {
    pub dir: PathBuf,
    holder: Child,
    /// The first process of the namespace, seen from outside.
    init: u32,
}

/// It waits for children that others have left, and ends with its parent.
const INIT: &str = r#"
set -e
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount -t devpts devpts "$1/dev/pts"
touch "$1/srv/ready"
while sleep 0.2; do :; done
"#;

impl Root {
    pub fn unpack(of: &Distribution, work: &Path) -> Root {
        let dir = work.join("root");
        of.make(&dir, |line| println!("deb: {line}"));
        unpack(&of.kept(), &dir);
        let mut holder = Command::new("setpriv");
        holder.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        holder.args(["sh", "-c", INIT, "init"]).arg(&dir).stdin(Stdio::null());
        let holder = holder.spawn().expect("setpriv, of util-linux");
        wait_until("the namespace", Duration::from_secs(10), || dir.join("srv/ready").exists());
        let id = holder.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let init = children.expect("in /proc").trim().parse().expect("one child");
        let root = Root { dir, holder, init };
        // Without an init system nothing is started unless a policy allows it.
        let allow =
            "printf '#!/bin/sh\\nexit 0\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d";
        root.sh(allow).ok();
        // apt asks nothing, as a page has it without --yes, and keeps what it has installed, as apt-get does.
        let apt = "APT::Get::Assume-Yes \"true\";\nBinary::apt::APT::Keep-Downloaded-Packages \"true\";\n";
        fs::write(root.dir.join("etc/apt/apt.conf.d/99tests"), apt).expect("in our root");
        root
    }

    /// A script of the shell, in the root.
    pub fn sh(&self, script: &str) -> Ended {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid", "chroot"]);
        command.arg(&self.dir).args(["sh", "-ec", script]).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/root");
        run(&mut command)
    }

    /// In the namespace, but with the programs of this machine: `$1` is the root.
    pub fn run_outside(&self, script: &str) -> Ended {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid"]);
        run(command.args(["sh", "-ec", script, "outside"]).arg(&self.dir))
    }

    /// See [`pin`].
    pub fn pin(&self, server: &str) {
        pin(&self.dir, server);
    }

    pub fn apt(&self, args: &str) -> Ended {
        self.sh(&format!("apt-get --yes {args} 2>&1"))
    }

    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.sh(&format!("mariadb --batch --skip-column-names <<'SQL'\n{statements}\nSQL\n")).ok()
    }

    pub fn has(&self, path: &str) -> bool {
        self.dir.join(path.trim_start_matches('/')).exists()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // The namespace goes with it, and so do its processes and mounts.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
