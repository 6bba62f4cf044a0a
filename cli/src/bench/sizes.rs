//! What a private server has in memory and on the disk, and what keeps it there.

use super::target::Target;
use crate::db::Client;
use serde_json::{json, Value};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Allocated bytes of store and log, and the engine's backlog; null on servers that were given.
pub fn of(target: &Target) -> Value {
    let (Some(_), Some(data)) = (&target.dir, &target.data) else { return Value::Null };
    let Ok(status) = Client::connect(&target.dsn).and_then(|mut client| client.status()) else {
        return Value::Null;
    };
    let (store_bytes, log_bytes) = store_and_log(&target.spec.engine, data);
    let between =
        |later: &str, earlier: &str| Some(status.number(later)? - status.number(earlier)?);
    json!({
        "store_bytes": store_bytes,
        "log_bytes": log_bytes,
        // Of the log, what recovery or a reader still needs.
        "log_used_bytes": between("sluice_log_lsn", "sluice_log_oldest_lsn"),
        "live_bytes": status.number("sluice_store_live_bytes"),
        "dead_bytes": status.number("sluice_store_dead_bytes"),
        "pin_snapshots_bytes": status.number("sluice_log_pin_snapshots_bytes"),
        "pin_purge_bytes": status.number("sluice_log_pin_purge_bytes"),
        "versions_moved": status.number("sluice_old_versions_moved"),
        "backlog": status.number("sluice_purge_backlog")
            .or_else(|| status.number("innodb_history_list_length")),
    })
}

/// For InnoDB the store is its table files, system and undo tablespaces.
pub fn store_and_log(engine: &str, data: &Path) -> (u64, u64) {
    if engine.eq_ignore_ascii_case("sluice") {
        let log = bytes(&data.join("sluice/log"));
        return (bytes(&data.join("sluice")).saturating_sub(log), log);
    }
    let named = |name: &str, prefix: &str| name.starts_with(prefix);
    let mut sums = (0, 0);
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_schema = entry.path().is_dir() && named(&name, "sluice_bench");
        if named(&name, "ib_logfile") {
            sums.1 += bytes(&entry.path());
        } else if named(&name, "ibdata") || named(&name, "undo") || is_schema {
            sums.0 += bytes(&entry.path());
        }
    }
    sums
}

/// Blocks of a file, or of all below a directory. Files come and go meanwhile.
fn bytes(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.blocks() * 512;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| bytes(&entry.path())).sum()
}

/// A line of /proc/PID/status, in KiB: VmRSS now, VmHWM the most ever.
pub fn memory_kib(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_and_log_of_both_engines() {
        let dir = std::env::temp_dir().join(format!("sluice-sizes-{}", std::process::id()));
        let make = |path: &str, kib: usize| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![1; kib << 10]).unwrap();
        };
        make("sluice/log/1", 64);
        make("sluice/pages", 128);
        make("ib_logfile0", 16);
        make("ibdata1", 32);
        make("sluice_bench_188/t.ibd", 8);
        make("mysql/t.ibd", 512);
        let kib = |(store, log): (u64, u64)| (store >> 10, log >> 10);
        assert_eq!(kib(store_and_log("Sluice", &dir)), (128, 64));
        assert_eq!(kib(store_and_log("InnoDB", &dir)), (40, 16));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn memory_of_ourselves() {
        let me = std::process::id();
        let (now, most) = (memory_kib(me, "VmRSS").unwrap(), memory_kib(me, "VmHWM").unwrap());
        assert!(now > 0 && now <= most + 1024);
        assert_eq!(memory_kib(u32::MAX, "VmRSS"), None);
    }
}
