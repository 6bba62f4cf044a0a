//! Rules about logs and commits: W01, W02, W11, W12.

use super::facts::Facts;
use super::Severity::{Critical, Warning};
use super::{Advice, Rule};

pub const RULES: [Rule; 5] = [w01, w02, w11, w12, w12_large];

/// Above it a commit stops all others before MariaDB 11.7; from then on the default of
/// binlog_large_commit_threshold, above which it does not.
const LARGE_BYTES: f64 = 128.0 * MIB;

const MIB: f64 = 1048576.0;
const GIB: f64 = 1024.0 * MIB;
const REDO_MOST: f64 = 512.0 * GIB;

/// The next power of two MiB.
pub fn rounded_mib(bytes: f64) -> f64 {
    ((bytes / MIB).max(1.0).log2().ceil()).exp2() * MIB
}

/// A log that takes more than a quarter of what is free would fill the disk in its turn.
fn redo_room(facts: &Facts) -> f64 {
    let quarter = |(free, _): (u64, u64)| rounded_mib(free as f64 / 4.0 + 1.0) / 2.0;
    facts.space.map_or(f64::INFINITY, quarter)
}

fn w01(facts: &Facts) -> Option<Advice> {
    let capacity = facts.redo_capacity();
    let hour = facts.rate("innodb_os_log_written") * 3600.0;
    let age = facts.after.count("innodb_checkpoint_age");
    let age_share = age / facts.after.number("innodb_checkpoint_max_age").unwrap_or(f64::INFINITY);
    if capacity <= 0.0 || (hour <= capacity && age_share < 0.75) {
        return None;
    }
    let wanted = rounded_mib(hour.max(capacity * 1.01)).min(REDO_MOST).min(redo_room(facts));
    if wanted <= capacity {
        return None;
    }
    let (severity, gain) = if age_share >= 0.8 { (Critical, 0.8) } else { (Warning, 0.4) };
    let name = match facts.variables.has("innodb_redo_log_capacity") {
        true => "innodb_redo_log_capacity",
        false => "innodb_log_file_size",
    };
    let dynamic = match facts.is_mariadb() {
        true => facts.version() >= (10, 9, 0),
        false => name == "innodb_redo_log_capacity",
    };
    let advice = Advice::new("W01", severity, gain, "The redo log is too small")
        .because(format!(
            "{:.1} MiB of redo in {:.0} s are {:.2} GiB an hour; the log holds {:.2} GiB; checkpoint \
             age {:.0} % of its limit",
            facts.delta("innodb_os_log_written") / MIB,
            facts.seconds,
            hour / GIB,
            capacity / GIB,
            age_share * 100.0
        ))
        .expect(
            "fewer checkpoints, so fewer page writes, if this sample is typical of the peak; \
             recovery after a crash reads more log",
        )
        .dynamic(dynamic)
        .set(name, wanted as u64);
    Some(match dynamic {
        true => advice.change(format!("SET GLOBAL {name} = {wanted:.0};")),
        false => advice.change(format!("{name} = {wanted:.0} in the configuration, then restart")),
    })
}

fn w02(facts: &Facts) -> Option<Advice> {
    let waits = facts.rate("innodb_log_waits");
    let size = facts.variable("innodb_log_buffer_size");
    (waits > 0.0).then(|| {
        Advice::new("W02", Warning, 0.3, "Sessions wait for room in the log buffer")
            .because(format!("{waits:.2} waits a second with a buffer of {:.0} MiB", size / MIB))
            .expect("these waits end, if transactions larger than the buffer cause them")
            .change(format!("innodb_log_buffer_size = {:.0}", (size * 2.0).max(16.0 * MIB)))
            .set("innodb_log_buffer_size", (size * 2.0).max(16.0 * MIB) as u64)
            .dynamic(!facts.is_mariadb() && facts.version().0 >= 8)
    })
}

fn w11(facts: &Facts) -> Option<Advice> {
    let groups = facts.delta("binlog_group_commits");
    let per_group = facts.delta("binlog_commits") / groups.max(1.0);
    let running = facts.after.count("threads_running");
    (groups >= 10.0 && per_group < 1.2 && running >= 16.0).then(|| {
        Advice::new("W11", Warning, 0.5, "Commits hardly share flushes")
            .because(format!("{per_group:.2} commits a group with {running:.0} running threads"))
            .expect("fewer flushes per commit, if the writers are independent of each other")
            .change("SET GLOBAL binlog_commit_wait_count = 4; SET GLOBAL binlog_commit_wait_usec = 500;")
            .set("binlog_commit_wait_count", 4)
            .set("binlog_commit_wait_usec", 500)
            .dynamic(true)
            .risk("each commit may wait up to binlog_commit_wait_usec longer; nothing is lost")
    })
}

fn w12(facts: &Facts) -> Option<Advice> {
    let (uses, spills) = match facts.delta("binlog_cache_use") {
        uses if uses >= 100.0 => (uses, facts.delta("binlog_cache_disk_use")),
        _ => (facts.after.count("binlog_cache_use"), facts.after.count("binlog_cache_disk_use")),
    };
    let size = facts.variable("binlog_cache_size");
    (uses >= 20.0 && spills / uses > 0.05).then(|| {
        Advice::new("W12", Warning, 0.2, "Transactions spill from the binlog cache to disk")
            .because(format!(
                "{spills:.0} of {uses:.0} transactions, cache of {:.0} KiB",
                size / 1024.0
            ))
            .expect("their events are written once instead of twice")
            .change(format!(
                "SET GLOBAL binlog_cache_size = {:.0};",
                rounded_mib(size * 8.0).min(16.0 * MIB)
            ))
            .set("binlog_cache_size", rounded_mib(size * 8.0).min(16.0 * MIB) as u64)
            .dynamic(true)
            .risk("memory for each session that writes")
    })
}

/// A transaction so large that copying it into the binlog stops all other commits.
fn w12_large(facts: &Facts) -> Option<Advice> {
    let least = facts.binlog_excess_bytes?;
    let threshold = facts.variables.number("binlog_large_commit_threshold");
    let safe = threshold.is_some_and(|bytes| bytes <= LARGE_BYTES);
    if !facts.is_mariadb() || least < LARGE_BYTES || safe {
        return None;
    }
    let advice = Advice::new("W12", Warning, 0.4, "A large transaction stopped all other commits")
        .because(format!(
            "a file of the binlog is {:.0} MiB larger than max_binlog_size, and a transaction is never \
             split: its last one had at least as many",
            least / MIB
        ))
        .expect("no stall while it is copied into the binlog, if that was not the only one of its kind")
        .change("commit in pieces: one transaction of more than 128 MiB is copied while others wait");
    Some(match threshold {
        Some(bytes) => advice
            .change(format!(
                "SET GLOBAL binlog_large_commit_threshold = {LARGE_BYTES:.0}; -- now {bytes:.0}"
            ))
            .set("binlog_large_commit_threshold", LARGE_BYTES as u64)
            .dynamic(true),
        None => advice
            .change("from MariaDB 11.7 such a commit is a rename (binlog_large_commit_threshold)"),
    })
}
