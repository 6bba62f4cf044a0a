//! Wrong starts, each followed by a right one, with power cuts at any changing call of either: a
//! start that cannot complete the files changes nothing, and the right one completes everything.

use super::planted::{plant, Bug};
use super::tests::{files, Server, INDEX};
use super::*;
use crate::base::{Error, Lsn, Result};
use crate::os::sim::Fault;
use crate::os::{OpenMode, Os};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// What is wrong with a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    OtherBase,
    EditedIndex,
    MissingVolume,
    MissingLastFile,
    NoBinlog,
    NoBinlogNoVolume,
    /// The plugin is missing: the server scans what is there and opens a new file.
    NoPlugin,
}

use Wrong::*;

const ALL: [Wrong; 7] =
    [OtherBase, EditedIndex, MissingVolume, MissingLastFile, NoBinlog, NoBinlogNoVolume, NoPlugin];

/// A server with acknowledged groups of which no sync has covered the last.
fn server(seed: u64) -> Server {
    let mut server = Server::new(seed);
    server.binlog.switch(true).unwrap();
    server.rotate().unwrap();
    for _ in 0..2 + server.rng.below(6) {
        match server.rng.below(6) {
            0 => server.rotate().unwrap(),
            1 => server.binlog.sync_step().unwrap(),
            2 => server.checkpoint().unwrap(),
            _ => server.transaction(100).unwrap(),
        }
    }
    server.transaction(100).unwrap();
    server
}

fn move_all(server: &Server, from: &str, to: &str) {
    for path in server.os.list(Path::new("/")).unwrap() {
        let name = path.to_str().unwrap();
        if let Some(rest) = name.strip_prefix(from) {
            server.os.rename(&path, &PathBuf::from(format!("{to}{rest}"))).unwrap();
        }
    }
    server.os.sync_dir(Path::new("/")).unwrap();
}

/// As a server does without the plugin.
fn start_without_plugin(server: &mut Server) -> Result<()> {
    let gtids = server.state_of_server().unwrap_or_default();
    let name = format!("/bin.{:06}", server.next_number);
    server.next_number += 1;
    let header = server.header(&gtids);
    let file = server.os.open(Path::new(&name), OpenMode { create: true, direct: false })?;
    file.write_at(&header, 0)?;
    file.sync()?;
    server.os.sync_dir(Path::new("/"))?;
    server.name(&name)?;
    server.files.values_mut().for_each(|content| content.exact = false);
    let content = super::tests::Content { acknowledged: header.len(), bytes: header, exact: false };
    server.files.insert(name.clone(), content);
    server.index.push(name);
    Ok(())
}

fn attempt(server: &mut Server, files: Option<(&Path, &Path)>) -> Result<Completion> {
    server.open()?;
    let done = server.binlog.start(Setting { files, ..Setting::default() });
    // What was refused, a checkpoint at the end of this start must not forget.
    if done.is_err() {
        server.checkpoint()?;
    }
    done
}

fn start_wrongly(server: &mut Server, wrong: Wrong) -> Result<Completion> {
    let index = server.bytes_of(INDEX);
    let last = server.index.last().cloned().unwrap();
    match wrong {
        OtherBase => attempt(server, Some((Path::new("/other.index"), Path::new("/other")))),
        EditedIndex => {
            let text = String::from_utf8(index.clone()).unwrap();
            let kept: String =
                text.lines().filter(|n| *n != last).map(|n| n.to_owned() + "\n").collect();
            super::files::replace(&*server.os, Path::new(INDEX), kept.as_bytes()).unwrap();
            let done = attempt(server, files());
            super::files::replace(&*server.os, Path::new(INDEX), &index).unwrap();
            done
        }
        MissingVolume | NoBinlogNoVolume => {
            move_all(server, "/bin.", "/away.");
            let found = if wrong == MissingVolume { files() } else { None };
            if found.is_some() {
                // The server does so before the plugin starts.
                super::files::replace(&*server.os, Path::new(INDEX), b"").unwrap();
            }
            let done = attempt(server, found);
            super::files::remove(&*server.os, Path::new(INDEX)).unwrap();
            move_all(server, "/away.", "/bin.");
            done
        }
        MissingLastFile => {
            server.os.rename(Path::new(&last), Path::new("/away")).unwrap();
            let done = attempt(server, files());
            server.os.rename(Path::new("/away"), Path::new(&last)).unwrap();
            done
        }
        NoBinlog => attempt(server, None),
        NoPlugin => start_without_plugin(server).map(|()| Completion::default()),
    }
}

/// A crash, a wrong start, then the right one, with power cuts in it.
fn run(seed: u64, wrong: Wrong) {
    let mut server = server(seed);
    server.os.crash();
    server.os.sync_dir(Path::new("/")).unwrap();
    let done = start_wrongly(&mut server, wrong);
    match (wrong, &done) {
        (NoBinlog | NoPlugin, Ok(_)) | (_, Err(Error::Refused(_))) => {}
        _ => panic!("{wrong:?}: {done:?}"),
    }
    server.restart();
    server.check();
    // The server goes on, and nothing of the past is in its way.
    server.go_on();
    server.transaction(50).unwrap();
    server.restart();
    server.check();
}

fn all_runs(seeds: u64) {
    for seed in 0..seeds {
        for wrong in ALL {
            run(seed, wrong);
        }
    }
}

#[test]
fn a_wrong_start_gives_up_nothing() {
    all_runs(40);
}

/// One whose machine has lost its power, perhaps started wrongly after that.
fn crashed_server(seed: u64, wrong: Option<Wrong>) -> Server {
    let mut server = server(seed);
    server.os.crash();
    server.os.sync_dir(Path::new("/")).unwrap();
    if let Some(wrong) = wrong {
        let _ = start_wrongly(&mut server, wrong);
    }
    server
}

/// Every changing call of a start is the last one before a power cut, once.
fn cut_everywhere(seed: u64, wrong: Option<Wrong>) {
    for calls in 0.. {
        let mut server = crashed_server(seed, wrong);
        server.os.fail_after(calls, Fault::PowerCut);
        let is_through = server.recover().is_ok();
        server.os.crash();
        server.os.sync_dir(Path::new("/")).unwrap();
        server.recover().expect("nothing fails");
        server.check();
        if is_through {
            return;
        }
    }
}

#[test]
fn power_is_cut_at_every_call_of_a_start() {
    for seed in 0..12 {
        cut_everywhere(seed, None);
        cut_everywhere(seed, Some(NoPlugin));
        cut_everywhere(seed, Some(NoBinlog));
    }
}

/// What else than a loss of power can go wrong in a start.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// From a changing call of this number on, or in it alone.
    Call(Fault),
    /// So many more files can be opened.
    OpenFiles,
}

/// Each call of a start fails once. The server then ends; its machine goes on, or loses its power. The
/// next start finds all.
fn fail_everywhere(seed: u64, wrong: Option<Wrong>, failure: Failure) -> u64 {
    let mut failed = 0;
    for calls in 0.. {
        let mut server = crashed_server(seed, wrong);
        let before = server.os.mutations();
        match failure {
            Failure::Call(fault) => server.os.fail_after(calls, fault),
            Failure::OpenFiles => {
                server.os.set_open_files_max(Some(server.os.open_files() + calls));
            }
        }
        let done = server.recover();
        let met = match failure {
            Failure::Call(_) => server.os.mutations() - before > calls,
            Failure::OpenFiles => done.is_err(),
        };
        server.os.clear_fault();
        server.os.set_open_files_max(None);
        if seed % 2 == 0 {
            server.os.crash();
            server.os.sync_dir(Path::new("/")).unwrap();
        }
        let again = server.recover();
        assert!(again.is_ok(), "call {calls}, {failure:?}: {done:?}, then {again:?}");
        server.check();
        failed += u64::from(done.is_err());
        if !met {
            break;
        }
    }
    failed
}

#[test]
fn a_call_that_fails_in_a_start_gives_up_nothing() {
    let calls = [Fault::IoError, Fault::NoSpaceOnce, Fault::DiskFull].map(Failure::Call);
    for failure in calls.into_iter().chain([Failure::OpenFiles]) {
        let failed: u64 = (0..6)
            .flat_map(|seed| [None, Some(NoPlugin), Some(NoBinlog)].map(|wrong| (seed, wrong)))
            .map(|(seed, wrong)| fail_everywhere(seed, wrong, failure))
            .sum();
        assert!(failed > 20, "{failure:?}: {failed}");
    }
}

fn copy_log(server: &Server) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = server.os.list(Path::new("/log")).unwrap();
    let read = |p: PathBuf| (p.clone(), server.bytes_of(p.to_str().unwrap()));
    paths.into_iter().map(read).collect()
}

fn put_back(server: &Server, copy: &[(PathBuf, Vec<u8>)]) {
    for path in server.os.list(Path::new("/log")).unwrap() {
        server.os.remove(&path).unwrap();
    }
    for (path, bytes) in copy {
        super::files::replace(&*server.os, path, bytes).unwrap();
    }
}

/// An older copy of the log, taken while the server stood still or before it was last started.
fn older_copy(seed: u64, groups: u64, is_new_life: bool) {
    let mut server = server(seed);
    server.checkpoint().unwrap();
    let (copy, note, anchor) = (copy_log(&server), server.note.clone(), server.anchor);
    if is_new_life {
        server.restart();
        server.go_on();
    }
    for _ in 0..groups {
        server.transaction(60).unwrap();
    }
    server.files.values_mut().for_each(|c| c.exact = false);
    server.file().unwrap().sync().unwrap();
    server.os.crash();
    let newer = (copy_log(&server), server.note.clone(), server.anchor);
    put_back(&server, &copy);
    (server.note, server.anchor) = (note, anchor);
    let done = attempt(&mut server, files());
    assert!(matches!(done, Err(Error::Refused(_))), "{done:?}");
    let current = server.current.clone();
    let kept = server.files[&current].bytes.clone();
    assert_eq!(server.bytes_of(&current)[..kept.len()], kept[..], "nothing is cut");
    // With the newer files all is well.
    put_back(&server, &newer.0);
    (server.note, server.anchor) = (newer.1, newer.2);
    server.recover().unwrap();
    server.check();
}

#[test]
fn an_older_copy_of_the_log_cuts_nothing() {
    for seed in 0..20 {
        older_copy(seed, 2, false);
        older_copy(seed, 0, true);
        older_copy(seed, 1, true);
    }
}

/// At most one group is cut, and it stays beside the file.
#[test]
fn what_is_cut_is_kept() {
    let mut server = server(3);
    server.binlog.sync_step().unwrap();
    let mut tail = super::tests::event(&mut server.rng, 162, 20);
    tail[31] &= !2;
    tail.extend(super::tests::event(&mut server.rng, 16, 8));
    let end = server.content().bytes.len();
    server.file().unwrap().write_at(&tail, end as u64).unwrap();
    server.file().unwrap().sync().unwrap();
    let name = server.current.clone();
    for life in 0..2 {
        server.os.crash();
        server.open().unwrap();
        let done = server.start().unwrap();
        assert_eq!(done.notes.len(), 1 - life, "{done:?}");
        assert_eq!(server.bytes_of(&name).len(), end);
        assert_eq!(server.bytes_of(&format!("{name}.cut-{end}")), tail);
    }
}

/// Groups that did not wait for the log may be lost from it, and only those.
#[test]
fn relaxed_groups_may_be_cut() {
    for is_relaxed in [false, true] {
        let mut server = server(9);
        server.durable = !is_relaxed;
        server.transaction(40).unwrap();
        server.checkpoint().unwrap();
        let (copy, note, anchor) = (copy_log(&server), server.note.clone(), server.anchor);
        for _ in 0..3 {
            server.transaction(40).unwrap();
        }
        server.file().unwrap().sync().unwrap();
        server.os.crash();
        put_back(&server, &copy);
        (server.note, server.anchor) = (note, anchor);
        assert_eq!(attempt(&mut server, files()).is_ok(), is_relaxed);
    }
}

/// Abandoned files are left as they are. The log's knowledge of transactions is used.
#[test]
fn abandoned_files_are_left_alone_and_their_transactions_committed() {
    let mut server = server(4);
    let xid = server.xids.last().unwrap().0;
    server.os.crash();
    move_all(&server, "/bin.", "/away.");
    server.open().unwrap();
    let setting = Setting { files: files(), may_abandon: true, ..Setting::default() };
    let done = server.binlog.start(setting).unwrap();
    assert!(done.is_aside && done.known.is_err() && done.files == 0, "{done:?}");
    assert_eq!(server.binlog.decide(xid, Lsn::ZERO), Decision::Commit);
    assert_eq!(server.binlog.decide(1 << 60, Lsn(u64::MAX)), Decision::Unknown);
    assert_eq!(server.binlog.note_and_pin().1, None);
    // The next start knows nothing of it any more.
    move_all(&server, "/away.", "/bin.");
    server.checkpoint().unwrap();
    let done = attempt(&mut server, files()).unwrap();
    assert_eq!((done.files, done.completed_bytes), (0, 0));
}

/// RESET MASTER removes the files and then the index, and goes on with a new one.
#[test]
fn a_crash_in_reset_master_is_no_missing_volume() {
    for steps in 1..4 {
        let mut server = server(6);
        for name in &server.index {
            server.os.remove(Path::new(name)).unwrap();
        }
        super::files::replace(&*server.os, Path::new(INDEX), b"").unwrap();
        if steps > 1 {
            // Before the index names the new file; the name of an old one is used again.
            let header = server.header(&[]);
            let mode = OpenMode { create: true, direct: false };
            let file = server.os.open(Path::new("/bin.000001"), mode).unwrap();
            file.write_at(&header, 0).unwrap();
            if steps > 2 {
                server.binlog.opened("/bin.000001", header.len() as u64).unwrap();
            }
        }
        server.os.sync_dir(Path::new("/")).unwrap();
        server.os.crash();
        server.open().unwrap();
        let done = server.start().unwrap();
        assert_eq!((done.files, done.warnings), (0, Vec::new()));
    }
}

/// A server without the plugin wrote to the binlog while the log held its end.
#[test]
fn events_of_a_start_without_the_plugin_are_not_passed_over() {
    let mut server = server(5);
    let current = server.current.clone();
    let synced = server.content().bytes.len() - 60;
    server.file().unwrap().set_len(synced as u64).unwrap();
    start_without_plugin(&mut server).unwrap();
    let name = server.index.last().unwrap().clone();
    let tail = super::tests::event(&mut server.rng, 2, 30);
    let file = server.os.open(Path::new(&name), OpenMode::default()).unwrap();
    file.write_at(&tail, file.len().unwrap()).unwrap();
    server.checkpoint().unwrap();
    let done = attempt(&mut server, files());
    assert!(matches!(done, Err(Error::Refused(_))), "{done:?}");
    assert_eq!(server.bytes_of(&current).len(), synced);
    assert!(server.binlog.note_and_pin().1.is_some());
}

/// With the bug planted, the tests above find it.
fn finds(bug: Bug, look: impl Fn(u64)) {
    plant(Some(bug));
    let found = (0..60).any(|seed| catch_unwind(AssertUnwindSafe(|| look(seed))).is_err());
    plant(None);
    assert!(found, "{bug:?} was not found");
}

fn fails_once(seed: u64, fault: Fault) {
    fail_everywhere(seed, None, Failure::Call(fault));
}

#[test]
fn planted_bugs_of_the_start_are_found() {
    finds(Bug::RefusedIsSettled, |seed| run(seed, OtherBase));
    finds(Bug::CutUnseen, |seed| older_copy(seed, 3, false));
    finds(Bug::IndexLate, |seed| cut_everywhere(seed, Some(NoPlugin)));
    finds(Bug::ClosedBeforeState, |seed| cut_everywhere(seed, None));
    finds(Bug::MarkLate, |seed| run(seed, MissingVolume));
    finds(Bug::SettledBeforeSync, |seed| fails_once(seed, Fault::IoError));
    finds(Bug::SettledBeforeSync, |seed| cut_everywhere(seed, None));
    finds(Bug::NotedUnsynced, synced_and_crashed);
    finds(Bug::OlderFileUnseen, |seed| older_file(seed).check());
}

/// A sync that the log notes, with groups before and after it.
fn server_that_synced(seed: u64) -> Server {
    let mut server = server(seed);
    for _ in 0..6 {
        server.transaction(400).unwrap();
    }
    server.binlog.sync_step().unwrap();
    // One at least makes the record of that durable.
    for _ in 0..1 + server.rng.below(3) {
        server.transaction(100).unwrap();
    }
    server
}

fn synced_and_crashed(seed: u64) {
    let mut server = server_that_synced(seed);
    server.restart();
    server.check();
}

#[test]
fn what_was_synced_is_not_compared() {
    for seed in 0..40 {
        let mut server = server_that_synced(seed);
        server.os.crash();
        server.os.sync_dir(Path::new("/")).unwrap();
        server.open().unwrap();
        let recovered = server.binlog.recovered.lock().clone().unwrap();
        let synced = recovered.synced.expect("the last sync is in the log");
        assert!(recovered.first_lsn.is_some_and(|first| first < synced.before), "seed {seed}");
        let current = server.current.clone();
        let file = server.os.open(Path::new(&current), OpenMode::default()).unwrap();
        assert!(file.len().unwrap() >= synced.pos);
        server.start().unwrap();
        server.check();
        synced_and_crashed(seed);
    }
}

/// The file is cut to an older length after a sync that the log notes, and completed.
fn older_file(seed: u64) -> Server {
    let mut server = server(seed);
    server.rotate().unwrap();
    server.binlog.sync_step().unwrap();
    let old = server.file().unwrap().len().unwrap();
    for _ in 0..6 {
        server.transaction(400).unwrap();
    }
    server.binlog.sync_step().unwrap();
    server.transaction(100).unwrap();
    server.os.crash();
    server.os.sync_dir(Path::new("/")).unwrap();
    let (file, old) = (server.file().unwrap(), old + server.rng.below(1000));
    if file.len().unwrap() > old {
        file.set_len(old).unwrap();
    }
    server.recover().unwrap();
    server
}

#[test]
fn a_file_that_was_put_back_is_completed_from_where_it_ends() {
    (0..40).for_each(|seed| older_file(seed).check());
}
