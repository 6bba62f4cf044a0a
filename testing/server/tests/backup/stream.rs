//! Backups as streams: through pipes and files, compressed and not, and what goes wrong on the way.

use crate::case::{is_empty, Case};
use sluice_rig::tool::{is_silent_about, run, says, spawn, wait, Ended};
use std::fs::{self, File};
use std::process::{Command, Stdio};

/// A backup that goes to a file by standard output.
fn stream(case: &Case, name: &str, options: &[&str]) -> Ended {
    stream_to(case, File::create(case.to(name)).expect("a file"), options)
}

pub fn stream_to(case: &Case, file: File, options: &[&str]) -> Ended {
    let mut command = Command::new(&case.program);
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    command.args(["backup", &address, "--to", "-"]).args(options);
    let child = command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped()).spawn();
    wait(child.expect("a child"))
}

fn from_pipe(case: &Case, name: &str, to: &std::path::Path) -> Ended {
    let mut command = Command::new(&case.program);
    command.args(["restore", "--from", "-", "--to"]).arg(to);
    let file = File::open(case.to(name)).expect("a file");
    wait(
        command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child"),
    )
}

/// A line each second whose bytes and percents grow, to 100 % at the end; and the phases after it.
#[track_caller]
fn shows_progress(said: &str) {
    let places = |what: &str| said.lines().position(|line| line.starts_with(what));
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("pages and log: ")).collect();
    // As "pages and log: 12 of about 30 MiB (40 %), 10 MiB/s".
    let number = |line: &str, at: usize| -> u64 {
        let word = line.split_whitespace().nth(at).unwrap_or_default();
        word.trim_start_matches('(').parse().unwrap_or_else(|_| panic!("{line}"))
    };
    let shown: Vec<_> = lines.iter().map(|line| (number(line, 3), number(line, 8))).collect();
    assert!(shown.len() > 2 && shown.is_sorted_by_key(|(mib, _)| *mib), "{said}");
    assert!(shown.is_sorted_by_key(|(_, percent)| *percent), "{said}");
    let (first, last) = (shown[0], shown[shown.len() - 1]);
    assert!(first.0 < last.0 && first.1 < 100 && last.1 == 100, "{said}");
    let phases = ["pages and log: ", "waiting for DDL statements", "waiting for commits"];
    let phases = phases.map(|what| places(what).unwrap_or_else(|| panic!("no {what}: {said}")));
    assert!(phases.is_sorted(), "{said}");
}

#[test]
fn a_stream_is_a_backup() {
    let case = Case::with_tables("a_stream_is_a_backup");
    case.fill();
    case.d.run(&[
        "INSERT INTO w.s SELECT seq, 'some text that repeats itself' FROM w.seq_1_to_20000",
    ]);
    let sums = "CHECKSUM TABLE w.s, w.big, w.p, `odd-näme`.`t-1 ü`";
    let wanted = case.d.rows(sums);
    for (name, options) in [
        ("plain", &["--progress", "--rate-mib=10"][..]),
        ("packed", &["--compress", "--only-sluice"]),
    ] {
        let ended = stream(&case, name, options);
        match name {
            "plain" => shows_progress(&ended.err),
            _ => is_silent_about("MiB/s", &ended.err),
        }
        says("gtid_binlog_pos 0-1-", &ended.err);
        says("commits were held for", &ended.err);
        ended.ok();
        case.nothing_is_kept();
        let mut site = case.site(&format!("r{name}"));
        let restored = match name {
            "plain" => run(&mut case.restore(name, &site.data(""))),
            _ => from_pipe(&case, name, &site.data("")),
        };
        says("Sluice tables", &restored.ok());
        site.start(&[]);
        assert_eq!(site.rows(sums), wanted, "{name}");
        assert_eq!(site.value("CALL w.pr()"), "proc");
        site.stop();
    }
    // The last line comes, also where a second is not over.
    says("(100 %)", &stream(&case, "quick", &["--progress", "--rate-mib=none"]).err);
    let bytes = |name: &str| fs::metadata(case.to(name)).expect("a stream").len();
    assert!(bytes("packed") < bytes("plain"), "{} {}", bytes("packed"), bytes("plain"));
}

#[test]
fn a_bad_stream_leaves_nothing() {
    let case = Case::with_tables("a_bad_stream_leaves_nothing");
    case.fill();
    let target = case.to("target");
    let refused = |name: &str, why: &str| {
        from_pipe(&case, name, &target).refuses(why);
        assert!(is_empty(&target), "a half restore");
    };
    for (name, options) in [("plain", &[][..]), ("packed", &["--compress=1"])] {
        stream(&case, name, options).ok();
        let whole = fs::read(case.to(name)).expect("a stream");
        for keep in [0, 10, whole.len() / 2, whole.len() - 1] {
            fs::write(case.to("cut"), &whole[..keep]).expect("a stream");
            refused("cut", "the stream");
        }
        let mut changed = whole.clone();
        changed[whole.len() / 3] ^= 1;
        fs::write(case.to("changed"), &changed).expect("a stream");
        refused("changed", "stream");
    }
    fs::write(case.to("other"), [b'x'; 4096]).expect("a file");
    refused("other", "no stream of sluice backup");
    // A disk that gets full: a file that cannot grow.
    let plain = case.restore("plain", &target);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]);
    limited.arg(plain.get_program()).args(plain.get_args());
    run(&mut limited).refuses("the disk is full");
    assert!(is_empty(&target), "a half restore");
}

#[test]
fn a_reader_that_goes_away_ends_the_backup() {
    let case = Case::with_tables("a_reader_that_goes_away");
    case.fill();
    let address = format!("mysql://root@localhost/?socket={}", case.d.socket().display());
    let mut piped = Command::new("sh");
    let script =
        "{ \"$0\" backup \"$1\" --to - ; echo \"code $?\" >&2; } | head -c 100000 > /dev/null";
    piped.args(["-c", script]).arg(&case.program).arg(&address);
    let ended = wait(spawn(&mut piped));
    says("cannot write the stream", &ended.err);
    says("code 1", &ended.err);
    case.nothing_is_kept();
    run(&mut case.backup("b", &["--compress"])).refuses("--compress is for a stream");
    assert!(is_empty(&case.to("b")));
}
