//! Bytes by table, of a server with Sluice: INFORMATION_SCHEMA.SLUICE_TABLE_WRITES.

use crate::db::{Client, Row};
use crate::Result;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Causes, as the columns that end in `_bytes` are called.
pub const CAUSES: [&str; 6] = ["log", "build", "eviction", "checkpoint", "gc", "other"];

/// Bytes by cause.
type Bytes = [f64; CAUSES.len()];

/// Where the bytes of a table go when it is dropped.
const DROPPED: &str = "(dropped)";

/// A table, a partition, or what is no table's: that has no schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    schema: Option<String>,
    table: String,
    partition: Option<String>,
    subpartition: Option<String>,
}

/// Since the start of the server.
pub type ByTable = BTreeMap<TableName, Bytes>;

/// Bytes written for a table in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TableWrites {
    pub name: TableName,
    pub bytes: Bytes,
    pub since_start: f64,
}

pub fn read(client: &mut Client) -> Result<ByTable> {
    let rows = client.rows("SELECT * FROM information_schema.SLUICE_TABLE_WRITES")?;
    Ok(rows.into_iter().map(row_of).collect())
}

fn row_of(mut row: Row) -> (TableName, Bytes) {
    let number = |cause: &str| row.get(&format!("{cause}_bytes"))?.parse().ok();
    let bytes = CAUSES.map(|cause| number(cause).unwrap_or(0.0));
    let name = TableName {
        schema: row.remove("table_schema"),
        table: row.remove("table_name").unwrap_or_default(),
        partition: row.remove("partition_name"),
        subpartition: row.remove("subpartition_name"),
    };
    (name, bytes)
}

/// Bytes written in between, most first. A table that was dropped or renamed meanwhile has its bytes in
/// another row: they are taken off there.
pub fn between(then: &ByTable, now: &ByTable) -> Vec<TableWrites> {
    let mut gone = Bytes::default();
    for (_, bytes) in then.iter().filter(|(name, _)| !now.contains_key(name)) {
        (0..CAUSES.len()).for_each(|i| gone[i] += bytes[i]);
    }
    let mut out = Vec::new();
    let mut add = |name: &TableName, bytes: &Bytes, is_heir: bool| {
        let before = then.get(name).copied().unwrap_or_default();
        let mut grown = Bytes::default();
        for i in 0..CAUSES.len() {
            grown[i] = (bytes[i] - before[i]).max(0.0);
            if is_heir {
                let moved = gone[i].min(grown[i]);
                (grown[i], gone[i]) = (grown[i] - moved, gone[i] - moved);
            }
        }
        out.push(TableWrites { name: name.clone(), bytes: grown, since_start: bytes.iter().sum() });
    };
    let is_dropped = |name: &TableName| name.schema.is_none() && name.table == DROPPED;
    for (name, bytes) in now.iter().filter(|(name, _)| is_dropped(name)) {
        add(name, bytes, true);
    }
    for (name, bytes) in now.iter().filter(|(name, _)| !is_dropped(name)) {
        add(name, bytes, !then.contains_key(name));
    }
    out.sort_by(|a, b| b.total().total_cmp(&a.total()));
    out
}

impl TableName {
    pub fn shown(&self) -> String {
        let mut text = match &self.schema {
            Some(schema) => format!("{schema}.{}", self.table),
            None => self.table.clone(),
        };
        for part in [&self.partition, &self.subpartition].into_iter().flatten() {
            text += &format!(" {part}");
        }
        text
    }
}

impl TableWrites {
    pub fn total(&self) -> f64 {
        self.bytes.iter().sum()
    }

    pub fn to_json(&self) -> Value {
        let pairs = CAUSES.iter().zip(&self.bytes);
        let causes: serde_json::Map<_, _> =
            pairs.map(|(cause, bytes)| (cause.to_string(), json!(bytes))).collect();
        json!({
            "schema": self.name.schema, "table": self.name.table,
            "partition": self.name.partition, "subpartition": self.name.subpartition,
            "bytes_by_cause": causes, "bytes": self.total(), "bytes_since_start": self.since_start,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> TableWrites {
        TableWrites { name: name("d", "t"), bytes: bytes(1e6, 2e6), since_start: 5e6 }
    }

    fn name(schema: &str, table: &str) -> TableName {
        let schema = Some(schema.to_string()).filter(|s| !s.is_empty());
        TableName { schema, table: table.to_string(), partition: None, subpartition: None }
    }

    fn bytes(log: f64, gc: f64) -> Bytes {
        [log, 0.0, 0.0, 0.0, gc, 0.0]
    }

    fn grown(then: &[(TableName, Bytes)], now: &[(TableName, Bytes)]) -> Vec<(String, f64)> {
        let (then, now) = (then.iter().cloned().collect(), now.iter().cloned().collect());
        between(&then, &now).iter().map(|row| (row.name.shown(), row.total())).collect()
    }

    fn rows(wanted: &[(&str, f64)]) -> Vec<(String, f64)> {
        wanted.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect()
    }

    #[test]
    fn tables_stand_in_the_order_of_their_bytes() {
        let then = [(name("d", "a"), bytes(5.0, 1.0)), (name("d", "b"), bytes(0.0, 0.0))];
        let now = [(name("d", "a"), bytes(6.0, 1.0)), (name("d", "b"), bytes(2.0, 3.0))];
        assert_eq!(grown(&then, &now), rows(&[("d.b", 5.0), ("d.a", 1.0)]));
    }

    #[test]
    fn what_a_dropped_or_renamed_table_had_is_not_written_again() {
        let (a, b) = (name("d", "a"), name("d", "b"));
        let dropped = name("", DROPPED);
        let then = [(a.clone(), bytes(50.0, 10.0)), (dropped.clone(), bytes(7.0, 0.0))];
        let now = [(dropped.clone(), bytes(60.0, 10.0))];
        assert_eq!(grown(&then, &now), rows(&[("(dropped)", 3.0)]));
        let now = [(b, bytes(51.0, 10.0)), (dropped, bytes(7.0, 0.0))];
        assert_eq!(grown(&then, &now), rows(&[("d.b", 1.0), ("(dropped)", 0.0)]));
    }

    #[test]
    fn a_row_of_the_server_is_read_by_names() {
        let row = [
            ("table_schema", "d"),
            ("table_name", "t"),
            ("partition_name", "p0"),
            ("log_bytes", "3"),
            ("gc_bytes", "4"),
            ("total_bytes", "7"),
        ];
        let row = row.map(|(name, value)| (name.to_string(), value.to_string()));
        let (name, read) = row_of(row.into());
        assert_eq!((name.shown(), read), ("d.t p0".to_string(), bytes(3.0, 4.0)));
    }
}
