//! `sluice-model`: predicts what the page store writes, by workload and policy. It runs no engine:
//! it counts what the engine's rules would write. docs/decisions/0025-owed-pages.md has its tables.

mod clock;
mod machine;
mod measure;
mod run;
mod sizes;
mod store;
mod tables;
mod tpcc;
mod workload;

use clap::Parser;
use run::Prediction;
use std::io::Write;

/// Predicts bytes written per transaction, by workload and policy of the page store
#[derive(Parser)]
struct Args {
    /// today, monte-carlo, window, built, victim, gc, codec, workloads, small-pool or deltas; without one, all
    #[arg(long, value_delimiter = ',')]
    table: Vec<String>,
    /// Another seed means other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead: what a transaction takes in the log of a stopped server, by kind and compressed
    #[arg(long, value_name = "DIR")]
    measure_log: Option<std::path::PathBuf>,
    /// With --measure-log: from this position on
    #[arg(long, default_value_t = 0, requires = "measure_log")]
    from: u64,
    /// With --measure-log: before this position
    #[arg(long, default_value_t = u64::MAX, requires = "measure_log")]
    to: u64,
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    if let Some(dir) = &args.measure_log {
        return match measure::read_log(dir, args.from..args.to) {
            Ok(found) => {
                say(&found.report());
                std::process::ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("sluice-model: {}: {error}", dir.display());
                std::process::ExitCode::FAILURE
            }
        };
    }
    let unknown = |name: &&String| !tables::NAMES.contains(&name.as_str());
    if let Some(name) = args.table.iter().find(unknown) {
        eprintln!("sluice-model: no table {name}; there are {}", tables::NAMES.join(", "));
        return std::process::ExitCode::from(2);
    }
    for table in tables::NAMES {
        if args.table.is_empty() || args.table.iter().any(|name| name == table) {
            print_table(table, &run::predict_all(&tables::cases(table, args.seed)));
        }
    }
    std::process::ExitCode::SUCCESS
}

const HEAD: [&str; 17] = [
    "images",
    "deltas",
    "GC",
    "map",
    "log",
    "binlog",
    "**all**",
    "changes/image",
    "reads",
    "of deltas",
    "to write",
    "owed, k",
    "owed, MB",
    "window, MB",
    "by window, %",
    "restart, s",
    "space, %",
];

/// A reader that wants no more is no error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Bytes and reads by transaction.
fn print_table(name: &str, predictions: &[Prediction]) {
    let rule = "---|".repeat(HEAD.len() + 1);
    let rows: String = predictions.iter().map(row).collect();
    say(&format!("\n### {name}\n\n| | {} |\n|{rule}\n{rows}", HEAD.join(" | ")));
}

fn row(p: &Prediction) -> String {
    let bytes = [p.images, p.deltas, p.gc, p.map, p.log, p.binlog].map(|x| format!("{x:.0}"));
    let bytes = format!("{} | **{:.0}**", bytes.join(" | "), p.total());
    let reads = [p.changes_per_image, p.reads, p.delta_reads, p.writer_reads];
    let reads = reads.map(|x| format!("{x:.2}")).join(" | ");
    let owed = p.peaks.owed_changes as f64 / 1e3;
    let [owed_mb, window_mb] = [p.peaks.owed_bytes, p.peaks.window_bytes].map(|x| x as f64 / 1e6);
    format!(
        "| {} | {bytes} | {reads} | {owed:.0} | {owed_mb:.0} | {window_mb:.0} | {:.0} | {:.1} | {} |\n",
        p.label, p.by_window_percent, p.restart_seconds, p.peaks.used_percent
    )
}
