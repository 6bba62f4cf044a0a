//! Parameters of the measurements that are more than sysbench points (`trial`).

use crate::Result;
use clap::{Args, ValueEnum};
use serde_json::{json, Value};

/// When a server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Right after the commit was acknowledged
    Commit,
    /// After half of the transaction's statements
    Middle,
}

/// The statement of one large transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum TxnStatement {
    Insert,
    Update,
    /// Of a quarter of the rows, in random order
    RandomUpdate,
    Delete,
}

impl When {
    pub fn name(self) -> &'static str {
        match self {
            When::Commit => "commit",
            When::Middle => "middle",
        }
    }
}

impl TxnStatement {
    pub fn name(self) -> &'static str {
        match self {
            TxnStatement::Insert => "insert",
            TxnStatement::Update => "update",
            TxnStatement::RandomUpdate => "random_update",
            TxnStatement::Delete => "delete",
        }
    }
}

#[derive(Args, Clone, Default)]
pub struct ParamArgs {
    /// restart: GB of rows that the transaction writes
    #[arg(long, value_delimiter = ',')]
    pub size_gb: Vec<f64>,
    /// restart: when the server is killed
    #[arg(long, value_delimiter = ',')]
    pub when: Vec<When>,
    /// restart: insert, random_update; rollback: update, insert, delete
    #[arg(long, value_delimiter = ',')]
    pub change: Vec<TxnStatement>,
    /// restart: seconds of sysbench before the transaction, and after the restart
    #[arg(long)]
    pub tps_seconds: Option<u32>,
    /// restart: drop the system's cache of files before each start (needs root)
    #[arg(long)]
    pub cold: bool,
    /// replica-lag: engines of the replica
    #[arg(long, value_delimiter = ',')]
    pub replica_engines: Vec<String>,
    /// replica-lag: threads that apply
    #[arg(long, value_delimiter = ',')]
    pub apply_threads: Vec<u32>,
    /// replica-receive: how many replicas receive
    #[arg(long, value_delimiter = ',')]
    pub receivers: Vec<u32>,
    /// large-rows: MiB of one value
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1023))]
    pub value_mib: Vec<u64>,
    /// tpcc: warehouses, each of about 80 MB
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub warehouses: Option<u32>,
    /// tpcc: part of the specification's rows below each warehouse
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub scale_percent: Option<u32>,
    /// soak, old-snapshot: minutes of load in all; sets --repetitions
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub minutes: Option<u32>,
}

/// An empty list is a parameter that the preset does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    pub size_gb: Vec<f64>,
    pub when: Vec<When>,
    pub change: Vec<TxnStatement>,
    pub tps_seconds: Option<u32>,
    pub cold: Option<bool>,
    pub replica_engines: Vec<String>,
    pub apply_threads: Vec<u32>,
    pub receivers: Vec<u32>,
    pub value_mib: Vec<u64>,
    pub warehouses: Option<u32>,
    pub scale_percent: Option<u32>,
    pub minutes: Option<u32>,
}

impl Params {
    /// Refuses what the preset would ignore.
    pub fn override_with(&mut self, args: &ParamArgs) -> Result<()> {
        list("--size-gb", &mut self.size_gb, &args.size_gb)?;
        list("--when", &mut self.when, &args.when)?;
        list("--change", &mut self.change, &args.change)?;
        one("--tps-seconds", &mut self.tps_seconds, args.tps_seconds)?;
        one("--cold", &mut self.cold, args.cold.then_some(true))?;
        list("--replica-engines", &mut self.replica_engines, &args.replica_engines)?;
        list("--apply-threads", &mut self.apply_threads, &args.apply_threads)?;
        list("--receivers", &mut self.receivers, &args.receivers)?;
        list("--value-mib", &mut self.value_mib, &args.value_mib)?;
        one("--warehouses", &mut self.warehouses, args.warehouses)?;
        one("--scale-percent", &mut self.scale_percent, args.scale_percent)?;
        one("--minutes", &mut self.minutes, args.minutes)?;
        match self.size_gb.iter().find(|gb| !(0.001..=1000.0).contains(*gb)) {
            Some(gb) => Err(format!("--size-gb {gb} is not between 0.001 and 1000")),
            None => Ok(()),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "size_gb": self.size_gb,
            "when": self.when.iter().map(|w| w.name()).collect::<Vec<_>>(),
            "change": self.change.iter().map(|c| c.name()).collect::<Vec<_>>(),
            "tps_seconds": self.tps_seconds,
            "cold": self.cold,
            "replica_engines": self.replica_engines,
            "apply_threads": self.apply_threads,
            "receivers": self.receivers,
            "value_mib": self.value_mib,
            "warehouses": self.warehouses,
            "scale_percent": self.scale_percent,
            "minutes": self.minutes,
        })
    }
}

fn no_parameter(name: &str) -> String {
    format!("{name} is no parameter of this preset")
}

fn list<T: Clone>(name: &str, ours: &mut Vec<T>, theirs: &[T]) -> Result<()> {
    match (theirs.is_empty(), ours.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(no_parameter(name)),
        (false, false) => {
            *ours = theirs.to_vec();
            Ok(())
        }
    }
}

fn one<T>(name: &str, ours: &mut Option<T>, theirs: Option<T>) -> Result<()> {
    match (theirs, ours.is_some()) {
        (None, _) => Ok(()),
        (Some(_), false) => Err(no_parameter(name)),
        (theirs, true) => {
            *ours = theirs;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_preset_does_not_have_is_refused() {
        let mut params = Params { size_gb: vec![1.0], tps_seconds: Some(0), ..Params::default() };
        let args =
            ParamArgs { size_gb: vec![5.0, 10.0], tps_seconds: Some(12), ..Default::default() };
        params.override_with(&args).unwrap();
        assert_eq!((&params.size_gb[..], params.tps_seconds), (&[5.0, 10.0][..], Some(12)));
        for args in [
            ParamArgs { minutes: Some(5), ..Default::default() },
            ParamArgs { cold: true, ..Default::default() },
            ParamArgs { receivers: vec![1], ..Default::default() },
            ParamArgs { warehouses: Some(1), ..Default::default() },
        ] {
            assert!(params.override_with(&args).unwrap_err().contains("no parameter"));
        }
        let args = ParamArgs { size_gb: vec![0.0], ..Default::default() };
        assert!(params.override_with(&args).is_err());
    }
}
