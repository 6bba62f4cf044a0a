//! What a preset asks, where it comes from, and how far the run is from the published sizes.

use super::data::{text_of, Results};

/// Title, and what the evaluation is about.
fn preset(name: &str) -> (&'static str, &'static str) {
    match name {
        "optimized-writes" => (
            "Pages written once or twice",
            "After the evaluation of Amazon RDS Optimized Writes: what InnoDB gains without its \
             doublewrite buffer, and what engines do that never had one. innodb_doublewrite=0 is \
             safe only on storage that writes a page atomically; here it is switched off to be \
             measured. Published: sysbench write-only, 250 tables of 33 million rows, 1 to 1024 \
             threads, 20 minutes each, with and without binlog.",
        ),
        "enhanced-binlog" => (
            "What the binlog costs, and restarts after large transactions",
            "After the evaluation of the enhanced binlog of Amazon Aurora MySQL: throughput with \
             and without binlog, and the time from kill -9 right after the commit of one large \
             transaction to the first answer. Published: 25 to 4000 threads, means of 10 runs; \
             transactions of 1, 5 and 50 GB.",
        ),
        "binlog-in-redo" => (
            "One flush per commit instead of two",
            "After the evaluation of Binlog in Redo of AliSQL: sysbench update_non_index, insert \
             and write_only with every commit durable. sluice-off flushes the binlog and the log at \
             commit, as InnoDB does; sluice-on flushes its log only, which holds the binlog too.",
        ),
        "write-amplification" => (
            "Bytes written for each byte changed",
            "After the evaluation of the ScaleFlux CSD 2000: single-row changes of 188 and 512 \
             bytes on data larger than the pool, every commit durable, 24 threads; bytes written \
             for each byte of changed rows, by cause. Published: 200 GB of data, a pool of 32 GB.",
        ),
        "tuning" => (
            "The settings of `sluice advise`, before and after",
            "After the tuning guide of Amazon RDS for MySQL, and its method: sysbench read-only, \
             write-only and read-write before and after, durability unchanged. 'default' has the \
             settings the guide begins with, 'advised' those that `sluice advise` named when it \
             watched the default server under load, 'published' those of the guide. Published: 250 \
             tables of 25,000 rows, 64 to 512 threads, 20 minutes each.",
        ),
        _ => ours(name),
    }
}

/// Of our own measurements.
fn ours(name: &str) -> (&'static str, &'static str) {
    match name {
        "oltp" => (
            "Every OLTP workload of sysbench",
            "The stock workloads of sysbench, reads first, every commit durable.",
        ),
        "commit" => (
            "Commits and flushes",
            "Single-row commits, every one durable. sluice has the binlog in its log, sluice-off \
             flushes both at commit, as InnoDB does; those without a binlog show what is left when it \
             costs nothing.",
        ),
        "write-less" => (
            "Updates of data larger than the pool",
            "Single-row updates of data of ten times the pool, every commit durable, then reads of what \
             they left, five minutes for each engine after two minutes of warm-up: transactions, \
             latency, bytes and size.",
        ),
        "tpcc" => (
            "Orders and payments, like TPC-C",
            "The five transactions of TPC-C in its mix, every commit durable, without terminals and \
             waiting times: these are no TPC-C results. The pool of innodb and sluice is by default an \
             eighth of the data, that of the targets -memory is larger than the data. A measurement \
             counts only if the tables are consistent after it.",
        ),
        "restart" => (
            "Restart after a large transaction",
            "One transaction, kill -9 right after its commit or in its middle, and the time until the \
             server answers, less that of the same server with nothing in it. Each has a new server.",
        ),
        "old-snapshot" => (
            "Updates under an old snapshot",
            "The same updates on a server with a snapshot from before, and on one without, period by \
             period in turn: what it costs, and what is kept for it.",
        ),
        "rollback" => (
            "ROLLBACK of a large transaction",
            "The statement, the revert in the background, and what scans and updates of the same rows \
             meet meanwhile. Each has a new server.",
        ),
        "soak" => (
            "A long mixed load",
            "Data much larger than the pool, the servers in turn for a stretch each, watched second by \
             second.",
        ),
        "replica-lag" => (
            "A replica that applies",
            "How far a replica falls behind a Sluice primary under oltp_write_only, by its engine and \
             the threads that apply.",
        ),
        "replica-receive" => (
            "Replicas that receive",
            "The cost of replicas that receive and do not apply, for a Sluice primary.",
        ),
        "large-rows" => (
            "Large values and wide tables",
            "One large value and a table of 900 columns on a small pool, killed after the commit: is it \
             all there, and how much memory did it take?",
        ),
        "locks" => (
            "Locks of large transactions and of a hot row",
            "One UPDATE of all rows of a table while another session commits small updates of another \
             one: memory, and the longest of those commits. Then one row that many sessions update. Each \
             has a new server.",
        ),
        _ => ("A measurement of its own", ""),
    }
}

pub fn title(results: &Results) -> String {
    let name = text_of(&results.config["plan"]["preset"]);
    format!("{name}: {}", preset(&name).0)
}

pub fn paragraphs(results: &Results) -> Vec<String> {
    let plan = &results.config["plan"];
    let machine = &results.config["environment"]["machine"];
    let mut list = Vec::new();
    let about = preset(&text_of(&plan["preset"])).1;
    if !about.is_empty() {
        list.push(about.to_string());
    }
    let n = |name: &str| text_of(&plan[name]);
    list.push(format!(
        "Here: {}{}; pool {} MiB, log {} MiB. {}, {} processors that sysbench and the servers share, {:.0} GiB of memory, {}, file \
         system {}. {}.",
        load(results),
        match plan["repetitions"].as_u64() {
            Some(1) => "once".to_string(),
            count => format!("{} times in turns", count.unwrap_or(0)),
        },
        n("pool_mib"),
        n("log_mib"),
        text_of(&machine["cpu"]),
        machine["processors"],
        machine["memory_bytes"].as_f64().unwrap_or(0.0) / 1073741824.0,
        match machine["device"].as_str() {
            Some(device) => format!("device {device}"),
            None => "no block device of its own".to_string(),
        },
        text_of(&machine["file_system"]),
        storage(results),
    ));
    list.extend(targets(results));
    list
}

/// Tables and times, where they mean something.
fn load(results: &Results) -> String {
    let plan = &results.config["plan"];
    let n = |name: &str| text_of(&plan[name]);
    match plan["preset"].as_str() {
        Some("large-rows" | "restart") => String::new(),
        Some("tpcc") => format!(
            "{} warehouses at {} % of the specification's size, {} threads, {} s each after {} s of \
             warm-up, ",
            text_of(&plan["params"]["warehouses"]),
            text_of(&plan["params"]["scale_percent"]),
            results.plan_list("threads").join(", "),
            n("seconds"),
            n("warmup")
        ),
        Some("rollback" | "locks") => format!("{} rows, ", n("rows")),
        _ => format!(
            "{} tables of {} rows, {} threads, {} s each after {} s of warm-up, ",
            n("tables"),
            n("rows"),
            results.plan_list("threads").join(", "),
            n("seconds"),
            n("warmup")
        ),
    }
}

fn storage(results: &Results) -> String {
    let Some(line) = results.of_kind("storage").next() else {
        return "The storage was not measured".to_string();
    };
    let flush = &line["probe"]["flush_4k_us"];
    format!(
        "A write of 4 KiB with fdatasync takes {:.0} us (median; 99 % below {:.0} us) before the run",
        flush["median"].as_f64().unwrap_or(0.0),
        flush["p99"].as_f64().unwrap_or(0.0)
    )
}

/// What the targets have that others have not.
fn targets(results: &Results) -> Option<String> {
    let targets = results.config["plan"]["targets"].as_array()?;
    let part = |target: &serde_json::Value| {
        let options = target["options"].as_array()?;
        let options: Vec<String> =
            options.iter().map(|o| text_of(o).trim_start_matches("loose_").to_string()).collect();
        let with = match options.is_empty() {
            true => String::new(),
            false => format!(" with {}", options.join(" ")),
        };
        Some(format!("{} is {}{with}", text_of(&target["name"]), text_of(&target["engine"])))
    };
    let parts: Vec<String> = targets.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("Targets: {}.", parts.join("; ")))
}
