//! Every type and collation of the server on Sluice, compared with InnoDB in the same server.
//!
//! A case is a type or a collation. For each one the same statements run on a table of each engine,
//! once for every kind of key: inserts and duplicates, searches and ranges through the index in both
//! directions, GROUP BY, reads of the index alone, UPDATE to another spelling, DELETE. All that the
//! client prints, errors included, must be the same.

mod keys;
mod options;
mod statements;
mod values;

use options::Options;
pub use options::USAGE;
use sluice_rig::client::Client;
use sluice_rig::place;
use sluice_rig::rng::Rng;
use sluice_rig::server::{Binlog, Launch, Prefix, Server};
use statements::Column;
use std::fs::{self, File};
use std::io;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ENGINES: [&str; 2] = ["Sluice", "InnoDB"];

/// One case: a name, and the columns whose tables it has.
struct Case {
    name: String,
    columns: Vec<Column>,
}

/// Runs the cases that the arguments after `types` name. Whether all are the same, and whether the
/// directory is to be kept.
pub fn run(args: impl Iterator<Item = String>) -> Result<(bool, bool), String> {
    let options = options::parse(args)?;
    let prefix = place::prefix(options.prefix.clone())?;
    let is_same = compare_all(&options, prefix).map_err(|error| error.to_string())?;
    Ok((is_same, options.keep))
}

fn compare_all(options: &Options, prefix: Prefix) -> io::Result<bool> {
    let mut world = World::start(options, prefix)?;
    let todo = options.chosen(cases(&mut world, options)?);
    let (mut passed, mut failed) = (0, 0);
    for (n, case) in todo.iter().enumerate() {
        if n % 20 == 0 {
            eprintln!("{n} of {}, now {}", todo.len(), case.name);
        }
        match world.is_same(case, options.seed)? {
            true => passed += 1,
            false => failed += 1,
        }
    }
    world.end(options.keep)?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

fn cases(world: &mut World, options: &Options) -> io::Result<Vec<Case>> {
    let types = values::TYPES.iter().filter(|t| !options.quick || values::is_quick_type(t.column));
    let mut cases: Vec<Case> = types.map(of_type).collect();
    let words = values::words_of_many_scripts(&mut Rng::new(options.seed));
    for (collation, charset) in world.collations()? {
        if !options.quick || values::is_quick_collation(&collation) {
            cases.push(of_collation(&collation, &charset, &words, &options.keys_of_collations()));
        }
    }
    Ok(cases)
}

fn of_type(kind: &values::Type) -> Case {
    let values = kind.values.iter().map(|v| (*v).to_owned()).collect();
    let column = Column {
        definition: kind.column.into(),
        values,
        keys: keys::of(kind.column, kind.is_text),
    };
    Case { name: format!("type {}", kind.column), columns: vec![column] }
}

fn of_collation(collation: &str, charset: &str, words: &[String], names: &[String]) -> Case {
    let column = |kind: &str| {
        let definition = format!("{kind} charset {charset} collate {collation}");
        let mut keys = keys::of(&definition, true);
        keys.retain(|key| names.iter().any(|name| name == key.name));
        Column { definition, values: words.to_vec(), keys }
    };
    let columns = ["varchar(20)", "char(10)"].map(column).into();
    Case { name: format!("collation {collation}"), columns }
}

/// The server with both engines, and the client program of its packages.
struct World {
    launch: Launch,
    server: Server,
}

/// Longer than any case.
const LIMIT: Duration = Duration::from_secs(300);

impl World {
    fn start(options: &Options, prefix: Prefix) -> io::Result<World> {
        let extra = [
            "--innodb-flush-log-at-trx-commit=0",
            "--loose-sluice-flush-log-at-trx-commit=0",
            "--sql-mode=",
            "--innodb-file-per-table=0",
            "--character-set-server=utf8mb4",
            "--innodb-autoinc-lock-mode=1",
        ];
        let launch = Launch {
            prefix,
            dir: options.dir.clone(),
            engine: "Sluice".into(),
            binlog: Binlog::Off,
            log_mib: 256,
            binlog_rotation_kib: 65536,
            extra: extra.map(String::from).to_vec(),
            environment: Vec::new(),
        };
        fs::create_dir_all(&launch.dir)?;
        launch.prefix.install(&launch.data())?;
        let server = launch.start()?;
        Ok(World { launch, server })
    }

    fn end(self, keep: bool) -> io::Result<()> {
        self.server.stop()?;
        match keep {
            true => Ok(()),
            false => fs::remove_dir_all(self.launch.dir),
        }
    }

    fn collations(&mut self) -> io::Result<Vec<(String, String)>> {
        let names = "SELECT full_collation_name, character_set_name FROM
            information_schema.collation_character_set_applicability
            WHERE character_set_name <> 'filename' ORDER BY 1";
        let client = Client::connect(&self.server.socket(), "");
        let rows = client.and_then(|mut client| client.rows(names));
        rows.map_err(|fault| io::Error::other(fault.to_string()))
    }

    fn is_same(&self, case: &Case, seed: u64) -> io::Result<bool> {
        let mut statements = Vec::new();
        for column in &case.columns {
            column.keys.iter().for_each(|key| statements.extend(column.statements(key, seed)));
        }
        let [ours, theirs] = ENGINES.map(|engine| self.output(engine, &statements));
        let (ours, theirs) = (ours?, theirs?);
        if ours == theirs {
            return Ok(true);
        }
        println!("FAILED {}", case.name);
        show_difference(&ours, &theirs);
        Ok(false)
    }

    /// What the client prints. Names of engine and database, and the engine's own words in warnings,
    /// may differ.
    fn output(&self, engine: &str, statements: &[String]) -> io::Result<Vec<String>> {
        let database = engine.to_lowercase();
        let mut script = format!(
            "SET default_storage_engine={engine}; SET NAMES utf8mb4; \
             SET lock_wait_timeout=20, timestamp=1700000000;\n\
             CREATE DATABASE IF NOT EXISTS {database}; USE {database};\n"
        );
        for statement in statements {
            script += statement;
            script += ";\n";
        }
        let text = self.client(&script)?;
        let text = text.replace(&database, "ENGINE").replace(engine, "ENGINE");
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Output and errors in one file, so that each error stands after its statement.
    fn client(&self, script: &str) -> io::Result<String> {
        let (input, output) = (self.launch.dir.join("script"), self.launch.dir.join("output"));
        fs::write(&input, script)?;
        let out = File::create(&output)?;
        let mut command = Command::new(self.launch.prefix.program("mariadb"));
        command.args(["--no-defaults", "-uroot", "--force", "-N", "-v", "--unbuffered"]);
        command.args(["--default-character-set=utf8mb4", "-S"]).arg(self.server.socket());
        command.stdin(File::open(&input)?).stdout(out.try_clone()?).stderr(out);
        let mut client = command.spawn()?;
        let give_up = Instant::now() + LIMIT;
        let mut stuck = "";
        while client.try_wait()?.is_none() {
            if Instant::now() > give_up {
                client.kill()?;
                stuck = "\nno answer in 300 s";
            }
            sleep(Duration::from_millis(5));
        }
        Ok(String::from_utf8_lossy(&fs::read(&output)?).into_owned() + stuck)
    }
}

/// The lines before the first one that differs, and what each engine goes on with.
fn show_difference(ours: &[String], theirs: &[String]) {
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    ours[same.saturating_sub(8)..same].iter().for_each(|line| println!(" {line}"));
    for (mark, lines) in [('-', theirs), ('+', ours)] {
        lines[same..].iter().take(12).for_each(|line| println!("{mark}{line}"));
    }
    println!("(- InnoDB, + Sluice)");
}
