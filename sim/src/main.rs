//! `sluice-sim`: the whole engine on a simulated machine that loses power, seed by seed. It sees
//! the engine's public surface only.

mod model;
mod world;

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;

const USAGE: &str = "usage: sluice-sim run --seeds N [--first S]";
const PROGRESS_EVERY: u64 = 25;

/// Where and why the last seed failed.
static FAILURE: Mutex<String> = Mutex::new(String::new());

struct Args {
    seeds: u64,
    first: u64,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { seeds: 0, first: 0 };
    words.next().filter(|verb| verb == "run")?;
    while let Some(option) = words.next() {
        let value = words.next()?.parse().ok()?;
        match option.as_str() {
            "--seeds" => args.seeds = value,
            "--first" => args.first = value,
            _ => return None,
        }
    }
    (args.seeds > 0).then_some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    panic::set_hook(Box::new(|info| {
        if let Ok(mut failure) = FAILURE.lock() {
            *failure = info.to_string().replace('\n', " ");
        }
    }));
    let (mut passed, mut failed) = (0, 0);
    for seed in args.first..args.first.saturating_add(args.seeds) {
        if panic::catch_unwind(|| world::run(seed)).is_ok() {
            passed += 1;
        } else {
            failed += 1;
            let why = FAILURE.lock().map(|why| why.clone()).unwrap_or_default();
            println!("seed {seed} failed: {why}; repeat: make sim SEEDS=1 ARGS=\"--first {seed}\"");
        }
        if (passed + failed) % PROGRESS_EVERY == 0 {
            println!("{} of {} seeds, {failed} failed", passed + failed, args.seeds);
        }
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
