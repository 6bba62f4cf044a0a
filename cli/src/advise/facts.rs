//! What the rules judge by: two samples of the counters and what else can be read.

use super::AdviseArgs;
use crate::db::{Client, Counters, Dsn, Row};
use crate::host::{self, Device, DeviceCounters, Mount, Probe, ProcessCounters};
use crate::{signals, Result};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Tables that are read for `--sample-rows`, and rows of each.
const SAMPLED_TABLES: usize = 3;
const SAMPLED_ROWS: usize = 500;
const SCHEMAS: &str = "('mysql', 'information_schema', 'performance_schema', 'sys')";

#[derive(Clone, Debug, Default)]
pub struct TableFact {
    pub name: String,
    pub engine: String,
    pub rows: f64,
    pub data_bytes: f64,
    pub index_bytes: f64,
    pub has_key: bool,
    /// Type of the first column of the primary key.
    pub key_type: String,
    /// Foreign keys, FULLTEXT or SPATIAL: what Sluice refuses.
    pub special: bool,
    /// Share that LZ4 keeps of sampled rows.
    pub compressed: Option<f64>,
}

#[derive(Default)]
pub struct Facts {
    pub variables: Counters,
    pub before: Counters,
    pub after: Counters,
    pub seconds: f64,
    pub tables: Vec<TableFact>,
    pub longest_transaction_s: Option<f64>,
    pub replica: Option<Row>,
    /// Event, how often, seconds: since the server's start.
    pub waits: Vec<(String, f64, f64)>,
    /// Mean seconds of a sync of the log's and the doublewrite's files.
    pub log_sync_s: Option<f64>,
    pub dblwr_sync_s: Option<f64>,
    pub local: bool,
    pub memory_bytes: Option<u64>,
    pub processors: usize,
    pub cpu_s: Option<f64>,
    pub device: Option<DeviceCounters>,
    pub rotational: Option<bool>,
    pub mount: Option<Mount>,
    pub space: Option<(u64, u64)>,
    /// Whether the drive is told what is free.
    pub trimmed: Option<bool>,
    /// Bytes by which the largest file of the binlog exceeds max_binlog_size. A transaction is
    /// never split, so the last one of that file has at least as many.
    pub binlog_excess_bytes: Option<f64>,
    /// Readers of the binlog that are not registered as replicas.
    pub other_readers: Option<f64>,
    pub probe: Option<Probe>,
    pub endurance_bytes: Option<f64>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

impl Facts {
    /// Growth of a counter during the sample.
    pub fn delta(&self, name: &str) -> f64 {
        self.after.since(&self.before, name)
    }

    pub fn rate(&self, name: &str) -> f64 {
        self.delta(name) / self.seconds.max(0.001)
    }

    pub fn variable(&self, name: &str) -> f64 {
        self.variables.count(name)
    }

    pub fn is_mariadb(&self) -> bool {
        self.variables.text("version").is_some_and(|v| v.contains("MariaDB"))
    }

    /// 10.11.18 is (10, 11, 18).
    pub fn version(&self) -> (u32, u32, u32) {
        let text = self.variables.text("version").unwrap_or_default();
        let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }

    pub fn binlog(&self) -> bool {
        self.variables.is_on("log_bin")
    }

    pub fn commits_per_s(&self) -> f64 {
        let groups = self.rate("binlog_commits");
        if groups > 0.0 {
            groups
        } else {
            self.rate("com_commit") + self.writes_per_s()
        }
    }

    pub fn writes_per_s(&self) -> f64 {
        ["com_insert", "com_update", "com_delete", "com_replace", "com_load"]
            .iter()
            .map(|name| self.rate(name))
            .sum()
    }

    pub fn page_bytes(&self) -> f64 {
        self.variables.number("innodb_page_size").unwrap_or(16384.0)
    }

    pub fn redo_capacity(&self) -> f64 {
        match self.variables.number("innodb_redo_log_capacity") {
            Some(bytes) => bytes,
            None => {
                let files = self.variables.number("innodb_log_files_in_group").unwrap_or(1.0);
                self.variable("innodb_log_file_size") * files.max(1.0)
            }
        }
    }

    /// Fast storage, by the disk's own word or by measurement; `None` when neither is known.
    pub fn is_ssd(&self) -> Option<bool> {
        let measured = self.probe.as_ref().and_then(|p| host::quantile(&p.flush_4k_us, 0.5));
        match (measured, self.rotational) {
            // No turning disk makes a write durable in two milliseconds without a cache.
            (Some(us), _) if us < 2000.0 => Some(true),
            (_, rotational) => rotational.map(|r| !r),
        }
    }
}

pub fn gather(dsn: &Dsn, args: &AdviseArgs) -> Result<Facts> {
    let mut client = Client::connect(dsn)?;
    let variables = client.variables()?;
    if !variables.has("version") {
        return Err("the server shows no variables".to_string());
    }
    let mut facts = Facts {
        before: client.status()?,
        processors: host::processors(),
        endurance_bytes: args.endurance_tb.map(|tb| tb * 1e12),
        ..Facts::default()
    };
    facts.variables = variables;
    let pid = host::process_of(&facts.variables);
    let data = pid.and(facts.variables.text("datadir").map(PathBuf::from));
    let device = data.as_deref().and_then(Device::of);
    let first = (pid.and_then(ProcessCounters::read), device.as_ref().and_then(|d| d.counters()));
    let begun = Instant::now();
    if !signals::sleep_until(begun + Duration::from_secs(args.interval)) {
        return Err("interrupted".to_string());
    }
    facts.after = client.status().map_err(|why| gone(dsn, &facts.before, why))?;
    facts.seconds = begun.elapsed().as_secs_f64();
    if facts.after.count("uptime") < facts.before.count("uptime") {
        return Err("the server was restarted during the sample".to_string());
    }
    facts.local = pid.is_some();
    if let Some(data) = &data {
        let cpu = pid.and_then(ProcessCounters::read).zip(first.0);
        facts.cpu_s = cpu.map(|(now, then)| now.cpu_s - then.cpu_s);
        let counters = device.as_ref().and_then(|d| d.counters()).zip(first.1);
        facts.device = counters.map(|(now, then)| now.since(&then));
        facts.rotational = device.as_ref().and_then(|d| d.rotational());
        facts.mount = host::mount_of(data);
        facts.space = host::statx::space(data);
        let mount = facts.mount.as_ref().zip(device.as_ref());
        facts.trimmed = mount.and_then(|(mount, device)| host::is_trimmed(mount, device));
        facts.memory_bytes = host::memory_bytes();
    } else {
        facts.missing.push(
            "the server's process is not visible here (another host, or no right to see it): no \
             device counters, CPU time, file system and memory"
                .to_string(),
        );
    }
    match &args.probe_dir {
        Some(dir) => facts.probe = Some(host::probe(dir, args.probe_mib as usize)?),
        None => facts.missing.push("the storage was not measured (see --probe-dir)".to_string()),
    }
    ask_more(&mut client, &mut facts, args);
    Ok(facts)
}

/// Why the connection of the first sample does not answer any more.
fn gone(dsn: &Dsn, before: &Counters, why: String) -> String {
    let again = Client::connect(dsn).and_then(|mut client| client.status());
    match again {
        Ok(now) if now.count("uptime") < before.count("uptime") => {
            "the server was restarted during the sample: ask again".to_string()
        }
        Ok(_) => format!("the connection was lost during the sample, the server is there: {why}"),
        Err(_) => format!("the server went away during the sample: {why}"),
    }
}

/// Questions that need rights; a refusal is noted.
fn ask_more(client: &mut Client, facts: &mut Facts, args: &AdviseArgs) {
    let mut missing = Vec::new();
    let mut partial = false;
    let mut ask = |what: &str, sql: &str| {
        client.rows(sql).map_err(|why| missing.push(format!("{what}: {why}"))).ok()
    };
    let trx = "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) AS s FROM \
               information_schema.innodb_trx";
    let rows = ask("running transactions", trx);
    facts.longest_transaction_s = rows.and_then(|rows| rows.first()?.get("s")?.parse().ok());
    let (major, minor, _) = facts.version();
    let renamed = !facts.is_mariadb() && (major, minor) >= (8, 4);
    let sql = if renamed { "SHOW REPLICA STATUS" } else { "SHOW SLAVE STATUS" };
    facts.replica = ask("replication", sql).and_then(|mut rows| rows.pop());
    if let Some(rows) = ask("tables", &tables_sql()) {
        facts.tables = rows.iter().map(table_fact).collect();
    }
    if facts.binlog() {
        ask_about_binlog(facts, &mut ask, renamed);
    }
    if let Some(grants) = ask("rights", "SHOW GRANTS") {
        let mut all = grants.iter().flat_map(|row| row.values());
        let sees = |grant: &String| {
            let global = grant.contains(" ON *.* ");
            global && (grant.contains("ALL PRIVILEGES") || grant.contains("SELECT"))
        };
        if !all.any(sees) {
            partial = true;
        }
    }
    if facts.variables.is_on("performance_schema") {
        ask_about_waits(facts, &mut ask);
    } else {
        missing.push("performance_schema is off: no waits and no latency of files".to_string());
    }
    if partial {
        missing.push(
            "tables without a right to them: this user has no SELECT on *.*, so that rules about \
             tables see only its own"
                .to_string(),
        );
    }
    if args.sample_rows {
        sample_tables(client, facts, &mut missing);
    }
    facts.missing.extend(missing);
}

/// Answers rows, or notes why there are none.
type Ask<'a> = dyn FnMut(&str, &str) -> Option<Vec<Row>> + 'a;

fn ask_about_binlog(facts: &mut Facts, ask: &mut Ask<'_>, renamed: bool) {
    let files = ask("files of the binlog", "SHOW BINARY LOGS").unwrap_or_default();
    let sizes = files.iter().filter_map(|row| row.get("file_size")?.parse::<f64>().ok());
    let limit = facts.variable("max_binlog_size");
    facts.binlog_excess_bytes = sizes.reduce(f64::max).map(|most| (most - limit).max(0.0));
    let readers = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE command LIKE \
                   'Binlog Dump%'";
    let readers = ask("readers of the binlog", readers);
    let readers = readers.and_then(|rows| rows.first()?.get("n")?.parse::<f64>().ok());
    let sql = if renamed { "SHOW REPLICAS" } else { "SHOW SLAVE HOSTS" };
    let replicas = ask("registered replicas", sql).map(|rows| rows.len() as f64);
    facts.other_readers = readers.zip(replicas).map(|(all, known)| (all - known).max(0.0));
}

fn ask_about_waits(facts: &mut Facts, ask: &mut Ask<'_>) {
    let waits = "SELECT event_name AS e, count_star AS n, sum_timer_wait / 1e12 AS s FROM \
                 performance_schema.events_waits_summary_global_by_event_name WHERE count_star \
                 > 0 AND event_name <> 'idle' ORDER BY sum_timer_wait DESC LIMIT 8";
    let rows = ask("waits", waits).unwrap_or_default();
    let number = |row: &Row, name: &str| row.get(name).and_then(|v| v.parse().ok());
    let wait = |row: &Row| Some((row.get("e")?.clone(), number(row, "n")?, number(row, "s")?));
    facts.waits = rows.iter().filter_map(wait).collect();
    let files = "SELECT event_name AS e, count_misc AS n, sum_timer_misc / 1e12 AS s FROM \
                 performance_schema.file_summary_by_event_name WHERE count_misc > 0";
    let rows = ask("file latency", files).unwrap_or_default();
    let mean = |part: &str| {
        let row = rows.iter().find(|row| row.get("e").is_some_and(|e| e.contains(part)))?;
        Some(number(row, "s")? / f64::max(number(row, "n")?, 1.0))
    };
    facts.log_sync_s = mean("innodb_log_file");
    facts.dblwr_sync_s = mean("dblwr");
}

fn tables_sql() -> String {
    format!(
        "SELECT CONCAT(t.table_schema, '.', t.table_name) AS name, t.engine AS engine, t.table_rows \
         AS num, t.data_length AS data_bytes, t.index_length AS index_bytes, (SELECT c.column_type \
         FROM information_schema.columns c JOIN information_schema.statistics s ON s.table_schema = \
         c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name WHERE \
         s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = \
         'PRIMARY' AND s.seq_in_index = 1 LIMIT 1) AS key_type, (SELECT COUNT(*) FROM \
         information_schema.statistics s WHERE s.table_schema = t.table_schema AND s.table_name = \
         t.table_name AND s.index_type IN ('FULLTEXT', 'SPATIAL')) + (SELECT COUNT(*) FROM \
         information_schema.referential_constraints r WHERE r.constraint_schema = t.table_schema \
         AND r.table_name = t.table_name) AS special FROM information_schema.tables t WHERE \
         t.table_type = 'BASE TABLE' AND t.table_schema NOT IN {SCHEMAS} ORDER BY t.data_length + \
         t.index_length DESC LIMIT 200"
    )
}

fn table_fact(row: &Row) -> TableFact {
    let text = |name: &str| row.get(name).cloned().unwrap_or_default();
    let number = |name: &str| text(name).parse().unwrap_or(0.0);
    TableFact {
        name: text("name"),
        engine: text("engine"),
        rows: number("num"),
        data_bytes: number("data_bytes"),
        index_bytes: number("index_bytes"),
        has_key: row.contains_key("key_type"),
        key_type: text("key_type").to_lowercase(),
        special: number("special") > 0.0,
        compressed: None,
    }
}

fn sample_tables(client: &mut Client, facts: &mut Facts, missing: &mut Vec<String>) {
    for table in facts.tables.iter_mut().filter(|t| t.rows > 0.0).take(SAMPLED_TABLES) {
        let Some((schema, name)) = table.name.split_once('.') else { continue };
        let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
        let sql = format!("SELECT * FROM {}.{} LIMIT {SAMPLED_ROWS}", quoted(schema), quoted(name));
        match client.rows(&sql) {
            Ok(rows) => {
                let values = rows.iter().flat_map(|row| row.values());
                let bytes: Vec<u8> = values.flat_map(|value| value.bytes()).collect();
                table.compressed = lz4_share(&bytes);
            }
            Err(why) => missing.push(format!("rows of {}: {why}", table.name)),
        }
    }
}

/// What LZ4 keeps of pages of 16 KiB; `None` for less than one page.
fn lz4_share(bytes: &[u8]) -> Option<f64> {
    let pages: Vec<&[u8]> = bytes.chunks_exact(16384).collect();
    let kept: usize = pages.iter().map(|page| lz4_flex::block::compress(page).len()).sum();
    (!pages.is_empty()).then(|| kept as f64 / (pages.len() * 16384) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_estimated_by_page() {
        assert!(lz4_share(&[7; 40_000]).unwrap() < 0.1);
        assert_eq!(lz4_share(&[7; 100]), None);
    }
}
