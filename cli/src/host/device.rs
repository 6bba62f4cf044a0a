//! The block device below a path, and its counters since boot.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub struct Device {
    /// The whole disk: a partition counts no flushes.
    sys: PathBuf,
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceCounters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub busy_ms: u64,
    pub flushes: u64,
}

impl Device {
    /// `None` when `path` is not on a block device (tmpfs, overlay, network).
    pub fn of(path: &Path) -> Option<Device> {
        let number = fs::metadata(path).ok()?.dev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let sys = if sys.join("partition").exists() { sys.parent()?.to_path_buf() } else { sys };
        let name = sys.file_name()?.to_string_lossy().into_owned();
        Some(Device { sys, name })
    }

    pub fn counters(&self) -> Option<DeviceCounters> {
        parse_stat(&fs::read_to_string(self.sys.join("stat")).ok()?)
    }

    /// A file of the device's `queue` directory.
    pub fn queue(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.sys.join("queue").join(name)).ok()?;
        Some(text.trim().to_string())
    }

    /// Whether the device wants to be told what is free.
    pub fn takes_discards(&self) -> bool {
        self.queue("discard_max_bytes").and_then(|n| n.parse().ok()).unwrap_or(0u64) > 0
    }

    pub fn rotational(&self) -> Option<bool> {
        Some(self.queue("rotational")? == "1")
    }
}

impl DeviceCounters {
    pub fn since(&self, before: &DeviceCounters) -> DeviceCounters {
        let less = u64::saturating_sub;
        DeviceCounters {
            reads: less(self.reads, before.reads),
            read_bytes: less(self.read_bytes, before.read_bytes),
            writes: less(self.writes, before.writes),
            written_bytes: less(self.written_bytes, before.written_bytes),
            busy_ms: less(self.busy_ms, before.busy_ms),
            flushes: less(self.flushes, before.flushes),
        }
    }
}

/// Documentation/block/stat.rst of Linux: flushes stand at the 16th place since 5.5.
fn parse_stat(text: &str) -> Option<DeviceCounters> {
    let field: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(DeviceCounters {
        reads: *field.first()?,
        read_bytes: field.get(2)? * SECTOR_BYTES,
        writes: *field.get(4)?,
        written_bytes: field.get(6)? * SECTOR_BYTES,
        busy_ms: *field.get(9)?,
        flushes: field.get(15).copied().unwrap_or(0),
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub kind: String,
    pub options: String,
    pub source: String,
}

impl Mount {
    /// A file system of Linux on a device of its own, whose mount options we know.
    pub fn is_native(&self) -> bool {
        matches!(self.kind.as_str(), "ext4" | "xfs" | "btrfs" | "f2fs")
    }
}

/// Where services that run regularly are enabled, and the one that discards what is free.
const TIMERS: [&str; 3] = [
    "/etc/systemd/system/timers.target.wants/fstrim.timer",
    "/usr/lib/systemd/system/timers.target.wants/fstrim.timer",
    "/etc/cron.weekly/fstrim",
];

/// Whether the file system's free space is told to the device, by a mount option or regularly;
/// `None` where the device does not want to know, or nobody knows how.
pub fn is_trimmed(mount: &Mount, device: &Device) -> Option<bool> {
    let told = mount.options.split(',').any(|option| option.starts_with("discard"))
        || TIMERS.iter().any(|path| Path::new(path).exists());
    (mount.is_native() && device.takes_discards()).then_some(told)
}

pub fn mount_of(path: &Path) -> Option<Mount> {
    let path = fs::canonicalize(path).ok()?;
    deepest_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

fn deepest_mount(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        Some(Mount {
            point: PathBuf::from(left.get(4)?.replace("\\040", " ")),
            kind: right.first()?.to_string(),
            options: format!("{},{}", left.get(5)?, right.get(2)?),
            source: right.get(1)?.to_string(),
        })
    };
    let mounts = mountinfo.lines().filter_map(mount).filter(|m| path.starts_with(&m.point));
    // The later of two mounts at one place hides the earlier.
    mounts.max_by_key(|m| m.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_recorded_disk() {
        let line = "  100 5 800 40 200 6 1600 80 0 70 120 1 2 3 4 33 9\n";
        let counters = parse_stat(line).unwrap();
        assert_eq!(counters.reads, 100);
        assert_eq!(counters.read_bytes, 800 * 512);
        assert_eq!(counters.writes, 200);
        assert_eq!(counters.written_bytes, 1600 * 512);
        assert_eq!((counters.busy_ms, counters.flushes), (70, 33));
        assert_eq!(parse_stat("1 2 3"), None);
        assert_eq!(parse_stat("1 2 3 4 5 6 7 8 9 10 11").unwrap().flushes, 0);
    }

    #[test]
    fn the_deepest_mount_holds_the_path() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    30 22 0:25 / /data rw,noatime - xfs /dev/vdb rw,inode64\n";
        let mount = deepest_mount(text, Path::new("/data/mysql")).unwrap();
        assert_eq!((mount.kind.as_str(), mount.options.as_str()), ("xfs", "rw,noatime,rw,inode64"));
        assert_eq!(deepest_mount(text, Path::new("/database")).unwrap().kind, "ext4");
    }
}
