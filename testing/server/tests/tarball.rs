//! The tarball of scripts/tarball, unpacked beside a server that it was not installed into, and what the
//! programs in it do on processors without newer instructions (docs/install.md, "Other distributions").
//!
//! `cargo test --release --workspace --test tarball [NAME]`, after `make build`: it packs what that has
//! built. With PACK_COMPILED (scripts/lib/packing.sh) it packs what is there.

use sluice_rig::server::Prefix;
use sluice_rig::suite::{self, skip};
use sluice_rig::tests;
use sluice_rig::tool::{built, checkout, ensure_package, is_silent_about, run, says};
use sluice_server_tests::builds::{release_of, Builds};
use sluice_server_tests::scratch::{prefix, Scratch};
use sluice_server_tests::site::Site;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

struct World {
    scratch: Scratch,
    prefix: Prefix,
    /// The builds to pack.
    compiled: PathBuf,
    /// Of servers, for which there are builds in it.
    releases: String,
    tarball: PathBuf,
    /// The directory that is in it.
    unpacked: PathBuf,
}

fn main() -> ExitCode {
    let tests = tests![
        equal_builds_give_equal_bytes,
        every_file_is_there_with_its_sum,
        rows_survive_a_restart_and_a_kill,
        the_program_keeps_a_server_with_it,
        a_library_for_another_processor_is_refused,
        the_engine_runs_on_the_first_processors,
        tls_on_such_a_processor_is_refused_with_a_sentence,
        what_cannot_be_made_is_refused,
    ];
    suite::run(&tests, World::new)
}

impl World {
    fn new() -> Result<World, String> {
        let (scratch, prefix) = (Scratch::new("tarball", "tarball"), prefix());
        let compiled = match std::env::var_os("PACK_COMPILED") {
            Some(dir) => PathBuf::from(dir),
            None => compiled(&scratch, &prefix)?,
        };
        let (tarball, unpacked) = (scratch.path("tarball.tar.xz"), scratch.path("unpacked"));
        let releases = std::env::var("PACK_RELEASES").unwrap_or_else(|_| release_of(&prefix));
        let world = World { scratch, prefix, compiled, releases, tarball, unpacked };
        fs::rename(world.pack("first"), &world.tarball).map_err(|error| error.to_string())?;
        fs::create_dir(&world.unpacked).map_err(|error| error.to_string())?;
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&world.tarball).args(["--strip-components=1", "-C"]);
        run(tar.arg(&world.unpacked)).ok();
        Ok(world)
    }

    /// scripts/tarball with a directory of its own, and that directory.
    fn script(&self, name: &str) -> (Command, PathBuf) {
        let out = self.scratch.path(name);
        let mut script = Command::new("scripts/tarball");
        script.current_dir(checkout()).env("PACK_COMPILED", &self.compiled).env("PACK_OUT", &out);
        script.env("PACK_RELEASES", &self.releases);
        (script, out)
    }

    fn pack(&self, name: &str) -> PathBuf {
        let (mut script, out) = self.script(name);
        run(&mut script).ok();
        let made: Vec<_> = fs::read_dir(out).expect("a directory").flatten().collect();
        assert_eq!(made.len(), 1, "{made:?}");
        made[0].path()
    }

    fn plugin_dir(&self) -> String {
        format!("--plugin-dir={}", self.unpacked.join("plugin").display())
    }

    /// A server with the options of the tarball's configuration, on a new data directory.
    fn site(&self, name: &str) -> Site {
        let mut print = Command::new(self.prefix.program("my_print_defaults"));
        let file = self.unpacked.join("etc/sluice.cnf");
        print.arg(format!("--defaults-file={}", file.display())).arg("mariadbd");
        let mut options: Vec<_> = run(&mut print).ok().lines().map(String::from).collect();
        assert!(options.contains(&"--sluice=FORCE_PLUS_PERMANENT".into()), "{options:?}");
        options.push(self.plugin_dir());
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        Site::new(&self.scratch, name, "InnoDB", &options)
    }
}

/// What `make build` has built, as a run of the script that compiles leaves it.
fn compiled(scratch: &Scratch, prefix: &Prefix) -> Result<PathBuf, String> {
    let dir = scratch.path("compiled");
    let builds = Builds::new(dir.clone());
    builds.add(prefix);
    fs::rename(dir.join("sluice"), dir.join("builds")).map_err(|error| error.to_string())?;
    fs::create_dir(dir.join("release")).map_err(|error| error.to_string())?;
    symlink(built("sluice")?, dir.join("release/sluice")).map_err(|error| error.to_string())?;
    Ok(dir)
}

fn equal_builds_give_equal_bytes(w: &mut World) {
    let again = w.pack("again");
    assert!(fs::read(again).ok() == fs::read(&w.tarball).ok(), "two tarballs differ");
    let mut tar = Command::new("tar");
    let list = run(tar.args(["--numeric-owner", "-tvf"]).arg(&w.tarball)).ok();
    assert!(list.lines().all(|line| line.contains(" 0/0 ")), "{list}");
}

fn every_file_is_there_with_its_sum(w: &mut World) {
    let mut check = Command::new("sha256sum");
    run(check.args(["--check", "--quiet", "--strict", "SHA256SUMS"]).current_dir(&w.unpacked)).ok();
    let release = release_of(&w.prefix);
    let sums = fs::read_to_string(w.unpacked.join("SHA256SUMS")).expect("sums");
    for file in [
        "bin/sluice",
        "COPYRIGHT",
        "doc/using.md",
        "etc/sluice.cnf",
        "INSTALL",
        "LICENSE",
        "plugin/ha_sluice.so",
        &format!("plugin/sluice/ha_sluice-{release}.so"),
        "share/bash-completion/completions/sluice",
        "share/fish/vendor_completions.d/sluice.fish",
        "share/man/man1/sluice-inspect-verify.1",
        "share/man/man1/sluice.1",
        "share/zsh/site-functions/_sluice",
    ] {
        says(&format!("  {file}\n"), &sums);
    }
    let text = fs::read_to_string(w.unpacked.join("INSTALL")).expect("a text");
    says(&release, &text);
    for left in ["@VERSION@", "@RELEASES@", "@GLIBC@", "@GLIBCXX@"] {
        is_silent_about(left, &text);
    }
    let versions = text.lines().find(|line| line.starts_with("Needed: ")).expect("libraries");
    assert!(versions.contains("glibc 2.") && versions.contains("GLIBCXX_3."), "{versions}");
}

fn fill(site: &Site) {
    site.run(&[
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(99), KEY (v)) ENGINE=Sluice COMPRESSION=zstd",
        "INSERT INTO shop.orders SELECT seq, REPEAT(MD5(seq), 3) FROM mysql.seq_1_to_1000",
    ]);
    holds(site);
}

#[track_caller]
fn holds(site: &Site) {
    let sum = "SELECT CONCAT(COUNT(*), ' ', SUM(id), ' ', MD5(GROUP_CONCAT(v))) FROM shop.orders";
    assert!(site.value(sum).starts_with("1000 500500 "), "{}", site.value(sum));
    assert_eq!(site.rows("CHECK TABLE shop.orders EXTENDED")[0][3], "OK");
}

fn rows_survive_a_restart_and_a_kill(w: &mut World) {
    let mut site = w.site("rows");
    site.start(&[]);
    fill(&site);
    site.stop();
    site.start(&[]);
    holds(&site);
    site.kill();
    site.start(&[]);
    holds(&site);
    site.stop();
    let mut verify = Command::new(w.unpacked.join("bin/sluice"));
    let found = run(verify.arg("inspect").arg(site.data("")).arg("verify")).ok();
    says("no damage found", &found);
}

/// `sluice server` takes its server from a prefix; the directory of plugins is an option.
fn the_program_keeps_a_server_with_it(w: &mut World) {
    let (home, program) = (w.scratch.path("home"), w.unpacked.join("bin/sluice"));
    let server = |verb: &str| {
        let mut command = Command::new(&program);
        command.args(["server", verb, "--dir"]).arg(&home).env("SLUICE_PREFIX", &w.prefix.root);
        command
    };
    let (mut start, directory) = (server("start"), w.plugin_dir());
    run(start.args(["--min-free-mib", "256", "--timeout", "120", "--", &directory])).ok();
    let mut client = Command::new(w.prefix.program("mariadb"));
    client.args(["--no-defaults", "-Nu", "root", "-S"]).arg(home.join("mysql.sock"));
    let asked = run(client.args(["-e", "SELECT @@plugin_dir, @@default_storage_engine"]));
    // First the end of the server, whatever it has said.
    run(&mut server("stop")).ok();
    let answer = asked.ok();
    says(&directory["--plugin-dir=".len()..], &answer);
    says("Sluice", &answer);
}

/// As the dynamic linker of an ARM server meets it: a file for a machine that is not its own.
fn a_library_for_another_processor_is_refused(w: &mut World) {
    let plugins = w.scratch.path("other");
    run(Command::new("cp").arg("-R").arg(w.unpacked.join("plugin")).arg(&plugins)).ok();
    let loader = plugins.join("ha_sluice.so");
    let mut bytes = fs::read(&loader).expect("the loader");
    const E_MACHINE: std::ops::Range<usize> = 18..20;
    assert_eq!(bytes[E_MACHINE], [62, 0], "x86-64");
    bytes[E_MACHINE].copy_from_slice(&183u16.to_le_bytes());
    fs::write(&loader, bytes).expect("a file");
    let mut site = w.site("other-site");
    let option = format!("--plugin-dir={}", plugins.display());
    site.refuses("Can't open shared library", &[&option]);
    assert!(!site.data("sluice").exists(), "the engine has begun to start");
}

/// The first with these instructions, of 2003: x86-64-v1.
const FIRST_PROCESSOR: &str = "Opteron_G1";

/// Runs programs as on another processor.
fn emulator() -> &'static str {
    if !ensure_package("qemu-user") {
        skip("no qemu-user, and it cannot be installed");
    }
    "qemu-x86_64"
}

/// An installation whose server runs on such a processor. Its memory is limited: the emulator has a
/// table for all addresses that are reserved.
fn on_first_processor(w: &World) -> Prefix {
    let root = w.scratch.path("emulated");
    fs::create_dir_all(root.join("usr/sbin")).expect("a directory");
    for name in ["bin", "share"] {
        let original = w.prefix.root.join("usr").join(name);
        symlink(original, root.join("usr").join(name)).expect("a new name");
    }
    let server = root.join("usr/sbin/mariadbd");
    let original = w.prefix.program("mariadbd");
    let script = format!(
        "#!/bin/bash\nulimit -Sv 12000000\nexec {} -cpu {FIRST_PROCESSOR} '{}' \"$@\"\n",
        emulator(),
        original.display()
    );
    fs::write(&server, script).expect("a script");
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).expect("our own file");
    Prefix { root }
}

/// Neither plugin nor program needs more: what is faster with newer instructions asks for them first.
fn the_engine_runs_on_the_first_processors(w: &mut World) {
    let emulated = on_first_processor(w);
    let mut site = w.site("first-site");
    site.move_to(emulated);
    // Its pool may grow: it reserves 8 TiB of addresses.
    let small = ["--loose-innodb-buffer-pool-size-max=32M", "--innodb-use-native-aio=0"];
    site.start(&small);
    says("generic crc32", &site.log_of_last_start());
    fill(&site);
    site.kill();
    site.start(&small);
    holds(&site);
    site.stop();
    let found = on_first(&w.unpacked, &["inspect", &site.data("").to_string_lossy(), "verify"]);
    says("no damage found", &found.ok());
}

fn on_first(unpacked: &Path, args: &[&str]) -> sluice_rig::tool::Ended {
    let mut command = Command::new(emulator());
    command.args(["-cpu", FIRST_PROCESSOR]).arg(unpacked.join("bin/sluice"));
    run(command.args(args))
}

fn tls_on_such_a_processor_is_refused_with_a_sentence(w: &mut World) {
    says("sluice ", &on_first(&w.unpacked, &["--version"]).ok());
    let asked = on_first(&w.unpacked, &["advise", "mysql://root@127.0.0.1/?ssl=1"]);
    asked.refuses("error: TLS needs a processor with AES, AVX2 and ADX instructions");
    assert_eq!(asked.code, Some(1), "an exit, no signal");
}

fn what_cannot_be_made_is_refused(w: &mut World) {
    let release = w.releases.split(' ').next().expect("a release");
    let refuses = |reason: &str, change: &dyn Fn(&mut Command)| {
        let (mut script, out) = w.script("refused");
        change(&mut script);
        run(&mut script).refuses(reason);
        let left = fs::read_dir(out).map_or(0, |made| made.count());
        assert_eq!(left, 0, "files of a tarball that was refused");
    };
    let nothing = w.scratch.path("nothing");
    fs::create_dir(&nothing).expect("a directory");
    refuses(&format!("has no builds/ha_sluice-{release}.so"), &|script| {
        script.env("PACK_COMPILED", &nothing);
    });
    refuses("cannot write into /dev/null/x", &|script| {
        script.env("PACK_OUT", "/dev/null/x");
    });
    refuses("is for releases of one series, not for", &|script| {
        script.env("PACK_RELEASES", "10.11.18 11.8.6");
    });
    refuses("has no commit that tells a version", &|script| {
        script.env("GIT_DIR", &nothing);
    });
    refuses("SOURCE_DATE_EPOCH is a number of seconds", &|script| {
        script.env("SOURCE_DATE_EPOCH", "today");
    });
    let path = another_machine(&w.scratch);
    refuses("this system is arm64: Sluice runs on x86-64 (amd64) only", &|script| {
        script.env("PATH", &path);
    });
    for script in ["scripts/build", "scripts/deb"] {
        let mut script = Command::new(script);
        script.current_dir(checkout()).env("PATH", &path).env("PACK_OUT", &nothing);
        run(&mut script).refuses("this system is arm64: Sluice runs on x86-64 (amd64) only");
    }
}

/// Where the first dpkg says that it is for another processor.
fn another_machine(scratch: &Scratch) -> String {
    let dir = scratch.path("arm64");
    fs::create_dir(&dir).expect("a directory");
    let dpkg = dir.join("dpkg");
    fs::write(&dpkg, "#!/bin/sh\necho arm64\n").expect("a script");
    fs::set_permissions(&dpkg, fs::Permissions::from_mode(0o755)).expect("our own file");
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}
