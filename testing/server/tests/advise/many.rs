//! Many faults at once, because each look takes a sample's time: all fire, and all are silent when
//! they are mended.

use crate::{named, says, World, ROUNDS};
use sluice_rig::tool::Home;
use std::process::{Child, Stdio};

const MANY: [&str; 8] = ["W01", "W03", "W12", "W15", "W17", "W20", "W22", "W24"];

fn all_fired(answer: &str) -> bool {
    MANY.iter().all(|rule| answer.contains(&named(rule)))
}

fn any_fired(answer: &str) -> bool {
    MANY.iter().any(|rule| answer.contains(&named(rule)))
}

fn plant_many(home: &Home) {
    home.sql(
        "CREATE DATABASE p; SET GLOBAL binlog_cache_size = 4096, binlog_row_image = MINIMAL,
           innodb_io_capacity = 100, max_binlog_size = 1048576, slave_parallel_threads = 0,
           max_allowed_packet = 1 << 30;
         CREATE TABLE p.i (id INT PRIMARY KEY, v LONGTEXT) ENGINE=InnoDB;
         CREATE TABLE p.s (id INT PRIMARY KEY, v LONGTEXT) ENGINE=Sluice;
         CREATE TABLE p.m (v LONGBLOB, id INT PRIMARY KEY) ENGINE=MyISAM;
         INSERT INTO p.i SELECT seq, REPEAT('compresses well ', 20) FROM p.seq_1_to_2000;
         ANALYZE TABLE p.i;
         CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'x'",
    );
    // As a row of 150 MB, in a file of the binlog that should have 1 MiB. On a connection of its own,
    // which has the new max_allowed_packet.
    home.sql(
        "SET SESSION binlog_format = ROW;
         INSERT INTO p.m VALUES (REPEAT('x', 150000000), 1)",
    );
}

/// Redo, engines mixed in a transaction, tables on disk, spills of the binlog cache.
fn faulty_load(home: &Home) {
    let mut load = "REPLACE INTO p.i SELECT seq + 100000, REPEAT('z', 900) FROM p.seq_1_to_3000;
        BEGIN; REPLACE INTO p.i VALUES (9001, 'a'); REPLACE INTO p.s VALUES (9001, 'a'); COMMIT;"
        .to_owned();
    let on_disk =
        "SELECT COUNT(*) FROM (SELECT DISTINCT REPEAT(seq, 2000) AS t FROM p.seq_1_to_9) d;";
    load += &on_disk.repeat(30);
    // Rows of 9000 bytes; the statements are short.
    load += "SET SESSION binlog_format = ROW;";
    for n in 1..=120 {
        load += &format!("REPLACE INTO p.s VALUES ({n}, REPEAT('y', 9000));");
    }
    home.sql(&load);
}

/// As many small transactions, so that the share of spills is that of the sample.
fn small_load(home: &Home) {
    let load: String = (1..=150).map(|n| format!("REPLACE INTO p.s VALUES ({n}, 1);")).collect();
    home.sql(&load);
}

/// It reads the binlog and is no replica.
fn reader_of_the_binlog(w: &World) -> Child {
    let status = w.home.sql("SHOW MASTER STATUS");
    let mut reader = w.tool.mariadb("mariadb-binlog");
    reader.args(["-uroot", "--raw", "--read-from-remote-server", "--stop-never", "-S"]);
    reader.arg(w.home.socket());
    reader.arg(format!("--result-file={}", w.tool.work.join("dump-").display()));
    reader.arg(status.split('\t').next().unwrap_or_default());
    reader.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    reader.spawn().expect("mariadb-binlog")
}

pub fn advise_names_many_faults(w: &mut World) {
    w.server();
    let probe = w.tool.work.join("probe2");
    std::fs::create_dir(&probe).expect("a new directory");
    let probe = probe.to_string_lossy();
    let args = ["--probe-dir", &probe, "--probe-mib", "1"];
    plant_many(&w.home);
    let mut reader = reader_of_the_binlog(w);
    // On a busy machine the load may not fit into one sample.
    let mut answer = String::new();
    for _ in 0..ROUNDS {
        if !all_fired(&answer) {
            answer +=
                &w.sampled(&faulty_load, &[&args[..], &["--endurance-tb", "0.000001"]].concat());
        }
    }
    // It may have ended by itself.
    let _ = reader.kill();
    reader.wait().expect("our child");
    MANY.iter().for_each(|rule| says(&named(rule), &answer));
    says("larger than max_binlog_size", &answer);
    says("transactions, cache of 4 KiB", &answer);
    says("one thread applies changes", &answer);
    says("columns that did not change are missing", &answer);
    mend_all(&w.home);
    let is_silent = (0..ROUNDS).any(|_| {
        answer = w.sampled(&small_load, &args);
        !any_fired(&answer)
    });
    w.home.sql("DROP DATABASE p");
    assert!(is_silent, "{answer}\nfires without its fault: one of {MANY:?}");
}

fn mend_all(home: &Home) {
    home.sql(
        "DROP DATABASE p; RESET SLAVE ALL; RESET MASTER;
         SET GLOBAL binlog_cache_size = 1048576, binlog_row_image = FULL,
           innodb_io_capacity_max = 4000, innodb_io_capacity = 2000, max_binlog_size = 1 << 30;
         CREATE DATABASE p; CREATE TABLE p.s (id INT PRIMARY KEY, v INT) ENGINE=Sluice",
    );
}
