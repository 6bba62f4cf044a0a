//! A plain restore that SIGKILL ends while it copies: no server starts on what it leaves, and another restore
//! refuses to go on from there. One that applies binary logs is in `until`.

use crate::case::{state, Case};
use crate::stream::stream_to;
use sluice_rig::tool::{run, spawn, wait};
use sluice_server_tests::site::Site;
use sluice_server_tests::wait_until;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const STAGE: &str = "sluice-restore.tmp";
/// A restore makes these first, in the order of the backup's list: the engine's files, then those of the server.
const MARKS: [&str; 3] = ["", "sluice/pages", "mysql"];
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// On a busy machine a restore can end before it is killed.
const TRIES: usize = 10;

/// Kills a restore as soon as it has made this. False: it had ended.
fn kill_at(mark: &Path, mut restore: Child) -> bool {
    while !mark.exists() {
        if restore.try_wait().expect("a child").is_some() {
            return false;
        }
        sleep(LOOK_EVERY);
    }
    restore.kill().expect("a child that was not waited for");
    wait(restore).code.is_none()
}

/// Nobody takes it for a data directory, neither a server nor a restore. Empties it.
#[track_caller]
fn is_no_data_directory(case: &Case, site: &mut Site, from: &str) {
    let to = site.data("");
    let is_half = to.join(STAGE).exists() && !to.join("mysql").exists();
    assert!(is_half, "{from}: a restore that was killed has left something else");
    run(&mut case.restore(from, &to)).refuses("is not empty");
    site.refuses("mysql.", &[]);
    run(&mut case.restore(from, &to)).refuses("is not empty");
    fs::remove_dir_all(&to).expect("a half restore");
}

#[test]
fn a_plain_restore_that_is_killed_leaves_nothing_that_starts() {
    let case = Case::with_tables("a_plain_restore_that_is_killed");
    case.fill();
    run(&mut case.backup("b", &[])).ok();
    let mut site = case.site("r");
    for mark in MARKS {
        let mark = site.data("").join(STAGE).join(mark);
        let is_killed = (0..TRIES).any(|_| {
            let _ = fs::remove_dir_all(site.data(""));
            kill_at(&mark, spawn(&mut case.restore("b", &site.data(""))))
        });
        assert!(is_killed, "each has ended before it was killed at {}", mark.display());
        is_no_data_directory(&case, &mut site, "b");
    }
    // As if it had been killed before its last rename: all but the schema `mysql` has its place.
    let to = site.data("");
    run(&mut case.restore("b", &to)).ok();
    fs::create_dir(to.join(STAGE)).expect("a directory");
    fs::rename(to.join("mysql"), to.join(STAGE).join("mysql")).expect("the schema");
    is_no_data_directory(&case, &mut site, "b");

    run(&mut case.restore("b", &to)).ok();
    site.start(&[]);
    assert_eq!(state(&site), state(&case.d));
    site.stop();
}

/// Of a stream half has come.
#[test]
fn a_restore_of_a_stream_that_is_killed_leaves_nothing_that_starts() {
    let case = Case::with_tables("a_restore_of_a_stream_that_is_killed");
    case.fill();
    stream_to(&case, File::create(case.to("stream")).expect("a file"), &[]).ok();
    let whole = fs::read(case.to("stream")).expect("a stream");
    let mut site = case.site("r");
    let mut command = Command::new(&case.program);
    command.args(["restore", "--from", "-", "--to"]).arg(site.data(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut restore = command.spawn().expect("a child");
    let mut pipe = restore.stdin.take().expect("its standard input");
    pipe.write_all(&whole[..whole.len() / 2]).expect("a pipe that is read");
    let pages = site.data("").join(STAGE).join("sluice/pages");
    wait_until("pages of the stream", || fs::metadata(&pages).is_ok_and(|file| file.len() > 0));
    assert!(kill_at(&pages, restore), "it has ended with half of a stream");
    is_no_data_directory(&case, &mut site, "stream");

    run(&mut case.restore("stream", &site.data(""))).ok();
    site.start(&[]);
    assert_eq!(state(&site), state(&case.d));
    site.stop();
}
