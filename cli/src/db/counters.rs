//! Status and variables by name, and the bytes that a server writes, by cause.

use super::client::Table;
use std::collections::BTreeMap;

/// Names in lower case, values as the server prints them.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    values: BTreeMap<String, String>,
}

impl Counters {
    /// From rows of two columns named `variable_name` and `value`.
    pub fn new(table: Table) -> Counters {
        let pair = |mut row: super::client::Row| {
            Some((row.remove("variable_name")?.to_lowercase(), row.remove("value")?))
        };
        Counters { values: table.into_iter().filter_map(pair).collect() }
    }

    #[cfg(test)]
    pub fn parse(text: &str) -> Counters {
        let pair = |line: &str| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.to_lowercase(), value.trim().to_string()))
        };
        Counters { values: text.lines().filter_map(pair).collect() }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    pub fn count(&self, name: &str) -> f64 {
        self.number(name).unwrap_or(0.0)
    }

    /// ON, YES, 1 and the like.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(|v| matches!(v.to_uppercase().as_str(), "ON" | "1" | "YES"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Growth since `before`; a counter that went back (the server was restarted) counts from 0.
    pub fn since(&self, before: &Counters, name: &str) -> f64 {
        let (now, then) = (self.count(name), before.count(name));
        if now >= then {
            now - then
        } else {
            now
        }
    }

    #[cfg(test)]
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.values.insert(name.to_string(), value.to_string());
    }
}

/// Why bytes are written, from the log to the device.
pub const CAUSES: [&str; 7] = ["binlog", "log", "doublewrite", "pages", "gc", "map", "beyond"];

/// Bytes for each of `CAUSES` but the last, which only the device knows.
pub type Causes = [f64; 6];

/// The bytes that a server has written since its start, over all engines that it runs.
pub fn bytes_by_cause(status: &Counters, page_bytes: f64) -> Causes {
    let n = |name: &str| status.count(name);
    // What went to the file, padding included, where the plugin counts it.
    let sluice_pages = match status.number("sluice_page_written_bytes") {
        Some(bytes) => (bytes - n("sluice_page_gc_bytes")).max(0.0),
        None => n("sluice_page_image_bytes"),
    };
    [
        n("binlog_bytes_written"),
        n("innodb_os_log_written")
            + n("sluice_log_written_bytes")
            + n("sluice_log_made_bytes")
            + n("rocksdb_wal_bytes"),
        n("innodb_dblwr_pages_written") * page_bytes,
        n("innodb_pages_written") * page_bytes + sluice_pages + n("rocksdb_flush_write_bytes"),
        n("sluice_page_gc_bytes") + n("rocksdb_compact_write_bytes"),
        n("sluice_page_map_bytes") + n("sluice_superblock_bytes"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_counter_counts_from_zero() {
        let before = Counters::parse("A 100\nB 5");
        let now = Counters::parse("A 130\nB 2");
        assert_eq!(now.since(&before, "a"), 30.0);
        assert_eq!(now.since(&before, "b"), 2.0);
        assert_eq!(now.since(&before, "c"), 0.0);
    }

    #[test]
    fn bytes_are_named_by_cause() {
        let status = Counters::parse(
            "Binlog_bytes_written 10\nInnodb_os_log_written 20\nInnodb_dblwr_pages_written 2\n\
             Innodb_pages_written 3\nSluice_log_written_bytes 5\nSluice_page_image_bytes 7\n\
             Sluice_page_gc_bytes 11\nSluice_page_map_bytes 13\nSluice_superblock_bytes 1\n",
        );
        assert_eq!(
            bytes_by_cause(&status, 16384.0),
            [10.0, 25.0, 32768.0, 3.0 * 16384.0 + 7.0, 11.0, 14.0]
        );
        let status = Counters::parse(
            "Sluice_log_written_bytes 5\nSluice_log_made_bytes 100\nSluice_page_image_bytes 7\n\
             Sluice_page_gc_bytes 11\nSluice_page_written_bytes 31\n",
        );
        assert_eq!(bytes_by_cause(&status, 16384.0), [0.0, 105.0, 0.0, 20.0, 11.0, 0.0]);
    }
}
