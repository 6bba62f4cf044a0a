//! What a commit waits for, and what a power cut can lose: W09, W10.

use super::facts::Facts;
use super::Severity::{Note, Warning};
use super::{Advice, Rule};
use crate::host;

pub const RULES: [Rule; 3] = [w09, w10, one_flush];

/// Redo of InnoDB below this many bytes a commit is not that of its tables.
const IDLE_REDO_BYTES: f64 = 64.0;

/// The variable of an engine that says when its log is flushed, and what values other than 1 lose.
struct EngineLog {
    variable: &'static str,
    is_durable: fn(&Facts, f64) -> bool,
    loses: fn(f64) -> &'static str,
}

const LAST_SECOND: &str = "a power cut loses up to the last second of commits";
const LAST_SECOND_OF_CRASH: &str = "a crash of the server loses up to the last second of commits";

/// InnoDB and Sluice: 2 leaves what was written to the operating system, 0 does not even write it.
fn after_a_second(value: f64) -> &'static str {
    if value == 2.0 {
        LAST_SECOND
    } else {
        LAST_SECOND_OF_CRASH
    }
}

const ENGINES: [EngineLog; 3] = [
    // 3 flushes once more, at prepare (MariaDB).
    EngineLog {
        variable: "innodb_flush_log_at_trx_commit",
        is_durable: |_, value| value == 1.0 || value == 3.0,
        loses: after_a_second,
    },
    EngineLog {
        variable: "sluice_flush_log_at_trx_commit",
        is_durable: |facts, value| value == 1.0 || groups_flush_the_log(facts),
        loses: after_a_second,
    },
    EngineLog {
        variable: "rocksdb_flush_log_at_trx_commit",
        is_durable: |_, value| value == 1.0,
        loses: |value| match value == 2.0 {
            true => LAST_SECOND,
            false => "a power cut loses the commits that the operating system had not written",
        },
    },
];

/// See docs/binlog.md.
fn binlog_is_in_log(facts: &Facts) -> bool {
    facts.after.count("sluice_binlog_in_log") == 1.0
}

/// The end of each group of the binlog flushes Sluice's log, which has both.
fn groups_flush_the_log(facts: &Facts) -> bool {
    let asked = facts.variable("sync_binlog") != 0.0
        || facts.variable("sluice_flush_log_at_trx_commit") == 1.0;
    facts.binlog() && binlog_is_in_log(facts) && asked
}

fn binlog_is_durable(facts: &Facts) -> bool {
    let synced = facts.variable("sync_binlog") == 1.0;
    !facts.binlog() || synced || groups_flush_the_log(facts)
}

fn is_durable(facts: &Facts) -> bool {
    let innodb = &ENGINES[0];
    (innodb.is_durable)(facts, facts.variable(innodb.variable)) && binlog_is_durable(facts)
}

/// Flushes that a group of commits waits for, one after the other.
fn flushes_per_group(facts: &Facts) -> u32 {
    let commits = facts.delta("binlog_commits").max(1.0);
    let innodb_idles = facts.delta("innodb_os_log_written") / commits < IDLE_REDO_BYTES;
    match facts.binlog() {
        true if !(binlog_is_in_log(facts) && innodb_idles) => 2,
        _ => 1,
    }
}

fn w09(facts: &Facts) -> Option<Advice> {
    let measured = facts.probe.as_ref().and_then(|p| host::quantile(&p.flush_4k_us, 0.99));
    let p99_us = measured.or(facts.log_sync_s.map(|s| s * 1e6))?;
    if p99_us <= 500.0 || !is_durable(facts) || facts.commits_per_s() < 1.0 {
        return None;
    }
    let source = match measured {
        Some(_) => "measured on the storage (99th percentile)",
        None => "mean of the log file in performance_schema",
    };
    Some(
        Advice::new("W09", Warning, 0.6, "Flushes of the disk are slow, and commits wait for them")
            .because(format!(
                "{p99_us:.0} us a flush, {source}; {:.0} commits a second, each waits for {}",
                facts.commits_per_s(),
                flushes_per_group(facts)
            ))
            .expect("storage with power-loss protection answers flushes in 20 to 100 us")
            .change("a drive with power-loss protection (capacitors)")
            .change("more sessions per group: binlog_commit_wait_count and binlog_commit_wait_usec (MariaDB) trade latency for fewer flushes and keep every commit durable"),
    )
}

/// W09 as well: what one flush instead of two is worth, where flushes are fast enough already.
fn one_flush(facts: &Facts) -> Option<Advice> {
    let waits_twice = w09(facts).is_none() && is_durable(facts) && flushes_per_group(facts) == 2;
    (waits_twice && facts.commits_per_s() >= 100.0).then(|| {
        let groups = facts.delta("binlog_commits") / facts.delta("binlog_group_commits").max(1.0);
        Advice::new("W09", Note, 0.3, "Every group of commits waits for two flushes")
            .because(format!(
                "binlog and log are both flushed at commit; {:.0} commits a second, {groups:.1} a group",
                facts.commits_per_s()
            ))
            .expect("an engine that needs one flush was worth 1.4 to 1.8 times the TPS of single-row updates where this was imitated (docs/advise.md), if flushes and not the processor are the limit")
            .change("nothing on this server by itself")
    })
}

/// The logs of the engines that are there, with the values of their variables.
fn engine_logs(facts: &Facts) -> Vec<(&'static EngineLog, f64)> {
    let value_of =
        |log: &'static EngineLog| facts.variables.number(log.variable).map(|value| (log, value));
    ENGINES.iter().filter_map(value_of).collect()
}

fn settings(facts: &Facts) -> String {
    let logs = engine_logs(facts);
    let mut all: Vec<String> =
        logs.iter().map(|(log, value)| format!("{} = {value}", log.variable)).collect();
    all.push(format!("sync_binlog = {}", facts.variable("sync_binlog")));
    all.push(match (facts.binlog(), binlog_is_in_log(facts)) {
        (false, _) => "binlog off".to_string(),
        (true, false) => "binlog on".to_string(),
        (true, true) => "binlog in the log of Sluice".to_string(),
    });
    all.join(", ")
}

/// Variables to set to 1, and what is lost until then.
fn losses(facts: &Facts) -> Vec<(&'static str, String)> {
    let mut losses: Vec<(&'static str, String)> = engine_logs(facts)
        .into_iter()
        .filter(|(log, value)| !(log.is_durable)(facts, *value))
        .map(|(log, value)| (log.variable, format!("{}: {}", log.variable, (log.loses)(value))))
        .collect();
    if !binlog_is_durable(facts) {
        let amount = match facts.variable("sync_binlog") as i64 {
            0 => "what the operating system had not written (up to 30 s by default)".to_string(),
            n => format!("up to {n} groups of commits"),
        };
        let text = format!("a power cut loses from the binlog {amount}; replicas may then differ");
        losses.push(("sync_binlog", text));
    }
    losses
}

fn w10(facts: &Facts) -> Option<Advice> {
    let losses = losses(facts);
    if engine_logs(facts).is_empty() || losses.is_empty() {
        return None;
    }
    let change: Vec<String> =
        losses.iter().map(|(name, _)| format!("SET GLOBAL {name} = 1;")).collect();
    let mut lost: Vec<&str> = losses.iter().map(|(_, text)| text.as_str()).collect();
    let innodb = ENGINES[0].variable;
    if facts.binlog() && binlog_is_durable(facts) && losses.iter().any(|(name, _)| *name == innodb)
    {
        lost.push(
            "the binlog and the replicas keep what InnoDB then lacks: compare the tables after a crash",
        );
    }
    let advice = Advice::new("W10", Warning, 0.1, "Commits are not durable")
        .because(settings(facts))
        .expect("no speed: this is what the present speed costs")
        .change(format!(
            "{} -- if the loss below is not acceptable; commits then wait for the disk",
            change.join(" ")
        ))
        .dynamic(true)
        .risk(&lost.join("; "));
    Some(losses.iter().fold(advice, |advice, (name, _)| advice.set(name, 1)))
}
