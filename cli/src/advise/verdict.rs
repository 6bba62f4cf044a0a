//! The gains of three changes: storage with atomic page writes, one flush per commit, Sluice.

use super::facts::Facts;
use super::rules_pages::atomic_pages;
use serde_json::{json, Value};

const TABLES: usize = 10;

/// (what, answer, why)
pub fn verdicts(facts: &Facts) -> Vec<(&'static str, &'static str, String)> {
    let writes = facts.writes_per_s();
    let reads = facts.rate("com_select");
    let read_share = reads / (reads + writes).max(1e-9);
    let lock_share = facts.delta("innodb_row_lock_time") / 1000.0 / facts.seconds.max(0.001);
    let cpu_share =
        facts.cpu_s.map(|s| s / facts.seconds.max(0.001) / facts.processors.max(1) as f64);
    let mut against = Vec::new();
    if writes < 1.0 {
        against.push("hardly anything is written".to_string());
    } else if read_share > 0.9 {
        against.push(format!("{:.0} % of the statements only read", read_share * 100.0));
    }
    if lock_share > 1.0 {
        against.push(format!("{lock_share:.1} sessions on average wait for row locks"));
    }
    if let Some(share) = cpu_share.filter(|share| *share > 0.85) {
        against.push(format!("the processors are {:.0} % busy", share * 100.0));
    }
    let blocked = (!against.is_empty()).then(|| against.join("; "));
    let judged = |applies: bool, yes: &str, no: &str| match (&blocked, applies) {
        (_, false) => ("no", no.to_string()),
        (Some(why), true) => ("little", why.clone()),
        (None, true) => ("yes", yes.to_string()),
    };
    let twice = facts.rate("innodb_dblwr_pages_written") > 0.0;
    let durable = facts.variable("innodb_flush_log_at_trx_commit") == 1.0
        && facts.variable("sync_binlog") == 1.0;
    let innodb = facts.tables.iter().any(|t| t.engine == "InnoDB");
    let proven = match atomic_pages(facts) {
        Some(_) => "pages are written twice, and this storage can do without",
        None => "pages are written twice; it needs storage with atomic page writes",
    };
    let row = |name, (answer, why)| (name, answer, why);
    vec![
        row(
            "Optimized Writes",
            judged(twice, proven, "no page went through the doublewrite buffer in the sample"),
        ),
        row(
            "one flush per commit",
            judged(
                facts.binlog() && durable,
                "each group of commits flushes the binlog and the log",
                "binlog and log are not both flushed at commit",
            ),
        ),
        row(
            "Sluice",
            judged(innodb, "there are InnoDB tables that are written", "there is no InnoDB table"),
        ),
    ]
}

pub fn tables(facts: &Facts) -> Vec<Value> {
    let table = |t: &super::facts::TableFact| {
        let innodb = t.engine == "InnoDB";
        let sluice = match (t.engine.as_str(), t.special) {
            ("InnoDB" | "ROCKSDB", false) => "possible",
            ("InnoDB" | "ROCKSDB", true) => "no: foreign key, FULLTEXT or SPATIAL",
            ("Sluice", _) => "is one",
            _ => "no: not a transactional table today",
        };
        json!({
            "table": t.name, "engine": t.engine, "bytes": t.data_bytes + t.index_bytes,
            "optimized_writes": if innodb { "yes" } else { "no: only InnoDB writes pages twice" },
            "sluice": sluice,
        })
    };
    facts.tables.iter().take(TABLES).map(table).collect()
}
