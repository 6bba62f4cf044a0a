//! `sluice-model`: predicts what the page store writes, by workload and policy. It runs no engine:
//! it counts what the engine's rules would write. docs/decisions/0025-owed-pages.md has its tables.

mod clock;
mod machine;
mod run;
mod sizes;
mod store;
mod tables;
mod tpcc;
mod workload;

use clap::Parser;
use run::Prediction;

/// Predicts bytes written per transaction, by workload and policy of the page store
#[derive(Parser)]
struct Args {
    /// today, monte-carlo, window, victim, gc, codec, workloads, small-pool or deltas; without one, all
    #[arg(long, value_delimiter = ',')]
    table: Vec<String>,
    /// Another seed means other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
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

/// Bytes and reads by transaction.
fn print_table(name: &str, predictions: &[Prediction]) {
    println!("\n### {name}\n\n| | {} |", HEAD.join(" | "));
    println!("|---|{}", "---|".repeat(HEAD.len()));
    for p in predictions {
        let bytes = [p.images, p.deltas, p.gc, p.map, p.log, p.binlog].map(|x| format!("{x:.0}"));
        println!(
            "| {} | {} | **{:.0}** | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {} |",
            p.label,
            bytes.join(" | "),
            p.total(),
            p.changes_per_image,
            p.reads,
            p.delta_reads,
            p.writer_reads,
            p.peaks.owed_changes as f64 / 1e3,
            p.peaks.owed_bytes as f64 / 1e6,
            p.peaks.window_bytes as f64 / 1e6,
            p.by_window_percent,
            p.restart_seconds,
            p.peaks.used_percent,
        );
    }
}
