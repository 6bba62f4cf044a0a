//! How a server is set up whose data does not fit into memory, and how often it met what that brings.

use sluice_rig::client::{Client, Reply};
use sluice_rig::rng::Rng;
use std::path::Path;

/// A pool that is smaller than the data, so that pages owe changes and are read again; the log as it may be
/// written, with deltas of pages or without; and loads that a statement of a few rows begins.
pub fn draw(rng: &mut Rng) -> Vec<String> {
    let mut pick = |name: &str, values: &[&str]| {
        format!("--loose-sluice-{name}={}", rng.pick(values).unwrap_or(&""))
    };
    vec![
        pick("buffer-pool-size", &["4M", "8M", "32M"]),
        pick("space-amplification-pct", &["110", "160"]),
        pick("log-compression", &["none", "lz4", "zstd"]),
        pick("page-deltas", &["OFF", "ON"]),
        pick("bulk-insert-size", &["1M", "2K", "2K", "2K"]),
    ]
}

/// What a run must meet to be worth something.
#[derive(Default)]
pub struct Met {
    /// Evictions that left the changes of a page in place of an image.
    pub owed: u64,
    /// Changes of pages that left memory for the log.
    pub deltas: u64,
    /// Statements that loaded their table.
    pub loads: u64,
}

impl Met {
    /// Since its start, by the server's own count.
    fn of_server(socket: &Path) -> Reply<Met> {
        let mut client = Client::connect(socket, "")?;
        let sql = "SHOW GLOBAL STATUS LIKE 'Sluice\\_bu%'";
        let counts: Vec<(String, String)> = client.rows(sql)?;
        let count = |name: &str| {
            let found = counts.iter().find(|(known, _)| known == name);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        Ok(Met {
            owed: count("Sluice_buffer_pool_evictions_owed"),
            deltas: count("Sluice_buffer_pool_deltas"),
            loads: count("Sluice_bulk_inserts"),
        })
    }

    /// Adds what this server has met. One that is gone, or knows no such counts, adds nothing.
    pub fn count(&mut self, socket: &Path) {
        let Ok(met) = Met::of_server(socket) else { return };
        self.owed += met.owed;
        self.deltas += met.deltas;
        self.loads += met.loads;
    }
}
