//! A server that is measured: a private one, or one that runs already.
//!
//! On a server that runs already, everything happens in a schema that this run made, or that was
//! empty. A table in it names the run, so that a run that was killed can clean up later.

use super::plan::Plan;
use super::{tools, tpcc};
use crate::db::{Client, Counters, Dsn};
use crate::host::{self, Device};
use crate::{server, Result};
use serde_json::{json, Value};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

const OWNER_TABLE: &str = "sluice_bench_owner";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    pub name: String,
    pub engine: String,
    place: SpecPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SpecPlace {
    Private(Vec<String>),
    Running { text: String, dsn: Dsn },
}

impl TargetSpec {
    pub fn private(name: &str, engine: &str, options: &[&str]) -> TargetSpec {
        let options = options.iter().map(|o| o.to_string()).collect();
        TargetSpec {
            name: name.to_string(),
            engine: engine.to_string(),
            place: SpecPlace::Private(options),
        }
    }

    /// `NAME=ENGINE[:option=value,...]` or `NAME=mysql://...[#ENGINE]`.
    pub fn parse(text: &str) -> Result<TargetSpec> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let (name, spec) = text.split_once('=').unwrap_or((text, ""));
        if name.is_empty() || spec.is_empty() || !name.chars().all(plain) {
            return Err("a target is NAME=ENGINE[:option=value,...] or NAME=mysql://..., its \
                        name of letters, digits, - and _"
                .to_string());
        }
        if spec.contains("://") {
            let (text, engine) = spec.split_once('#').unwrap_or((spec, "InnoDB"));
            let dsn = Dsn::parse(text)?;
            if dsn.tls.is_asked() {
                return Err("sysbench 1.0 takes its certificates from fixed names in its working directory \
                            and verifies none: use a tunnel, such as ssh -L, and no part ssl... in the address"
                    .to_string());
            }
            let place = SpecPlace::Running { text: text.to_string(), dsn };
            return Ok(TargetSpec { name: name.to_string(), engine: engine.to_string(), place });
        }
        let (engine, options) = spec.split_once(':').unwrap_or((spec, ""));
        let options: Vec<&str> = options.split(',').filter(|o| !o.is_empty()).collect();
        Ok(TargetSpec::private(name, engine, &options))
    }

    pub fn is_private(&self) -> bool {
        matches!(self.place, SpecPlace::Private(_))
    }

    pub fn has_binlog(&self) -> bool {
        match &self.place {
            SpecPlace::Private(options) => !options.iter().any(|o| o == "skip_log_bin"),
            SpecPlace::Running { .. } => false,
        }
    }

    pub fn to_json(&self) -> Value {
        match &self.place {
            SpecPlace::Private(options) => {
                json!({"name": self.name, "engine": self.engine, "options": options})
            }
            SpecPlace::Running { text, .. } => {
                json!({"name": self.name, "engine": self.engine, "server": text})
            }
        }
    }
}

pub struct Target {
    pub spec: TargetSpec,
    pub dsn: Dsn,
    /// Of a private server.
    pub dir: Option<PathBuf>,
    options: Vec<String>,
    prefix: Option<PathBuf>,
    port: Option<u16>,
    pub pid: Option<u32>,
    pub data: Option<PathBuf>,
    pub device: Option<Device>,
    run_id: String,
    is_tpcc: bool,
}

impl Target {
    pub fn new(spec: &TargetSpec, plan: &Plan, servers: &Path, run_id: &str) -> Target {
        let (dsn, dir, options) = match &spec.place {
            SpecPlace::Running { dsn, .. } => (dsn.clone(), None, Vec::new()),
            SpecPlace::Private(own) => {
                let dir = servers.join(&spec.name);
                let mut options = server_options(&spec.engine, plan);
                let all = own.iter().chain(&plan.server_options);
                options.extend(all.map(|o| match o.split_once('=') {
                    Some((name, value)) => format!("--{}={value}", name.replace('_', "-")),
                    None => format!("--{}", o.replace('_', "-")),
                }));
                (Dsn::socket(dir.join("mysql.sock")), Some(dir), options)
            }
        };
        Target {
            spec: spec.clone(),
            dsn,
            dir,
            options,
            prefix: None,
            port: None,
            pid: None,
            data: None,
            device: None,
            run_id: run_id.to_string(),
            is_tpcc: plan.is_tpcc(),
        }
    }

    pub fn use_prefix(&mut self, prefix: Option<&Path>) {
        self.prefix = prefix.map(Path::to_path_buf);
    }

    /// A private server with a TCP port, for a replica of it.
    pub fn listen(&mut self) -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
        self.port = Some(listener.map_err(|e| format!("no free port: {e}"))?.port());
        Ok(())
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// A private server like this one, on another directory, as its replica.
    pub fn second(&self, dir: &Path) -> Target {
        let mut options = self.options.clone();
        options.push("--server-id=2".to_string());
        options.push("--slave-parallel-threads=4".to_string());
        Target {
            spec: self.spec.clone(),
            dsn: Dsn::socket(dir.join("mysql.sock")),
            dir: Some(dir.to_path_buf()),
            options,
            prefix: self.prefix.clone(),
            port: None,
            pid: None,
            data: None,
            device: None,
            run_id: self.run_id.clone(),
            is_tpcc: self.is_tpcc,
        }
    }

    /// Why a private server of this engine cannot be started here, if so: MyRocks is a package of
    /// its own.
    pub fn cannot_start(&self) -> Option<String> {
        self.dir.as_ref()?;
        let library = match self.spec.engine.to_lowercase().as_str() {
            "rocksdb" => "ha_rocksdb.so",
            "sluice" => "ha_sluice.so",
            _ => return None,
        };
        match server::plugin_dir(self.prefix.as_deref()) {
            Ok(dir) if dir.join(library).exists() => None,
            // Without the path: reports are shown to others.
            Ok(_) if library == "ha_rocksdb.so" => Some(format!(
                "{library} is not in the prefix; `make build KIND=myrocks` puts it there"
            )),
            Ok(_) => Some(format!("{library} is not in the prefix: run `make build`")),
            Err(why) => Some(why),
        }
    }

    /// Options from the next start on, after all others.
    pub fn set_options(&mut self, options: &[String]) {
        self.options.extend(options.iter().map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            format!("--{}={value}", name.replace('_', "-"))
        }));
    }

    /// Starts a private server; for both kinds finds out what can be observed.
    pub fn start(&mut self, threads_max: u32) -> Result<f64> {
        let mut seconds = 0.0;
        if let Some(dir) = &self.dir {
            let sluice = std::env::current_exe().map_err(|e| format!("who am I: {e}"))?;
            let mut words = vec![sluice.display().to_string()];
            words.extend(["server", "start", "--min-free-mib", "256", "--dir"].map(String::from));
            words.push(dir.display().to_string());
            if let Some(prefix) = &self.prefix {
                words.extend(["--prefix".to_string(), prefix.display().to_string()]);
            }
            if let Some(port) = self.port {
                words.extend(["--port".to_string(), port.to_string()]);
            }
            if !self.spec.engine.eq_ignore_ascii_case("sluice") {
                words.push("--without-engine".to_string());
            }
            words.push("--".to_string());
            words.extend(self.options.iter().cloned());
            seconds = tools::run_with_descriptors(&words, u64::from(threads_max) * 2 + 4096)
                .map_err(|e| format!("target {}: {e}", self.spec.name))?;
        }
        let mut client = Client::connect(&self.dsn)?;
        let variables = client.variables()?;
        self.pid = host::process_of(&variables);
        self.data = self.pid.and(variables.text("datadir").map(PathBuf::from));
        self.device = self.data.as_deref().and_then(Device::of);
        Ok(seconds)
    }

    /// What the server says about itself that matters for the results.
    pub fn settings(&self) -> Result<Value> {
        let mut client = Client::connect(&self.dsn)?;
        let variables = client.variables()?;
        let names = [
            "version",
            "version_comment",
            "log_bin",
            "sync_binlog",
            "binlog_format",
            "innodb_flush_log_at_trx_commit",
            "innodb_doublewrite",
            "innodb_buffer_pool_size",
            "innodb_log_file_size",
            "innodb_redo_log_capacity",
            "innodb_io_capacity",
            "innodb_io_capacity_max",
            "innodb_flush_method",
            "innodb_page_size",
            "innodb_read_io_threads",
            "innodb_write_io_threads",
            "sluice_buffer_pool_size",
            "sluice_log_capacity",
            "sluice_flush_log_at_trx_commit",
            "sluice_compression",
            "sluice_persist_binlog_to_redo",
            "rocksdb_block_cache_size",
            "rocksdb_use_direct_reads",
            "rocksdb_use_direct_io_for_flush_and_compaction",
            "max_connections",
        ];
        let pairs = names.iter().filter_map(|n| Some((n.to_string(), json!(variables.text(n)?))));
        Ok(Value::Object(pairs.collect()))
    }

    /// Refuses what the server cannot take, before anything is loaded.
    pub fn check(&self, threads_max: u32) -> Result<()> {
        let mut client = Client::connect(&self.dsn)?;
        let name = &self.spec.name;
        let engines = client.rows("SHOW ENGINES")?;
        let usable = engines.iter().any(|row| {
            let supported = row.get("support").is_some_and(|s| s != "NO" && s != "DISABLED");
            supported
                && row.get("engine").is_some_and(|e| e.eq_ignore_ascii_case(&self.spec.engine))
        });
        if !usable {
            return Err(format!("target {name}: the server has no engine {}", self.spec.engine));
        }
        let (variables, status) = (client.variables()?, client.status()?);
        connections_suffice(name, &variables, &status, threads_max)
    }

    pub fn schema(&self, plan: &Plan, row_bytes: u32) -> String {
        format!("{}_{row_bytes}", plan.schema)
    }

    /// Makes the schema, or takes an empty one.
    pub fn make_schema(&self, schema: &str) -> Result<()> {
        let mut client = Client::connect(&self.dsn)?;
        let sql = format!(
            "SELECT COUNT(*) AS n FROM information_schema.schemata WHERE schema_name = '{schema}'"
        );
        let exists = client.value(&sql)?.as_deref() == Some("1");
        if exists && !tables_of(&mut client, schema)?.is_empty() {
            if self.owner(&mut client, schema)?.is_none() {
                return Err(format!(
                    "target {}: the schema {schema} exists and is not empty; it was not made by \
                     this run and is left alone (see --schema)",
                    self.spec.name
                ));
            }
            self.drop_schema(schema)?;
        }
        let made = !exists || client.rows(&format!("SHOW DATABASES LIKE '{schema}'"))?.is_empty();
        if made {
            client.execute(&format!("CREATE DATABASE `{schema}`"))?;
        }
        client.execute(&format!(
            "CREATE TABLE `{schema}`.{OWNER_TABLE} (run VARCHAR(64) NOT NULL PRIMARY KEY, made TINYINT NOT \
             NULL) ENGINE={}",
            self.spec.engine
        ))?;
        let (run, made) = (&self.run_id, u8::from(made));
        client.execute(&format!("INSERT INTO `{schema}`.{OWNER_TABLE} VALUES ('{run}', {made})"))
    }

    /// Whether this run made the schema (`Some(true)`), was given it empty, or has nothing in it.
    fn owner(&self, client: &mut Client, schema: &str) -> Result<Option<bool>> {
        if !tables_of(client, schema)?.iter().any(|t| t == OWNER_TABLE) {
            return Ok(None);
        }
        let sql = format!("SELECT run, made FROM `{schema}`.{OWNER_TABLE}");
        let row = client.rows(&sql)?.pop().unwrap_or_default();
        let ours = row.get("run").is_some_and(|run| *run == self.run_id);
        Ok(ours.then(|| row.get("made").is_some_and(|made| made == "1")))
    }

    /// Removes what this run has in the schema, and the schema if it made it and is alone in it.
    pub fn drop_schema(&self, schema: &str) -> Result<()> {
        let mut client = Client::connect(&self.dsn)?;
        let Some(made) = self.owner(&mut client, schema)? else { return Ok(()) };
        let ours = |name: &String| {
            if self.is_tpcc {
                return tpcc::TABLES.contains(&name.as_str());
            }
            let number = name.strip_prefix("sbtest").unwrap_or("x");
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
        };
        let tables = tables_of(&mut client, schema)?;
        let (mine, others): (Vec<_>, Vec<_>) = tables.into_iter().partition(ours);
        for table in mine {
            client.execute(&format!("DROP TABLE `{schema}`.`{table}`"))?;
        }
        // The owner goes last: until then an interrupted clean-up can be repeated.
        if made && others.iter().all(|name| name == OWNER_TABLE) {
            return client.execute(&format!("DROP DATABASE `{schema}`"));
        }
        client.execute(&format!("DROP TABLE `{schema}`.{OWNER_TABLE}"))
    }

    pub fn data_bytes(&self, schema: &str) -> u64 {
        if let (Some(_), Some(data)) = (&self.dir, &self.data) {
            return directory_bytes(data);
        }
        let sql = format!(
            "SELECT CAST(SUM(data_length + index_length) AS UNSIGNED) AS n FROM \
             information_schema.tables WHERE table_schema = '{schema}'"
        );
        let size = Client::connect(&self.dsn).and_then(|mut client| client.value(&sql));
        size.ok().flatten().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Stops a private server. Its directory stays.
    pub fn stop(&mut self) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        self.pid = None;
        if !dir.exists() {
            return Ok(());
        }
        let sluice = std::env::current_exe().map_err(|e| format!("who am I: {e}"))?;
        let words = ["server", "stop", "--timeout", "120", "--dir"].map(String::from);
        let mut all = vec![sluice.display().to_string()];
        all.extend(words);
        all.push(dir.display().to_string());
        tools::run_with_descriptors(&all, 0).map(|_| ())
    }

    /// Stops and removes a private server; on others removes the schemas.
    pub fn clean_up(&mut self, schemas: &[String]) -> Result<()> {
        let Some(dir) = self.dir.clone() else {
            return schemas.iter().try_for_each(|schema| self.drop_schema(schema));
        };
        self.stop()?;
        if dir.join("sluice.server").exists() {
            let failed = |e| format!("cannot remove {}: {e}", dir.display());
            fs::remove_dir_all(&dir).map_err(failed)?;
        }
        Ok(())
    }
}

fn tables_of(client: &mut Client, schema: &str) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT table_name AS t FROM information_schema.tables WHERE table_schema = '{schema}'"
    );
    Ok(client.rows(&sql)?.into_iter().filter_map(|mut row| row.remove("t")).collect())
}

fn connections_suffice(
    name: &str,
    variables: &Counters,
    status: &Counters,
    threads: u32,
) -> Result<()> {
    let most = variables.count("max_connections");
    let used = status.count("threads_connected");
    if used + f64::from(threads) <= most {
        return Ok(());
    }
    Err(format!(
        "target {name}: {threads} threads do not fit into max_connections = {most}, of which {used} \
         are in use"
    ))
}

/// The same for every engine: each commit is durable, in the engine and in the binlog, before it
/// is acknowledged; pools and logs of one size, data files past the kernel's cache.
fn server_options(engine: &str, plan: &Plan) -> Vec<String> {
    let mut options = vec![
        "--max-prepared-stmt-count=1048576".to_string(),
        format!("--max-connections={}", plan.threads_max() + 100),
        format!("--table-open-cache={}", plan.tables * 4 + 2000),
        format!("--open-files-limit={}", plan.threads_max() * 2 + 4096),
        "--binlog-format=ROW".to_string(),
        "--sync-binlog=1".to_string(),
        "--expire-logs-days=0".to_string(),
        "--innodb-flush-method=O_DIRECT".to_string(),
        "--innodb-flush-log-at-trx-commit=1".to_string(),
    ];
    let (pool, log) = (plan.pool_mib, plan.log_mib);
    if engine.eq_ignore_ascii_case("innodb") {
        options.push(format!("--innodb-buffer-pool-size={pool}M"));
        options.push(format!("--innodb-log-file-size={log}M"));
        return options;
    }
    // Tables of the server itself are InnoDB's: a small pool is enough for them.
    options.push("--innodb-buffer-pool-size=16M".to_string());
    if engine.eq_ignore_ascii_case("rocksdb") {
        options.push("--plugin-load-add=ha_rocksdb.so".to_string());
        options.push(format!("--loose-rocksdb-block-cache-size={pool}M"));
        options.push("--loose-rocksdb-flush-log-at-trx-commit=1".to_string());
        // As InnoDB's O_DIRECT: else the kernel's cache serves it, which no parameter bounds.
        options.push("--loose-rocksdb-use-direct-reads=1".to_string());
        options.push("--loose-rocksdb-use-direct-io-for-flush-and-compaction=1".to_string());
    } else {
        options.push(format!("--loose-sluice-buffer-pool-size={pool}M"));
        options.push(format!("--loose-sluice-log-capacity={log}M"));
        options.push("--loose-sluice-flush-log-at-trx-commit=1".to_string());
    }
    options
}

/// Blocks of all files but the binlogs, which are not the engine's.
fn directory_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| {
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { return 0 };
        let binlog = entry.file_name().to_string_lossy().starts_with("sluice-bin.");
        match (meta.is_dir(), binlog) {
            (true, _) => directory_bytes(&entry.path()),
            (false, true) => 0,
            (false, false) => meta.blocks() * 512,
        }
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications() {
        let spec = TargetSpec::parse("nodw=InnoDB:innodb_doublewrite=0,sync_binlog=0").unwrap();
        assert_eq!(spec.engine, "InnoDB");
        assert!(spec.is_private() && spec.has_binlog());
        assert_eq!(spec.to_json()["options"][1], "sync_binlog=0");
        let spec = TargetSpec::parse("prod=mysql://me@db:3307/?password-env=P#RocksDB").unwrap();
        assert_eq!(spec.engine, "RocksDB");
        assert!(!spec.is_private());
        assert!(!TargetSpec::parse("a=Sluice:skip_log_bin").unwrap().has_binlog());
        for bad in ["InnoDB", "=InnoDB", "a b=InnoDB", "a=", "a=mysql://u:p@h"] {
            assert!(TargetSpec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn too_many_threads_are_refused() {
        let variables = Counters::parse("max_connections 100");
        let status = Counters::parse("Threads_connected 40");
        assert!(connections_suffice("t", &variables, &status, 60).is_ok());
        let reason = connections_suffice("t", &variables, &status, 61).unwrap_err();
        assert!(reason.contains("max_connections = 100"), "{reason}");
    }
}
