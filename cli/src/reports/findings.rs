//! Findings in sentences. A target is compared with the first one of its kind: with a binlog
//! or without, with a small pool or a large one.

use super::data::{
    device_bytes, process_bytes, seconds_column, text_of, tps, write_amplification, Cell, Figure,
    Results,
};
use serde_json::Value;

/// Below this a difference is not worth a word, however often it was measured.
const SMALL: f64 = 0.05;
/// A transaction below it wrote nothing of its own.
const WRITES_BYTES: f64 = 64.0;
const NO_BINLOG: &str = "-nobinlog";
/// With a pool larger than the data.
const MEMORY: &str = "-memory";
/// With and without a snapshot that is held.
const HELD: &str = "-held";
const FREE: &str = "-free";

pub fn sentences(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(advice(results));
    for (workload, row_bytes) in results.workloads() {
        for other in results.targets() {
            if let Some(base) = baseline(results, &other) {
                found.extend(compared(results, &workload, row_bytes, &other, &base));
            }
        }
        found.extend(binlog_costs(results, &workload, row_bytes));
        found.extend(amplification(results, &workload, row_bytes));
    }
    found.extend(measured_once(results));
    found.extend(jumps(results));
    found.extend(times(results, "load", "seconds", "Loading took"));
    found.extend(times(results, "restart", "restart_s", "After kill -9 the server answered in"));
    found.extend(results.of_kind("replica").map(replica));
    found.extend(shared_disk(results));
    for line in results.of_kind("absent") {
        found.push(format!(
            "{} was not measured: {}.",
            text_of(&line["target"]),
            text_of(&line["why"])
        ));
    }
    for line in results.failed() {
        found.push(format!("{} failed: {}.", text_of(&line["key"]), text_of(&line["failure"])));
    }
    found
}

/// What a target is compared with.
pub fn baseline(results: &Results, target: &str) -> Option<String> {
    if let Some(name) = target.strip_suffix(HELD) {
        let free = format!("{name}{FREE}");
        return results.targets().into_iter().find(|other| *other == free);
    }
    let same_kind = |name: &String| {
        [NO_BINLOG, MEMORY].iter().all(|kind| name.ends_with(kind) == target.ends_with(kind))
    };
    results.targets().into_iter().find(same_kind).filter(|base| base != target)
}

/// How one figure stands to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Differs(f64),
    /// The spreads of the repetitions overlap, or it is less than 5 %.
    Even(f64),
    /// One repetition: nobody knows the spread.
    Single(f64),
}

pub fn judged(a: Figure, b: Figure) -> Verdict {
    let ratio = a.median / b.median.max(f64::MIN_POSITIVE);
    if a.count.min(b.count) < 2 {
        return Verdict::Single(ratio);
    }
    let overlap = a.least <= b.most && b.least <= a.most;
    match overlap || (ratio - 1.0).abs() < SMALL {
        true => Verdict::Even(ratio),
        false => Verdict::Differs(ratio),
    }
}

/// Of TPS, for each number of threads that both were measured with.
pub fn verdicts(
    results: &Results,
    workload: &str,
    row_bytes: u64,
    target: &str,
    base: &str,
) -> Vec<(u64, Verdict)> {
    let cell = |target: &str, threads| Cell {
        target: target.to_string(),
        workload: workload.to_string(),
        row_bytes,
        threads,
    };
    let verdict = |threads: u64| {
        let ours = results.figure(&cell(target, threads), tps)?;
        Some((threads, judged(ours, results.figure(&cell(base, threads), tps)?)))
    };
    results.threads().into_iter().filter_map(verdict).collect()
}

/// One sentence over all numbers of threads.
fn compared(
    results: &Results,
    workload: &str,
    row_bytes: u64,
    target: &str,
    base: &str,
) -> Option<String> {
    let verdicts = verdicts(results, workload, row_bytes, target, base);
    let label = results.label(workload, row_bytes);
    let (mut differ, mut even, mut single) = (Vec::new(), Vec::new(), Vec::new());
    for (threads, verdict) in &verdicts {
        match verdict {
            Verdict::Differs(ratio) => differ.push(format!("{ratio:.2} times at {threads}")),
            Verdict::Even(ratio) => even.push(format!("{ratio:.2} at {threads}")),
            Verdict::Single(ratio) => single.push(format!("{ratio:.2} times at {threads}")),
        }
    }
    let mut parts = Vec::new();
    if !differ.is_empty() {
        parts.push(format!("{target} did {} threads the TPS of {base}", differ.join(", ")));
    }
    if !even.is_empty() {
        let who =
            if differ.is_empty() { format!("{target} and {base} show ") } else { String::new() };
        parts.push(format!(
            "{who}no difference beyond the spread of the repetitions (medians {} threads)",
            even.join(", ")
        ));
    }
    if !single.is_empty() {
        parts.push(format!("{target} did {} threads the TPS of {base} (once)", single.join(", ")));
    }
    (!parts.is_empty()).then(|| format!("{label}: {}.", parts.join("; ")))
}

fn measured_once(results: &Results) -> Option<String> {
    let mut repetitions = results.of_kind("point").map(|point| point["repetition"].as_u64());
    let first = repetitions.next()?;
    repetitions.all(|number| number == first).then(|| {
        "All of that was measured once: how far it varies from run to run is not known.".to_string()
    })
}

/// Where a target is there with and without binlog.
fn binlog_costs(results: &Results, workload: &str, row_bytes: u64) -> Vec<String> {
    let targets = results.targets();
    let cost = |target: &String| {
        let without = format!("{target}{NO_BINLOG}");
        if !targets.contains(&without) {
            return None;
        }
        let part = |(threads, verdict): (u64, Verdict)| {
            let percent = |ratio: f64| format!("{:.0} %", (1.0 - ratio) * 100.0);
            match verdict {
                Verdict::Differs(ratio) => format!("{} at {threads}", percent(ratio)),
                Verdict::Single(ratio) => format!("{} at {threads} (once)", percent(ratio)),
                Verdict::Even(ratio) => {
                    format!("nothing beyond the spread at {threads} (medians {})", percent(ratio))
                }
            }
        };
        let list = verdicts(results, workload, row_bytes, target, &without);
        let list: Vec<String> = list.into_iter().map(part).collect();
        let label = results.label(workload, row_bytes);
        (!list.is_empty()).then(|| {
            format!(
                "{label}: of the TPS of {target} the binlog costs, by threads: {}.",
                list.join("; ")
            )
        })
    };
    targets.iter().filter_map(cost).collect()
}

fn amplification(results: &Results, workload: &str, row_bytes: u64) -> Option<String> {
    let threads = results.threads().into_iter().max()?;
    let label = results.label(workload, row_bytes);
    let mut parts = Vec::new();
    for target in results.targets() {
        let cell = Cell { target, workload: workload.to_string(), row_bytes, threads };
        let name = &cell.target;
        let server = results.figure(&cell, process_bytes);
        let device = results.figure(&cell, device_bytes);
        let Some(bytes) = server.or(device).filter(|f| f.median >= WRITES_BYTES) else { continue };
        let times = match results.figure(&cell, write_amplification) {
            Some(f) => format!(", {:.0} times the row", f.median),
            None => String::new(),
        };
        let device = match (server, device) {
            (Some(_), Some(d)) => format!(" (the device {:.1} kB)", d.median / 1e3),
            _ => String::new(),
        };
        parts.push(format!("{name} {:.1} kB{times}{device}", bytes.median / 1e3));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "{label}: bytes written by the server per transaction at {threads} threads: {}.",
            parts.join("; ")
        )
    })
}

fn jumps(results: &Results) -> Option<String> {
    let first = results.of_kind("jump").next()?;
    let part = |line: &Value| {
        let seconds = seconds_column(&line["per_second"], 1);
        let (few, many) = seconds.split_at(seconds.len() / 2);
        let median = |rows: &[(f64, f64)]| Figure::of(rows.iter().map(|r| r.1).collect());
        // The seconds next to the jump belong to neither half.
        let few = median(few.get(..few.len().checked_sub(1)?)?)?;
        let many = median(many.get(1..)?)?;
        let name = text_of(&line["target"]);
        Some(format!("{name} from {:.0} to {:.0} TPS", few.median, many.median))
    };
    let parts: Vec<String> = results.of_kind("jump").filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "A jump from {} to {} threads within one run (medians of the seconds): {}.",
            first["from"],
            first["to"],
            parts.join("; ")
        )
    })
}

fn replica(line: &Value) -> String {
    let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
    let most = match line["lag_most_s"].as_f64() {
        Some(s) => format!(
            " was at most {s:.1} s and {:.0} transactions behind,",
            number("lag_most_transactions")
        ),
        None => String::new(),
    };
    format!(
        "The replica of {}{most} and had caught up {:.1} s after the end of {:.0} s of load ({:.0} TPS \
         on the primary, {} threads).",
        text_of(&line["target"]),
        number("behind_s"),
        number("load_s"),
        number("tps"),
        line["threads"]
    )
}

fn advice(results: &Results) -> Option<String> {
    let line = results.of_kind("advice").next()?;
    let applied = line["applied"].as_array()?;
    let part = |setting: &Value| {
        let text = |name: &str| text_of(&setting[name]);
        format!(
            "{} {} instead of {} ({})",
            text("name"),
            text("after"),
            text("before"),
            text("rule")
        )
    };
    let changed = |setting: &&Value| setting["before"] != setting["after"];
    let parts: Vec<String> = applied.iter().filter(changed).map(part).collect();
    let what = match parts.is_empty() {
        true => "no setting: 'advised' is the same as 'default'".to_string(),
        false => parts.join("; "),
    };
    Some(format!(
        "`sluice advise`, asked about {} under {} with {} threads, gave {what}.",
        text_of(&line["from"]),
        text_of(&line["workload"]),
        line["threads"]
    ))
}

/// The device's counters are of the whole disk.
fn shared_disk(results: &Results) -> Option<String> {
    let share = |line: &Value| {
        let process = line["process_written_bytes"].as_f64().filter(|n| *n > 0.0)?;
        Some(line["device"]["written_bytes"].as_f64()? / process)
    };
    let figure = Figure::of(results.of_kind("point").filter_map(share).collect())?;
    (figure.median > 1.5).then(|| {
        format!(
            "The disk got {:.1} times what the measured server wrote: the file system's own writes, \
             and those of other programs. Figures of the device (bytes, flushes, IOPS) are too high \
             by what others did.",
            figure.median
        )
    })
}

fn times(results: &Results, kind: &str, field: &str, verb: &str) -> Option<String> {
    let part = |line: &Value| {
        let several = results.plan_list("row_bytes").len() > 1;
        let size = match (line["mib"].as_u64(), line["row_bytes"].as_u64()) {
            (Some(mib), _) => format!(" after a transaction of {mib} MiB"),
            (None, Some(bytes)) if several => format!(" with rows of {bytes} B"),
            _ => String::new(),
        };
        Some(format!("{:.1} s for {}{size}", line[field].as_f64()?, text_of(&line["target"])))
    };
    let parts: Vec<String> = results.of_kind(kind).filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("{verb} {} (measured once).", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spreads_are_even() {
        let figure = |values: &[f64]| Figure::of(values.to_vec()).unwrap();
        let verdict = judged(figure(&[90.0, 100.0, 120.0]), figure(&[80.0, 85.0, 95.0]));
        assert!(matches!(verdict, Verdict::Even(ratio) if ratio > 1.17 && ratio < 1.18));
        let apart = judged(figure(&[200.0, 210.0]), figure(&[100.0, 105.0]));
        assert_eq!(apart, Verdict::Differs(205.0 / 102.5));
        let small = judged(figure(&[103.0, 103.1]), figure(&[100.0, 100.1]));
        assert!(matches!(small, Verdict::Even(_)), "apart, but too little to matter");
        assert_eq!(judged(figure(&[200.0]), figure(&[100.0])), Verdict::Single(2.0));
    }

    #[test]
    fn a_recorded_run_is_described() {
        let results = Results::parse(super::super::data::tests::RECORDED).unwrap();
        let found = sentences(&results);
        assert!(found.iter().any(|s| s.contains("TPS of")), "{found:?}");
        assert!(found.iter().any(|s| s.contains("bytes written by the server")), "{found:?}");
    }

    #[test]
    fn a_target_without_binlog_is_compared_with_its_like() {
        let text = super::super::data::tests::RECORDED;
        let config = text.lines().next().unwrap();
        let mut config: Value = serde_json::from_str(config).unwrap();
        let names = ["a", "b", "a-nobinlog", "b-nobinlog"];
        config["plan"]["targets"] = names.iter().map(|n| serde_json::json!({"name": n})).collect();
        let mut lines = vec![config.to_string()];
        let point = |target: &str, tps: f64, repetition: u64| {
            let workload = config["plan"]["workloads"][0].clone();
            serde_json::json!({"kind": "point", "target": target, "workload": workload, "row_bytes":
                config["plan"]["row_bytes"][0], "threads": config["plan"]["threads"][0],
                "tps": tps, "repetition": repetition})
            .to_string()
        };
        for (name, tps) in names.iter().zip([100.0, 300.0, 200.0, 200.5]) {
            lines.extend([point(name, tps, 1), point(name, tps + 1.0, 2)]);
        }
        let text = lines.join("\n") + "\n";
        let results = Results::parse(&text).unwrap();
        assert_eq!(baseline(&results, "b-nobinlog").as_deref(), Some("a-nobinlog"));
        assert_eq!(baseline(&results, "a"), None);
        let text = text.replace("a-nobinlog", "a-memory").replace("b-nobinlog", "b-memory");
        let large = Results::parse(&text).unwrap();
        assert_eq!(baseline(&large, "b-memory").as_deref(), Some("a-memory"));
        assert_eq!(baseline(&large, "b").as_deref(), Some("a"));
        let found = sentences(&results).join("\n");
        assert!(found.contains("of the TPS of a the binlog costs, by threads: 50 % at"), "{found}");
        assert!(
            found.contains("b did 3.00 times") || found.contains("b did 2.99 times"),
            "{found}"
        );
        assert!(found.contains("b-nobinlog and a-nobinlog show no difference"), "{found}");
    }
}
