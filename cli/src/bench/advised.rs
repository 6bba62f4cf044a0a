//! What `sluice advise` says of one private server under load, set on another.

use super::measure::Run;
use super::run::Bench;
use super::target::Target;
use super::tools;
use crate::db::{Client, Counters, Place};
use crate::{signals, Result};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Of load before the first sample, and between the two samples.
const BEFORE_S: u64 = 3;
const INTERVAL_S: u64 = 15;
/// Connecting, and measuring the storage.
const ADVISE_LIMIT: Duration = Duration::from_secs(INTERVAL_S + 60);

/// The workload that writes most.
fn workload(bench: &Bench) -> &str {
    let writes = bench.plan.workloads.iter().find(|name| name.ends_with("write_only"));
    writes.unwrap_or(&bench.plan.workloads[0])
}

/// Samples `from` under load with as many threads as will be measured, restarts all private
/// servers, `to` with the settings, and checks that the server has them.
pub fn advise(bench: &mut Bench, from: usize, to: usize) -> Result<Map<String, Value>> {
    let threads = bench.plan.threads.iter().copied().max().unwrap_or(1);
    let answer = asked_under_load(bench, from, threads)?;
    let wanted = settings_of(&answer);
    let before = Client::connect(&bench.targets[to].dsn)?.variables()?;
    let options: Vec<String> =
        wanted.iter().map(|(name, (value, _))| format!("{name}={value}")).collect();
    bench.targets[to].set_options(&options);
    let threads_max = bench.plan.threads_max();
    for target in bench.targets.iter_mut().filter(|target| target.dir.is_some()) {
        // All of them, so that none has a warmer pool than the others.
        target.stop()?;
        target.start(threads_max)?;
    }
    let after = Client::connect(&bench.targets[to].dsn)?.variables()?;
    let applied = wanted
        .iter()
        .map(|(name, (value, rule))| applied(name, value, rule, &before, &after))
        .collect::<Result<Vec<_>>>()?;
    Ok(Map::from_iter([
        ("from".to_string(), json!(bench.plan.targets[from].name)),
        ("workload".to_string(), json!(workload(bench))),
        ("threads".to_string(), json!(threads)),
        ("applied".to_string(), json!(applied)),
        ("answer".to_string(), answer),
    ]))
}

fn applied(
    name: &str,
    value: &str,
    rule: &str,
    before: &Counters,
    after: &Counters,
) -> Result<Value> {
    let now = after.text(name).unwrap_or_default();
    let same = match (now.parse::<f64>(), value.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => now.eq_ignore_ascii_case(value),
    };
    if !same {
        return Err(format!("{name} was set to {value}, the server has '{now}'"));
    }
    Ok(json!({"name": name, "before": before.text(name), "after": value, "rule": rule}))
}

/// Names, values and rules. Where two rules set the same, the larger number is taken.
fn settings_of(answer: &Value) -> BTreeMap<String, (String, String)> {
    let mut settings: BTreeMap<String, (String, String)> = BTreeMap::new();
    for advice in answer["advice"].as_array().into_iter().flatten() {
        let rule = advice["rule"].as_str().unwrap_or_default();
        for (name, value) in advice["settings"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
            match settings.get(name) {
                Some((other, _)) if number(other) >= number(&value) => {}
                _ => {
                    settings.insert(name.clone(), (value, rule.to_string()));
                }
            }
        }
    }
    settings
}

/// The options of an earlier answer, for a run that goes on.
pub fn options_of(line: &Value) -> Vec<String> {
    let option = |setting: &Value| {
        Some(format!("{}={}", setting["name"].as_str()?, setting["after"].as_str()?))
    };
    line["applied"].as_array().into_iter().flatten().filter_map(option).collect()
}

fn asked_under_load(bench: &Bench, from: usize, threads: u32) -> Result<Value> {
    let load = bench.measured(from, workload(bench), bench.plan.row_bytes[0]);
    let run = load.start(threads, (BEFORE_S + INTERVAL_S + 2) as u32)?;
    if !signals::sleep_until(Instant::now() + Duration::from_secs(BEFORE_S)) {
        return Err("interrupted".to_string());
    }
    let answer = ask(&bench.targets[from])?;
    let output = run.finish(Duration::from_secs(BEFORE_S + INTERVAL_S))?;
    output.failure.map_or(Ok(answer), Err)
}

fn ask(target: &Target) -> Result<Value> {
    let sluice = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let Place::Socket(socket) = &target.dsn.place else {
        return Err("only private servers are advised".to_string());
    };
    let dir = target.dir.as_deref().ok_or("only private servers are advised")?;
    let encoded = socket.to_string_lossy().replace('%', "%25").replace('&', "%26");
    let words = [
        sluice.display().to_string(),
        "advise".to_string(),
        format!("mysql://root@localhost/?socket={}", encoded.replace('?', "%3F")),
        "--json".to_string(),
        "--interval".to_string(),
        INTERVAL_S.to_string(),
        "--probe-dir".to_string(),
        dir.display().to_string(),
    ];
    let child = tools::command(&words, 0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run sluice advise: {e}"))?;
    let output = Run::of(child).finish(ADVISE_LIMIT)?;
    // It ends with 10 or 20 when there is something to advise.
    let line = output.text.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("sluice advise: {}", output.text.trim()))?;
    serde_json::from_str(line).map_err(|e| format!("sluice advise: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_answer() {
        let answer = json!({"advice": [
            {"rule": "W03", "settings": {"innodb_io_capacity": "1000", "a": "ON"}},
            {"rule": "W09", "settings": {}},
            {"rule": "W05", "settings": {"innodb_io_capacity": "400"}},
            {"rule": "W07"},
        ]});
        let settings = settings_of(&answer);
        assert_eq!(settings["innodb_io_capacity"], ("1000".to_string(), "W03".to_string()));
        assert_eq!(settings.len(), 2);
        let line = json!({"applied": [{"name": "a_b", "before": "1", "after": "2"}]});
        assert_eq!(options_of(&line), ["a_b=2"]);
    }

    #[test]
    fn what_the_server_did_not_take_is_an_error() {
        let (old, new) = (Counters::parse("a 1\nb OFF"), Counters::parse("a 5\nb ON"));
        assert!(applied("a", "5", "W01", &old, &new).is_ok());
        assert!(applied("b", "on", "W01", &old, &new).is_ok());
        assert!(applied("a", "6", "W01", &old, &new).unwrap_err().contains("'5'"));
    }
}
