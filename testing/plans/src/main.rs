//! Compares the plans that the server makes on Sluice with those on InnoDB: the same schemas, rows and
//! queries in one private server. What it is for and what came out: docs/plans.md.

mod compare;
mod costs;
mod sets;

use compare::{Engine, Outcome, ENGINES};
use sets::{Scale, Set};
use sluice_rig::client::{Client, Reply};
use sluice_rig::place::{self, WorkDir};
use sluice_rig::server::{Binlog, Launch, Prefix, Server};
use std::path::PathBuf;
use std::process::ExitCode;

/// Some plans cost nearly the same, and InnoDB samples other leaves each time.
const SAME_PERCENT_MIN: usize = 95;

const USAGE: &str = "\
usage: sluice-plans [options]
  --scale F    rows as a share of the full size (1): 100 MB in the set trade
  --only NAME  one set, or one query as SET/QUERY
  --prefix P   the private server installation ($SLUICE_PREFIX, or .prefix of the checkout)
  --dir D      a directory to make and work in (a new one in $TMPDIR)
  --least N    so many of a hundred plans must be the same (95)
  --all        print every plan, not only those that differ
  --costs      measure what the steps of a plan cost, and compare no plans";

struct Options {
    scale: Scale,
    only: Option<String>,
    prefix: Prefix,
    dir: PathBuf,
    least_percent: usize,
    prints_all: bool,
    measures_costs: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut named = None;
    let mut options = Options {
        scale: Scale(1.0),
        only: None,
        prefix: Prefix { root: PathBuf::new() },
        dir: PathBuf::new(),
        least_percent: SAME_PERCENT_MIN,
        prints_all: false,
        measures_costs: false,
    };
    while let Some(name) = args.next() {
        match name.as_str() {
            "--all" => options.prints_all = true,
            "--costs" => options.measures_costs = true,
            _ => {
                let value = args.next().ok_or(format!("{name} needs a value"))?;
                options.take(&name, value, &mut named)?;
            }
        }
    }
    options.prefix = place::prefix(named)?;
    Ok(options)
}

impl Options {
    /// An option with a value; the prefix goes to `named`.
    fn take(
        &mut self,
        name: &str,
        value: String,
        named: &mut Option<PathBuf>,
    ) -> Result<(), String> {
        match name {
            "--scale" => self.scale = Scale::parse(&value)?,
            "--only" => self.only = Some(value),
            "--prefix" => *named = Some(value.into()),
            "--dir" => self.dir = value.into(),
            "--least" => self.least_percent = value.parse().map_err(|_| "--least: no number")?,
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }
}

/// Statistics are those of ANALYZE, with the defaults of both engines.
const SETTINGS: [&str; 6] = [
    "--innodb-buffer-pool-size=256M",
    "--loose-sluice-buffer-pool-size=256M",
    "--innodb-flush-log-at-trx-commit=0",
    "--loose-sluice-flush-log-at-trx-commit=0",
    "--innodb-stats-auto-recalc=OFF",
    "--loose-sluice-stats-auto-recalc=OFF",
];

fn launch(options: &Options) -> std::io::Result<Server> {
    std::fs::create_dir(&options.dir)?;
    let extra = SETTINGS.iter().map(|option| option.to_string()).collect();
    let launch = Launch {
        prefix: options.prefix.clone(),
        dir: options.dir.clone(),
        engine: "Sluice".into(),
        binlog: Binlog::Off,
        log_mib: 256,
        binlog_rotation_kib: 0,
        extra,
        environment: Vec::new(),
    };
    launch.prefix.install(&launch.data())?;
    launch.start()
}

/// Fills one set in both engines and explains its queries.
fn run_set(server: &Server, set: &Set, options: &Options) -> Reply<Vec<Outcome>> {
    for engine in ENGINES {
        let mut client = Client::connect(&server.socket(), "")?;
        prepare(&mut client, set, engine, options.scale)?;
    }
    let mut clients = Vec::new();
    for engine in ENGINES {
        let mut client = Client::connect(&server.socket(), &engine.database(set))?;
        // Sluice has no filters of row ids yet.
        client.run("set optimizer_switch='rowid_filter=off'")?;
        clients.push(client);
    }
    let mut outcomes = Vec::new();
    for query in &set.queries {
        if options.only.as_ref().is_some_and(|only| !set.is_meant(only, &query.name)) {
            continue;
        }
        let plans = [
            compare::explain(&mut clients[0], &query.sql)?,
            compare::explain(&mut clients[1], &query.sql)?,
        ];
        outcomes.push(Outcome::new(query, plans));
    }
    Ok(outcomes)
}

fn prepare(client: &mut Client, set: &Set, engine: Engine, scale: Scale) -> Reply<()> {
    use_new(client, &engine.database(set), engine)?;
    for statement in set.schema.iter().chain(&set.fill) {
        client.run(&scale.apply(statement))?;
    }
    let tables: Vec<String> = client.rows("show tables")?;
    client.rows::<mysql::Row>(&format!("analyze table {}", tables.join(", "))).map(|_| ())
}

/// From here on the client makes its tables in this database, in this engine.
fn use_new(client: &mut Client, database: &str, engine: Engine) -> Reply<()> {
    client.run(&format!("create database {database}"))?;
    client.run(&format!("use {database}"))?;
    client.run(&format!("set default_storage_engine={}", engine.name()))
}

fn run(options: &Options) -> Result<bool, String> {
    let sets = sets::all()?;
    let server = launch(options).map_err(|e| format!("the server: {e}"))?;
    if options.measures_costs {
        costs::measure(&server).map_err(|e| format!("costs: {e}"))?;
        server.stop().map_err(|e| format!("the server: {e}"))?;
        return Ok(true);
    }
    let (mut same, mut all, mut explained) = (0, 0, 0);
    for set in &sets {
        if options.only.as_ref().is_some_and(|only| !set.is_meant_by(only)) {
            continue;
        }
        let outcomes = run_set(&server, set, options).map_err(|e| format!("{}: {e}", set.name))?;
        for outcome in outcomes.iter().filter(|o| !o.is_same() || options.prints_all) {
            print!("{}", outcome.describe(set));
        }
        let (differing, equal): (Vec<_>, Vec<_>) = outcomes.iter().partition(|o| !o.is_same());
        println!("{}: {} of {} plans are the same", set.name, equal.len(), outcomes.len());
        explained += differing.iter().filter(|o| set.reason(&o.name).is_some()).count();
        same += equal.len();
        all += outcomes.len();
    }
    println!("{same} of {all} plans are the same, {explained} of the others are explained");
    let is_enough = same * 100 >= all * options.least_percent;
    let failed = if is_enough { 0 } else { all - same };
    println!("{} passed, {failed} failed", all - failed);
    server.stop().map_err(|e| format!("the server: {e}"))?;
    Ok(is_enough)
}

fn main() -> ExitCode {
    let args = std::env::args().skip(1).collect();
    let (args, _work) = match place::with_dir(args, || WorkDir::new("plans")) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("sluice-plans: {error}");
            return ExitCode::from(2);
        }
    };
    let options = match parse(args.into_iter()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("sluice-plans: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let outcome = run(&options);
    let _ = std::fs::remove_dir_all(&options.dir);
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluice-plans: {error}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}
