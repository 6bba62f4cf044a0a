//! Rules about tables, transactions, replicas and memory: W13 to W15, W17, W21 to W24.

use super::facts::{Facts, TableFact};
use super::Severity::{Note, Warning};
use super::{Advice, Rule};

pub const RULES: [Rule; 10] = [w13, w14, w14_index, w15, w17, w21, w22, w22_image, w23, w24];

const GIB: f64 = 1073741824.0;
const NAMED_TABLES: usize = 5;

fn w13(facts: &Facts) -> Option<Advice> {
    let history = facts.after.count("innodb_history_list_length");
    let longest = facts.longest_transaction_s.unwrap_or(0.0);
    (history > 100_000.0 || longest > 3600.0).then(|| {
        Advice::new("W13", Warning, 0.4, "A long transaction keeps old versions")
            .because(format!("{history:.0} transactions wait for purge; the oldest transaction is {longest:.0} s old"))
            .expect("shorter chains of versions for readers, smaller undo; a rollback of a long InnoDB transaction takes about as long as it has been writing")
            .change("SELECT trx_mysql_thread_id, trx_started, trx_rows_modified FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 5; -- then commit it, or KILL it")
            .dynamic(true)
    })
}

fn names(tables: &[&TableFact]) -> String {
    let mut text =
        tables.iter().take(NAMED_TABLES).map(|t| t.name.clone()).collect::<Vec<_>>().join(", ");
    if tables.len() > NAMED_TABLES {
        text += &format!(" and {} more", tables.len() - NAMED_TABLES);
    }
    text
}

fn w14(facts: &Facts) -> Option<Advice> {
    let without: Vec<&TableFact> =
        facts.tables.iter().filter(|t| !t.has_key && t.engine != "MEMORY").collect();
    let random = |t: &&TableFact| {
        matches!(t.key_type.as_str(), "char(36)" | "varchar(36)" | "binary(16)" | "uuid")
    };
    let random: Vec<&TableFact> = facts.tables.iter().filter(random).collect();
    if without.is_empty() && random.is_empty() {
        return None;
    }
    let mut evidence = Vec::new();
    if !without.is_empty() {
        evidence.push(format!("no primary key: {}", names(&without)));
    }
    if !random.is_empty() {
        evidence.push(format!("a primary key that looks like a random UUID: {}", names(&random)));
    }
    Some(
        Advice::new("W14", Warning, 0.35, "Primary keys make writes dear")
            .because(evidence.join("; "))
            .expect("replicas find rows by key instead of by scan; ordered keys fill pages one after the other instead of touching one page per row")
            .change("ALTER TABLE ... ADD id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST; for UUIDs use ordered ones (version 7, or UUID() in MariaDB's UUID type)")
            .dynamic(true)
            .risk("ALTER TABLE may copy the table"),
    )
}

fn w14_index(facts: &Facts) -> Option<Advice> {
    let heavy = |t: &&TableFact| t.rows > 50_000.0 && t.index_bytes > 0.6 * t.data_bytes;
    let heavy: Vec<&TableFact> = facts.tables.iter().filter(heavy).collect();
    (!heavy.is_empty()).then(|| {
        Advice::new("W14", Note, 0.2, "Indexes are large against their data")
            .because(format!("more than 0.6 bytes of index per byte of data: {}", names(&heavy)))
            .expect("every index less is one page less to change per row, if queries do not need it")
            .change("SELECT * FROM sys.schema_unused_indexes; -- after a time that is typical of all queries")
            .dynamic(true)
    })
}

fn w15(facts: &Facts) -> Option<Advice> {
    let good = |t: &&TableFact| t.compressed.is_some_and(|kept| kept < 0.7);
    let good: Vec<&TableFact> = facts.tables.iter().filter(good).collect();
    (!good.is_empty()).then(|| {
        let part = |t: &&TableFact| {
            let kept = t.compressed.unwrap_or(1.0);
            format!("{}: LZ4 keeps {:.0} % of sampled rows, {:.2} GiB less", t.name, kept * 100.0, t.data_bytes * (1.0 - kept) / GIB)
        };
        Advice::new("W15", Note, 0.3, "Compression would save page writes")
            .because(good.iter().map(part).collect::<Vec<_>>().join("; "))
            .expect("fewer bytes by about that share, if the sampled rows are typical; LZ4 costs some microseconds of processor per page")
            .change("ALTER TABLE ... PAGE_COMPRESSED=1 (InnoDB, needs a file system that punches holes), or ENGINE=Sluice, which packs pages without holes")
            .risk("ALTER TABLE copies the table")
    })
}

fn w17(facts: &Facts) -> Option<Advice> {
    let (all, disk) = (facts.delta("created_tmp_tables"), facts.delta("created_tmp_disk_tables"));
    (all >= 20.0 && disk / all > 0.25).then(|| {
        let lower = facts.variable("tmp_table_size").min(facts.variable("max_heap_table_size"));
        let wanted = (lower * 4.0).min(256.0 * 1048576.0).max(lower);
        Advice::new("W17", Warning, 0.2, "Temporary tables go to disk")
            .because(format!("{disk:.0} of {all:.0} in the sample; the lower of the two limits is {:.0} MiB", lower / 1048576.0))
            .expect("fewer of them, if size is the reason. BLOB and TEXT columns, GROUP BY, DISTINCT or UNION columns over 512 bytes, SHOW and DESCRIBE go to disk whatever the limit")
            .change(format!("SET GLOBAL tmp_table_size = {wanted:.0}; SET GLOBAL max_heap_table_size = {wanted:.0};"))
            .set("tmp_table_size", wanted as u64)
            .set("max_heap_table_size", wanted as u64)
            .dynamic(true)
            .risk("memory for each session that needs it")
    })
}

fn w21(facts: &Facts) -> Option<Advice> {
    let inserts = facts.rate("com_insert");
    let rows = facts.rate("handler_write");
    let commits = facts.rate("handler_commit").min(facts.commits_per_s());
    // One row a statement, one statement a transaction, and little else.
    let single = inserts >= 500.0
        && rows < inserts * 1.5
        && commits > inserts * 0.9
        && inserts > facts.writes_per_s() * 0.9;
    single.then(|| {
        Advice::new("W21", Note, 0.5, "This looks like a load of single rows")
            .because(format!("{inserts:.0} INSERT statements a second, {rows:.0} rows, {commits:.0} commits"))
            .expect("if it is a bulk load: many rows per statement and per commit make it several times faster")
            .change("SET autocommit=0, foreign_key_checks=0, unique_checks=0 in the loading session; COMMIT every some thousand rows; all three back to 1 at the end")
            .dynamic(true)
            .risk("with the checks off, data that breaks a foreign or unique key is stored unnoticed: only for data known to be consistent; what is not committed is lost with the session")
    })
}

fn w22(facts: &Facts) -> Option<Advice> {
    let replica = facts.replica.as_ref()?;
    let workers = ["slave_parallel_threads", "replica_parallel_workers", "slave_parallel_workers"]
        .iter()
        .find_map(|name| facts.variables.number(name));
    let text = |names: [&str; 2]| names.iter().find_map(|n| replica.get(*n)).map(String::as_str);
    let mut evidence = Vec::new();
    let mut advice = Advice::new("W22", Warning, 0.45, "The replica can do better");
    if workers.is_some_and(|n| n <= 1.0) {
        let lag = text(["seconds_behind_master", "seconds_behind_source"]).unwrap_or("unknown");
        evidence.push(format!("one thread applies changes; {lag} s behind"));
        advice = advice.change(match facts.is_mariadb() {
            true => "STOP SLAVE; SET GLOBAL slave_parallel_threads = 4; SET GLOBAL slave_parallel_mode = optimistic; START SLAVE;",
            false => "STOP REPLICA; SET GLOBAL replica_parallel_workers = 4; START REPLICA;",
        });
    }
    if text(["using_gtid", "auto_position"]).is_some_and(|v| v == "No" || v == "0") {
        evidence.push("positions are not GTIDs".to_string());
        advice = advice.change(
            "CHANGE MASTER TO MASTER_USE_GTID = slave_pos; -- MariaDB, with the slave stopped",
        );
    }
    (!evidence.is_empty()).then(|| {
        advice
            .because(evidence.join("; "))
            .expect("less lag, if transactions are independent")
            .dynamic(true)
    })
}

/// A reader of the binlog that is no replica takes rows from it, and needs them whole.
fn w22_image(facts: &Facts) -> Option<Advice> {
    let readers = facts.other_readers.filter(|n| *n >= 1.0)?;
    let text = |name: &str| facts.variables.text(name).unwrap_or_default().to_uppercase();
    let (image, format) = (text("binlog_row_image"), text("binlog_format"));
    let mut evidence = Vec::new();
    let mut advice = Advice::new("W22", Warning, 0.1, "Change data capture gets incomplete rows");
    if image == "MINIMAL" || image == "NOBLOB" {
        evidence
            .push(format!("binlog_row_image = {image}: columns that did not change are missing"));
        advice = advice
            .change("SET GLOBAL binlog_row_image = FULL; -- for sessions that begin after it")
            .set("binlog_row_image", "FULL");
    }
    if !format.is_empty() && format != "ROW" {
        evidence.push(format!("binlog_format = {format}: some changes are statements, not rows"));
        advice = advice.change("SET GLOBAL binlog_format = ROW;").set("binlog_format", "ROW");
    }
    (!evidence.is_empty()).then(|| {
        advice
            .because(format!("{readers:.0} readers of the binlog are no registered replicas; {}", evidence.join("; ")))
            .expect("whole rows for those readers, if they capture changes; a backup of the binlog does not need them")
            .dynamic(true)
            .risk("more bytes in the binlog for each update")
    })
}

fn w23(facts: &Facts) -> Option<Advice> {
    let memory = facts.memory_bytes? as f64;
    let caches = [
        "innodb_buffer_pool_size",
        "rocksdb_block_cache_size",
        "sluice_buffer_pool_size",
        "key_buffer_size",
        "aria_pagecache_buffer_size",
        "innodb_log_buffer_size",
        "query_cache_size",
        "tokudb_cache_size",
    ];
    let fixed: f64 = caches.iter().map(|name| facts.variable(name)).sum();
    let each = [
        "sort_buffer_size",
        "join_buffer_size",
        "read_buffer_size",
        "read_rnd_buffer_size",
        "thread_stack",
        "binlog_cache_size",
    ];
    let each: f64 = each.iter().map(|name| facts.variable(name)).sum();
    let sessions = facts.after.count("max_used_connections").max(1.0);
    let total = fixed + each * sessions;
    (total > memory * 0.9).then(|| {
        Advice::new(
            "W23",
            Warning,
            0.3,
            "Caches of all engines and sessions may not fit into memory",
        )
        .because(format!(
            "caches {:.2} GiB, buffers of {sessions:.0} sessions {:.2} GiB, memory {:.2} GiB",
            fixed / GIB,
            each * sessions / GIB,
            memory / GIB
        ))
        .expect("no swapping, no kill by the kernel, if all of it were used at once")
        .change("lower the cache of the engine that has the least data")
        .dynamic(true)
    })
}

fn w24(facts: &Facts) -> Option<Advice> {
    let mixed = facts.delta("transactions_multi_engine");
    (mixed > 0.0).then(|| {
        Advice::new("W24", Note, 0.2, "Transactions change tables of several engines")
            .because(format!("{mixed:.0} in the sample"))
            .expect("each costs a two-phase commit between the engines, with flushes of its own")
            .change("keep tables that are changed together in one engine")
    })
}
