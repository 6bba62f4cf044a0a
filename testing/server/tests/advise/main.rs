//! `sluice advise` on private servers: plants the fault of each rule that can be planted on MariaDB
//! 10.11, with tables of InnoDB, Sluice and (where the prefix has it) MyRocks; the rule must fire, and
//! be silent when the fault is mended. See docs/advise.md.

mod errors;
mod load;
mod many;
mod mount;
mod planted;
mod tls;

use sluice_rig::suite;
use sluice_rig::tests;
use sluice_rig::tool::{is_silent_about, run, says, spawn, wait, Ended, Home, Tool};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

struct World {
    tool: Tool,
    home: Home,
    /// Those that the running server was started with.
    options: Vec<String>,
}

fn main() -> ExitCode {
    let tests = tests![
        planted::advise_names_planted_faults,
        many::advise_names_many_faults,
        load::w02_waits_for_the_log_buffer,
        load::w05_stays_dirty,
        load::w06_flushes_neighbours,
        load::w08_writes_pages_twice,
        load::w09_commits_wait_for_flushes,
        load::w11_commits_alone,
        load::w13_versions_pile_up,
        mount::w19_file_system_works_against_it,
        load::w21_inserts_single_rows,
        errors::lost_connection_is_an_error,
        errors::advise_has_exit_codes_and_leaves_nothing,
        errors::advise_compares,
        errors::without_rights_advice_is_partial,
        tls::tls_verifies_and_says_why_not,
        errors::restarted_server_is_an_error,
        planted::faults_of_the_start_are_named,
        planted::myrocks_tables_are_judged,
        errors::stop_in_mid_sample_is_an_error,
    ];
    suite::run(&tests, || {
        let tool = Tool::new("advise")?;
        Ok(World { home: tool.home("d"), tool, options: Vec::new() })
    })
}

/// Small caches, and the tables in which `advise` looks for waits.
const USUAL: [&str; 4] = [
    "--innodb-buffer-pool-size=32M",
    "--performance-schema=ON",
    "--sluice-buffer-pool-size=16M",
    "--sluice-log-capacity=64M",
];
/// W02 is to be found in a log buffer of 2 MiB.
const SMALL_LOG_BUFFER: &str = "--innodb-log-buffer-size=2M";

impl World {
    /// The usual server runs.
    fn server(&mut self) -> Home {
        self.server_with(&[&USUAL[..], &[SMALL_LOG_BUFFER]].concat())
    }

    /// A server with these options runs.
    fn server_with(&mut self, options: &[&str]) -> Home {
        let is_running = self.home.is_running();
        if !is_running || self.options != options {
            if is_running {
                self.home.stop();
            }
            self.home.start(options);
            self.options = options.iter().map(|option| (*option).to_owned()).collect();
        }
        self.home.clone()
    }

    /// Two tables with rows for the load of [`load`].
    fn tables_for_load(&mut self) -> Home {
        let home = self.server();
        if home.sql("SHOW DATABASES LIKE 'l'").is_empty() {
            home.sql(
                "CREATE DATABASE l;
                 CREATE TABLE l.i (id INT PRIMARY KEY, v VARCHAR(9000)) ENGINE=InnoDB;
                 CREATE TABLE l.s (id INT PRIMARY KEY, v INT) ENGINE=Sluice;
                 INSERT INTO l.i SELECT seq, REPEAT('v', 6000) FROM l.seq_1_to_3000;
                 INSERT INTO l.s SELECT seq, 0 FROM l.seq_1_to_100",
            );
        }
        home
    }

    /// What `sluice advise` finds in a sample of a second, as JSON.
    fn advise(&self) -> String {
        self.advise_at(&self.home)
    }

    fn advise_at(&self, home: &Home) -> String {
        advice(run(&mut self.tool.sluice(["advise", &home.address(), "--interval", "1", "--json"])))
    }

    /// What it finds in a sample of two seconds in which `load` runs.
    fn sampled(&self, load: &dyn Fn(&Home), args: &[&str]) -> String {
        let address = self.home.address();
        let advise = ["advise", &address, "--interval", "2", "--json", "--sample-rows"];
        let advising = spawn(self.tool.sluice(advise).args(args));
        sleep(Duration::from_millis(500));
        load(&self.home);
        advice(wait(advising))
    }

    /// The rule fires after `fault` and is silent after `mend`.
    fn rule_follows_its_fault(&self, rule: &str, fault: &str, mend: &str) {
        self.home.sql(fault);
        says(&named(rule), &self.advise());
        self.home.sql(mend);
        is_silent_about(&named(rule), &self.advise());
    }

    /// The rule fires in one of some samples in which `faulty` runs, and is silent in one in which
    /// `mended` does. One sample need not be enough where the machine has other work.
    fn rule_follows_its_load(&self, rule: &str, faulty: Load, mended: Load, args: &[&str]) {
        let rule = &named(rule);
        let mut answer = String::new();
        let fires = (0..ROUNDS).any(|_| {
            answer = self.sampled(faulty, args);
            answer.contains(rule)
        });
        assert!(fires, "{answer}\nshould say: {rule}");
        let is_silent = (0..ROUNDS).any(|_| {
            answer = self.sampled(mended, args);
            !answer.contains(rule)
        });
        assert!(is_silent, "{answer}\n{rule} fires without its fault");
    }
}

type Load<'a> = &'a dyn Fn(&Home);

const ROUNDS: usize = 6;

fn nothing(_: &Home) {}

/// The rule as the JSON names it.
fn named(rule: &str) -> String {
    format!("\"rule\":\"{rule}\"")
}

/// The output of an `advise` that has looked: no advice, some, or a risk.
#[track_caller]
fn advice(ended: Ended) -> String {
    assert!(matches!(ended.code, Some(0 | 10 | 20)), "{:?}: {}", ended.code, ended.text());
    ended.text()
}

/// Microseconds of a durable write of 4 KiB, the mean of 50.
fn durable_write_us(tool: &Tool) -> u128 {
    let path = tool.work.join("durable");
    let begin = Instant::now();
    let mut write = std::process::Command::new("dd");
    write.args(["if=/dev/zero", "bs=4k", "count=50", "oflag=dsync", "status=none"]);
    run(write.arg(format!("of={}", path.display()))).ok();
    let us = begin.elapsed().as_micros() / 50;
    std::fs::remove_file(path).expect("our file");
    us
}
