//! Servers that go away, users without rights, exit codes, and advice compared with earlier advice.

use crate::planted::FAULTY_START;
use crate::World;
use sluice_rig::tool::{run, says, spawn, wait, wait_until};
use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

fn advising(w: &World, seconds: &str) -> Child {
    let address = w.home.address();
    spawn(&mut w.tool.sluice(["advise", &address, "--interval", seconds]))
}

/// It has ended with an error: all that it said.
fn failed(advising: Child) -> String {
    let ended = wait(advising);
    let text = ended.text();
    ended.with_code(1);
    text
}

pub fn lost_connection_is_an_error(w: &mut World) {
    let home = w.server();
    let mut control = home.connect();
    let advising = advising(w, "3");
    // Its connection sleeps between the samples.
    let sleeping = "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' LIMIT 1";
    let mut id = String::new();
    wait_until("a connection of `sluice advise`", Duration::from_secs(10), || {
        id = control.script(sleeping).unwrap_or_default();
        !id.is_empty()
    });
    home.sql(&format!("KILL CONNECTION {id}"));
    says("the connection was lost during the sample", &failed(advising));
}

pub fn advise_has_exit_codes_and_leaves_nothing(w: &mut World) {
    let home = w.server();
    let probe = w.tool.work.join("probe");
    fs::create_dir(&probe).expect("a new directory");
    home.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    let args = ["advise", &home.address(), "--interval", "1", "--probe-mib", "1", "--probe-dir"];
    let ended = run(w.tool.sluice(args).arg(&probe));
    home.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    says("risk:", &ended.with_code(10));
    fs::remove_dir(&probe).expect("nothing is left in the directory of the probe");
}

pub fn advise_compares(w: &mut World) {
    let home = w.server();
    let before = w.tool.work.join("before.json");
    fs::write(&before, w.advise()).expect("a file");
    let args = ["advise", &home.address(), "--interval", "1", "--compare"];
    let compared = run(w.tool.sluice(args).arg(&before));
    says("Before and after", &compared.out);
}

pub fn without_rights_advice_is_partial(w: &mut World) {
    let home = w.server();
    home.sql("CREATE OR REPLACE USER nobody@localhost IDENTIFIED BY ''");
    let advise = ["advise", &home.address_of("nobody"), "--interval", "1"];
    let answer = run(&mut w.tool.sluice(advise)).out;
    says("Not known", &answer);
    says("running transactions", &answer);
    says("this user has no SELECT on *.*", &answer);
}

pub fn restarted_server_is_an_error(w: &mut World) {
    w.server();
    let advising = advising(w, "12");
    sleep(Duration::from_secs(1));
    w.server_with(&FAULTY_START);
    let text = failed(advising);
    // The latter if the machine took longer than the sample for the restart.
    let reasons = ["restarted during the sample", "went away during the sample"];
    assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
}

pub fn stop_in_mid_sample_is_an_error(w: &mut World) {
    // Any server will do.
    if !w.home.is_running() {
        w.server();
    }
    let advising = advising(w, "4");
    sleep(Duration::from_secs(1));
    w.home.stop();
    says("went away during the sample", &failed(advising));
}
