//! W19: file systems that work against a database, each on a loop device.

use crate::{is_silent_about, named, says, World};
use sluice_rig::tool::{run, Ended, Home};
use sluice_server_tests::mounted::FileSystem;
use std::fs;
use std::path::Path;
use std::process::Command;

fn program(name: &str, args: &[&str]) -> Ended {
    run(Command::new(name).args(args))
}

/// A field of `df`, in bytes.
fn df(at: &Path, field: &str) -> String {
    let field = format!("--output={field}");
    let shown = program("df", &[&field, "-B1", &at.to_string_lossy()]).ok();
    shown.lines().last().unwrap_or_default().trim().to_owned()
}

fn is_turning(at: &Path) -> bool {
    let source = df(at, "source");
    let device = source.rsplit('/').next().unwrap_or_default();
    let turns = fs::read_to_string(format!("/sys/block/{device}/queue/rotational"));
    turns.expect("a block device").trim() == "1"
}

fn leave_20_mib(at: &Path, ballast: &Path) {
    let free: u64 = df(at, "avail").parse().expect("a number");
    let length = (free - (20 << 20)).to_string();
    program("fallocate", &["-l", &length, &ballast.to_string_lossy()]).ok();
}

/// Runs a server on the file system, mounted with these options, and looks at it.
fn on_file_system(w: &World, on: &FileSystem, options: &str, look: fn(&World, &Path, &Home)) {
    on.mount(options).ok();
    let home = w.tool.home_at(on.at.join("d"));
    let args = ["--without-engine", "--min-free-mib", "16", "--"];
    let small = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"];
    run(&mut home.server("start", &[&args[..], &small[..]].concat())).ok();
    look(w, &on.at, &home);
    home.stop();
    on.unmount().ok();
}

pub fn w19_file_system_works_against_it(w: &mut World) {
    let on = FileSystem::ext4(&w.tool, "fs");
    on_file_system(w, &on, "data=journal,dirsync,strictatime", |w, _, home| {
        let answer = w.advise_at(home);
        says(&named("W19"), &answer);
        says("data=journal writes everything twice", &answer);
        says("mounted with dirsync", &answer);
        says("mounted with strictatime", &answer);
        says("mounted with nodelalloc", &answer);
    });
    on_file_system(w, &on, "nobarrier", |w, at, home| {
        let answer = w.advise_at(home);
        says("barriers are off", &answer);
        // Only where the loop device says that it is no turning disk.
        if !is_turning(at) {
            says("nothing tells the drive", &answer);
        }
    });
    on_file_system(w, &on, "discard", |w, at, home| {
        is_silent_about(&named("W19"), &w.advise_at(home));
        let ballast = at.join("ballast");
        leave_20_mib(at, &ballast);
        says("of the file system are free", &w.advise_at(home));
        fs::remove_file(ballast).expect("our file");
        is_silent_about(&named("W19"), &w.advise_at(home));
    });
}
