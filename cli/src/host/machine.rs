//! This machine, for reports.

use super::device::{mount_of, Device};
use super::statx;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;

pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// What this process may use: the machine's memory, or its control group's limit.
pub fn memory_bytes() -> Option<u64> {
    let total = meminfo_bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
    Some(total.min(limit))
}

fn meminfo_bytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

pub fn free_bytes(path: &Path) -> Option<u64> {
    statx::space(path).map(|(free, _)| free)
}

pub fn machine(data: &Path) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let system = read("/etc/os-release");
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let device = Device::of(data);
    let mount = mount_of(data);
    let queue = |name: &str| device.as_ref().and_then(|d| d.queue(name));
    json!({
        "system": system.map(|s| s.trim_matches('"')),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpu": model.unwrap_or("unknown"),
        "processors": processors(),
        "memory_bytes": memory_bytes(),
        "device": device.as_ref().map(|d| d.name.as_str()),
        "rotational": device.as_ref().and_then(|d| d.rotational()),
        "physical_block_bytes": queue("physical_block_size"),
        "write_cache": queue("write_cache"),
        "file_system": mount.as_ref().map(|m| m.kind.as_str()),
        "mount_options": mount.as_ref().map(|m| m.options.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       24612345 kB\nMemFree: 12 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24_612_345 * 1024));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }
}
