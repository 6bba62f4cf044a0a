//! The largest rows and the widest tables on a small pool, killed after each commit; the most memory
//! that the server ever had. A measurement fails if it reads other bytes than it wrote.

use super::run::Bench;
use super::sizes::memory_kib;
use super::target::Target;
use super::trial::Fields;
use crate::db::Client;
use crate::Result;
use serde_json::{json, Map, Value};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const COLUMNS: u32 = 900;
const LIMIT: Duration = Duration::from_secs(3600);

fn connect(server: &Target) -> Result<Client> {
    Client::connect_with_limit(&server.dsn, LIMIT)
}

fn same(what: &str, found: &str, wanted: &str) -> Result<()> {
    let shown = |text: &str| text.chars().take(200).collect::<String>();
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {} instead of {}", shown(found), shown(wanted))),
    }
}

/// The columns of the only row, in the order of their names.
fn row(client: &mut Client, sql: &str) -> Result<String> {
    let mut rows = client.rows(sql)?;
    let only = rows.pop().filter(|_| rows.is_empty()).ok_or(format!("not one row: {sql}"))?;
    Ok(only.into_values().collect::<Vec<_>>().join(" "))
}

fn checked(client: &mut Client, table: &str) -> Result<()> {
    let rows = client.rows(&format!("CHECK TABLE {table}"))?;
    let text = rows.last().and_then(|row| row.get("msg_text").cloned()).unwrap_or_default();
    same(&format!("CHECK TABLE {table}"), &text, "OK")
}

fn peak_mib(server: &Target) -> Value {
    let kib = server.pid.and_then(|pid| memory_kib(pid, "VmHWM"));
    json!(kib.map(|kib| kib / 1024))
}

fn killed_and_started(bench: &mut Bench, target: usize) -> Result<f64> {
    let threads = bench.plan.threads_max();
    bench.targets[target].kill()?;
    bench.targets[target].start(threads)
}

pub fn columns(bench: &mut Bench, target: usize) -> Fields {
    bench.fresh(target)?;
    let engine = bench.targets[target].spec.engine.clone();
    let list = |text: &dyn Fn(u32) -> String| (1..=COLUMNS).map(text).collect::<Vec<_>>().join(",");
    let mut client = connect(&bench.targets[target])?;
    client.execute("CREATE DATABASE r")?;
    let columns = list(&|i| format!("c{i} INT"));
    client
        .execute(&format!("CREATE TABLE r.wide (id INT PRIMARY KEY, {columns}) ENGINE={engine}"))?;
    let assigned = list(&|i| format!("c{i}={i}"));
    client.execute(&format!("INSERT INTO r.wide SET id=1,{assigned}"))?;
    killed_and_started(bench, target)?;
    let mut client = connect(&bench.targets[target])?;
    let all = list(&|i| format!("c{i}"));
    let found = row(&mut client, &format!("SELECT CONCAT_WS(',', id, {all}) AS v FROM r.wide"))?;
    same("900 columns after kill -9", &found, &format!("1,{}", list(&|i| i.to_string())))?;
    client.execute("UPDATE r.wide SET c900 = 7")?;
    client.execute("ALTER TABLE r.wide ADD KEY k (c900, c1)")?;
    drop(client);
    bench.targets[target].stop()?;
    let threads = bench.plan.threads_max();
    bench.targets[target].start(threads)?;
    let mut client = connect(&bench.targets[target])?;
    let sql =
        "SELECT CONCAT_WS(' ', id, c1, c899, c900) AS v FROM r.wide FORCE INDEX (k) WHERE c900 = 7";
    same("900 columns after a restart", &row(&mut client, sql)?, "1 1 899 7")?;
    checked(&mut client, "r.wide")?;
    Ok(Map::from_iter([("peak_mib".to_string(), peak_mib(&bench.targets[target]))]))
}

/// Random bytes in a file that the server can read; gone with this value.
struct RandomFile(PathBuf);

impl RandomFile {
    fn new(path: PathBuf, mib: u64) -> Result<RandomFile> {
        let file = RandomFile(path);
        let failed = |e| format!("cannot write {}: {e}", file.0.display());
        write_random(&file.0, mib).map_err(failed)?;
        Ok(file)
    }

    fn md5(&self) -> Result<String> {
        let output = Command::new("md5sum").arg(&self.0).output();
        let output = output.map_err(|e| format!("cannot run md5sum: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().next().map(String::from).ok_or("md5sum says nothing".to_string())
    }
}

fn write_random(path: &Path, mib: u64) -> std::io::Result<()> {
    let (mut random, mut file) = (File::open("/dev/urandom")?, File::create(path)?);
    let mut block = vec![0; 1 << 20];
    for _ in 0..mib {
        random.read_exact(&mut block)?;
        file.write_all(&block)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

impl Drop for RandomFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn value(bench: &mut Bench, target: usize, mib: u64) -> Fields {
    bench.fresh(target)?;
    let file = RandomFile::new(bench.scratch().join("value"), mib)?;
    let sum = file.md5()?;
    let mut fields = Map::new();
    let server = &bench.targets[target];
    let mut client = connect(server)?;
    client.execute("CREATE DATABASE r")?;
    let engine = &server.spec.engine;
    client
        .execute(&format!("CREATE TABLE r.b (id INT PRIMARY KEY, v LONGBLOB) ENGINE={engine}"))?;
    fields.insert("peak_before_mib".to_string(), peak_mib(server));
    let begun = Instant::now();
    client.execute(&format!(
        "INSERT INTO r.b VALUES (1, LOAD_FILE('{}')), (2, 'small')",
        file.0.display()
    ))?;
    fields.insert("insert_s".to_string(), json!(begun.elapsed().as_secs_f64()));
    fields.insert("peak_insert_mib".to_string(), peak_mib(server));
    drop(client);
    let start_s = killed_and_started(bench, target)?;
    fields.insert("start_s".to_string(), json!(start_s));
    fields.insert("peak_recovery_mib".to_string(), peak_mib(&bench.targets[target]));
    let mut client = connect(&bench.targets[target])?;
    let begun = Instant::now();
    let found =
        row(&mut client, "SELECT CONCAT_WS(' ', LENGTH(v), MD5(v)) AS v FROM r.b WHERE id = 1")?;
    fields.insert("read_s".to_string(), json!(begun.elapsed().as_secs_f64()));
    same("the value after kill -9", &found, &format!("{} {sum}", mib << 20))?;
    fields.insert("peak_read_mib".to_string(), peak_mib(&bench.targets[target]));
    taken_back_and_deleted(bench, target, client, &sum)?;
    Ok(fields)
}

/// In place, then not at all: no part of the value may stay.
fn taken_back_and_deleted(
    bench: &mut Bench,
    target: usize,
    mut client: Client,
    sum: &str,
) -> Result<()> {
    for sql in ["BEGIN", "UPDATE r.b SET v = 'other'", "ROLLBACK"] {
        client.execute(sql)?;
    }
    let found = row(&mut client, "SELECT MD5(v) AS v FROM r.b WHERE id = 1")?;
    same("the value after ROLLBACK of an UPDATE", &found, sum)?;
    client.execute("DELETE FROM r.b WHERE id = 1")?;
    drop(client);
    killed_and_started(bench, target)?;
    let mut client = connect(&bench.targets[target])?;
    let found = row(&mut client, "SELECT CONCAT_WS(' ', id, v) AS v FROM r.b")?;
    same("rows after the DELETE and kill -9", &found, "2 small")?;
    checked(&mut client, "r.b")
}
