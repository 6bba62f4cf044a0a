//! The presets of `sluice bench`, each in a form so small that its figures mean nothing: servers start,
//! are killed and removed, results and reports are complete.

use serde_json::Value;
use sluice_rig::suite;
use sluice_rig::tests;
use sluice_rig::tool::{
    ensure_package, is_silent_about, run, says, signal, spawn, wait, wait_until, Tool,
};
use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

struct World {
    tool: Tool,
}

fn main() -> ExitCode {
    let tests = tests![
        restart,
        rollback,
        old_snapshot,
        soak,
        interrupted_soak_cannot_go_on,
        replica_lag,
        replica_receive,
        large_rows,
        tpcc,
        reads_and_zipfian_keys,
        several_presets_have_a_directory_each,
        foreign_parameters_and_servers_are_refused,
    ];
    suite::run(&tests, || match ensure_package("sysbench") {
        true => Ok(World { tool: Tool::new("presets")? }),
        false => Err("no sysbench, and it cannot be installed".into()),
    })
}

impl World {
    fn bench(&self, preset: &str, args: &[&str]) -> Command {
        let mut command = self.tool.sluice(["bench", "run", "--preset", preset, "--out"]);
        command.arg(self.tool.work.join(preset));
        command.args(["--pool-mib=32", "--log-mib=64", "--settle=0"]).args(args);
        command
    }

    fn page(&self, preset: &str, name: &str) -> String {
        fs::read_to_string(self.tool.work.join(preset).join(name)).unwrap_or_default()
    }

    fn lines(&self, preset: &str, kind: &str) -> Vec<Value> {
        let text = self.page(preset, "results.jsonl");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == kind).collect()
    }

    /// Runs a preset; the answer is its trials, none of which failed.
    fn trials(&self, preset: &str, args: &[&str]) -> Vec<Value> {
        run(&mut self.bench(preset, args)).ok();
        let servers = self.tool.work.join(preset).join("servers");
        assert!(!servers.exists());
        let running = run(Command::new("ps").args(["-eo", "args"])).ok();
        is_silent_about(&format!("--datadir={}/", servers.display()), &running);
        let trials = self.lines(preset, "trial");
        assert!(trials.iter().all(|trial| trial["failure"].is_null()), "{trials:?}");
        for name in ["report.html", "report.md", "report.csv"] {
            assert!(!self.page(preset, name).is_empty(), "{name}");
        }
        trials
    }
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn restart(world: &mut World) {
    let args = ["--size-gb=0.002", "--when=commit,middle", "--change=insert,random_update"];
    let more = ["--tps-seconds=2", "--rows=200", "--only=sluice"];
    let trials = world.trials("restart", &[&args[..], &more].concat());
    assert_eq!(trials.len(), 4);
    for trial in &trials {
        assert!(number(trial, "answer_s") > 0.0 && number(trial, "empty_s") > 0.0);
        assert!(number(trial, "tps_before") > 0.0 && number(trial, "rows") == 8330.0);
    }
    says("| sluice | random_update | 0.002 | middle |", &world.page("restart", "report.md"));
    says("restart,sluice,1,", &world.page("restart", "trials.csv"));
}

fn rollback(world: &mut World) {
    let trials = world.trials("rollback", &["--rows=2000"]);
    assert_eq!(trials.len(), 6);
    for trial in &trials {
        assert!(number(trial, "rollback_ms") > 0.0 && number(trial, "updates_after") > 0.0);
        assert_eq!(trial["revert_s"].is_number(), trial["target"] == "sluice", "{trial}");
    }
}

fn old_snapshot(world: &mut World) {
    let args = ["--rows=500", "--tables=1", "--seconds=2", "--threads=2", "--repetitions=1"];
    world.trials("old-snapshot", &args);
    let points = world.lines("old-snapshot", "point");
    assert_eq!((points.len(), world.lines("old-snapshot", "hold").len()), (4, 2));
    let pinned = |name: &str| {
        let point = points.iter().find(|point| point["target"] == name).unwrap();
        number(&point["sizes"], "pin_snapshots_bytes") + number(&point["sizes"], "versions_moved")
    };
    assert!(pinned("sluice-held") > 0.0, "the snapshot holds something");
    says("## Under an old snapshot", &world.page("old-snapshot", "report.md"));
}

fn soak(world: &mut World) {
    let trials = world.trials("soak", &["--rows=500", "--seconds=4", "--repetitions=1"]);
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let rows = |name: &str| trial[name].as_array().map_or(0, Vec::len);
        let all = ["per_second", "probe_per_second", "sizes_per_second"].map(rows);
        assert!(all.iter().all(|count| (2..=5).contains(count)), "{all:?}");
        assert!(number(trial, "tps") > 0.0);
    }
    // All is measured: nothing happens.
    let again = world.trials("soak", &["--rows=500", "--seconds=4", "--repetitions=1"]);
    assert_eq!(again, trials);
}

fn interrupted_soak_cannot_go_on(world: &mut World) {
    let _ = fs::remove_dir_all(world.tool.work.join("soak"));
    let args = ["--rows=200", "--seconds=2", "--repetitions=30"];
    let bench = spawn(&mut world.bench("soak", &args));
    wait_until("a stretch", Duration::from_secs(120), || !world.lines("soak", "trial").is_empty());
    signal("TERM", bench.id());
    wait(bench).with_code(130);
    run(&mut world.bench("soak", &args)).refuses("cannot go on");
}

fn replica_lag(world: &mut World) {
    let args = ["--rows=300", "--tables=2", "--seconds=2", "--threads=2", "--apply-threads=2"];
    let trials = world.trials("replica-lag", &args);
    let engines: Vec<&Value> = trials.iter().map(|trial| &trial["replica"]).collect();
    assert_eq!(engines, ["Sluice", "InnoDB"]);
    assert!(trials.iter().all(|t| number(t, "tps") > 0.0 && number(t, "behind_s") >= 0.0));
    assert_eq!(world.lines("replica-lag", "point").len(), 1, "the primary alone");
}

fn replica_receive(world: &mut World) {
    let args = ["--rows=300", "--seconds=2", "--threads=2", "--receivers=0,2", "--repetitions=1"];
    let trials = world.trials("replica-receive", &args);
    let counts: Vec<f64> = trials.iter().map(|trial| number(trial, "receivers")).collect();
    assert_eq!(counts, [0.0, 2.0]);
    assert!(trials.iter().all(|t| number(t, "tps") > 0.0));
}

fn large_rows(world: &mut World) {
    let trials = world.trials("large-rows", &["--value-mib=3"]);
    assert_eq!(trials.len(), 2);
    assert!(number(&trials[1], "peak_insert_mib") >= number(&trials[1], "peak_before_mib"));
    says("## A table of 900 columns", &world.page("large-rows", "report.md"));
}

/// The second measurement finds a warehouse that no payment explains.
fn tpcc(world: &mut World) {
    let args = ["--warehouses=2", "--scale-percent=1", "--threads=4", "--repetitions=2"];
    let more = ["--seconds=3", "--warmup=0", "--only=innodb,sluice"];
    let bench = spawn(&mut world.bench("tpcc", &[&args[..], &more].concat()));
    let points = || world.lines("tpcc", "point");
    wait_until("both engines", Duration::from_secs(120), || points().len() >= 2);
    let socket = world.tool.work.join("tpcc/servers/innodb/mysql.sock");
    let mut client = Command::new(world.tool.prefix.root.join("usr/bin/mariadb"));
    client.args(["--no-defaults", "-uroot", "-S"]).arg(socket).arg("-e");
    run(client.arg("UPDATE sluice_bench_188.warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2")).ok();
    wait(bench).with_code(1);
    assert_eq!(points().len(), 4);
    for point in points() {
        assert!(number(&point["mix"], "new_order") > number(&point["mix"], "rolled_back"));
        let failure = point["failure"].as_str().unwrap_or_default();
        let is_damaged = point["target"] == "innodb" && point["repetition"] == 2;
        assert_eq!(failure.contains("condition 1 "), is_damaged, "{point}");
        assert_eq!(failure.is_empty(), !is_damaged, "{point}");
    }
}

fn reads_and_zipfian_keys(world: &mut World) {
    let args = ["--rows=500", "--threads=2", "--seconds=1", "--warmup=0", "--only=sluice"];
    let more = ["--rand-type=zipfian", "--row-bytes=512"];
    run(&mut world.bench("write-less", &[&args[..], &more].concat())).ok();
    let points = world.lines("write-less", "point");
    assert_eq!(points.len(), 4);
    assert!(points.iter().all(|p| p["row_bytes"] == 512 && number(p, "tps") > 0.0));
}

fn several_presets_have_a_directory_each(world: &mut World) {
    let args = ["--rows=100", "--tables=1", "--seconds=1", "--threads=1", "--repetitions=1"];
    let more = ["--only=sluice", "--workloads=oltp_insert"];
    let mut command =
        world.tool.sluice(["bench", "run", "--preset=oltp,commit", "--settle=0", "--out"]);
    command.arg(world.tool.work.join("two")).args(args).args(more);
    run(&mut command).ok();
    for preset in ["two/oltp", "two/commit"] {
        assert_eq!(world.lines(preset, "point").len(), 1);
        assert!(number(&world.lines(preset, "point")[0], "own_flushes") > 0.0);
    }
}

fn foreign_parameters_and_servers_are_refused(world: &mut World) {
    let refused = |preset: &str, arg: &str, why: &str| {
        run(&mut world.bench(preset, &[arg, "--dry-run"])).refuses(why);
    };
    refused("commit", "--size-gb=1", "no parameter");
    refused("restart", "--minutes=1", "no parameter");
    refused("rollback", "--only=postgres", "the targets are");
    refused("soak", "--target=a=mysql://u@127.0.0.1/", "needs private servers");
    refused("replica-lag", "--target=a=Sluice:skip_log_bin", "no replica");
    refused("oltp,commit", "--schema=x", "a comma");
    refused("oltp", "--rand-type=zipfian", "no zipfian keys");
    refused("oltp", "--warehouses=2", "no parameter");
    refused("tpcc", "--rows=100", "instead of");
    refused("tpcc", "--workloads=oltp_insert", "its only one");
    refused("no-such-preset", "--cold", "there are");
}
