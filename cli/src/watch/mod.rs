//! `sluice writes` and `sluice top`: what a running server writes, and why.
//!
//! One sampler, two views. Nothing is changed on the server; its counters are read with SHOW, those
//! of the operating system only if the server runs here.

mod sample;
mod tables;
mod view;

use crate::db::Dsn;
use crate::{signals, Result};
use clap::Args;
use sample::Sampler;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct WatchArgs {
    /// mysql://USER@HOST[:PORT]/[?password-file=PATH|password-env=NAME|socket=PATH|ssl-ca=PATH|...];
    /// without a password there, MYSQL_PWD holds it
    pub dsn: String,
    /// Seconds between two samples
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// End after so many samples
    #[arg(long)]
    pub count: Option<u64>,
    /// Bytes of a changed row [default: the mean of the tables, by their own statistics]
    #[arg(long)]
    pub row_bytes: Option<f64>,
    /// Terabytes that the drive may be written in its life, for the days to wear-out
    #[arg(long, value_name = "TB")]
    pub endurance_tb: Option<f64>,
    /// Of a server with Sluice: the tables for which most is written, at most N
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    pub tables: Option<usize>,
    /// One JSON object for each sample (writes only)
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.1..=86_400.0).contains(&value) {
        Ok(value)
    } else {
        Err("between 0.1 and 86400".to_string())
    }
}

pub fn writes(args: &WatchArgs) -> Result<ExitCode> {
    let head = |missing: &[String]| {
        if !args.json {
            missing.iter().for_each(|what| eprintln!("not known: {what}"));
            report!("{}", view::HEAD);
        }
    };
    watch(args, head, |sample| match args.json {
        true => report!("{}", sample.to_json()),
        false => {
            let (drives, tables) = (view::drive_lines(sample), view::table_lines(sample));
            report!("{}{drives}{tables}", view::line(sample));
        }
    })
}

pub fn top(args: &WatchArgs) -> Result<ExitCode> {
    // The screen says itself what is not known.
    watch(
        args,
        |_| {},
        |sample| {
            use std::io::Write;
            // Home, then each line cleared to its end: no flicker.
            let text = view::screen(sample).replace('\n', "\x1b[K\n");
            print!("\x1b[H{text}\x1b[J");
            let _ = std::io::stdout().flush();
        },
    )
}

fn watch(
    args: &WatchArgs,
    begin: impl FnOnce(&[String]),
    mut show: impl FnMut(&sample::Sample),
) -> Result<ExitCode> {
    signals::catch();
    let dsn = Dsn::parse(&args.dsn)?;
    let mut sampler = Sampler::new(&dsn, args)?;
    begin(sampler.missing());
    let mut next = Instant::now();
    for round in 0.. {
        if args.count.is_some_and(|count| round >= count) {
            break;
        }
        next += Duration::from_secs_f64(args.interval);
        if !signals::sleep_until(next) {
            break;
        }
        show(&sampler.sample()?);
    }
    Ok(ExitCode::SUCCESS)
}
