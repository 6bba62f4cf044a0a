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
    /// Told to be free, by a mount option, fstrim or a file with a hole. `None` before Linux 4.18.
    pub discarded_bytes: Option<u64>,
}

impl Device {
    /// `None` when `path` is not on a block device (tmpfs, overlay, network).
    pub fn of(path: &Path) -> Option<Device> {
        Device::at(Device::sys_of(path)?)
    }

    fn at(sys: PathBuf) -> Option<Device> {
        let sys = if sys.join("partition").exists() { sys.parent()?.to_path_buf() } else { sys };
        let name = sys.file_name()?.to_string_lossy().into_owned();
        Some(Device { sys, name })
    }

    /// The directory of the disk or the partition itself.
    pub fn sys_of(path: &Path) -> Option<PathBuf> {
        let number = fs::metadata(path).ok()?.dev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
    }

    /// The disks that it is made of: itself, or those below a volume, a RAID or an encrypted device.
    pub fn disks(&self) -> Vec<Device> {
        let below: Vec<Device> = fs::read_dir(self.sys.join("slaves"))
            .into_iter()
            .flat_map(|all| all.flatten())
            .filter_map(|entry| Device::at(fs::canonicalize(entry.path()).ok()?))
            .collect();
        if below.is_empty() {
            return vec![self.clone()];
        }
        below.iter().flat_map(Device::disks).collect()
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
            discarded_bytes: self
                .discarded_bytes
                .zip(before.discarded_bytes)
                .map(|(now, then)| less(now, then)),
        }
    }

    /// Of two devices. Their times overlap, so the busier one counts.
    pub fn and(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            busy_ms: self.busy_ms.max(other.busy_ms),
            flushes: self.flushes + other.flushes,
            discarded_bytes: self.discarded_bytes.zip(other.discarded_bytes).map(|(a, b)| a + b),
        }
    }
}

/// Documentation/block/stat.rst and admin-guide/iostats.rst of Linux: discards stand at the 12th to
/// the 15th place since 4.18, flushes at the 16th since 5.5.
fn parse_stat(text: &str) -> Option<DeviceCounters> {
    let field: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(DeviceCounters {
        reads: *field.first()?,
        read_bytes: field.get(2)? * SECTOR_BYTES,
        writes: *field.get(4)?,
        written_bytes: field.get(6)? * SECTOR_BYTES,
        busy_ms: *field.get(9)?,
        flushes: field.get(15).copied().unwrap_or(0),
        discarded_bytes: field.get(13).map(|sectors| sectors * SECTOR_BYTES),
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
        assert_eq!(counters.discarded_bytes, Some(3 * 512));
        assert_eq!(parse_stat("1 2 3"), None);
        let old = parse_stat("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.flushes, old.discarded_bytes), (0, None), "an old kernel counts neither");
    }

    #[test]
    fn counters_of_two_devices() {
        let data = parse_stat("9 0 8 0 9 0 10 0 0 70 0 2 0 5 0 4 0").unwrap();
        let log = parse_stat("1 0 8 0 1 0 6 0 0 90 0 2 0 0 0 7 0").unwrap();
        let both = data.and(log);
        assert_eq!((both.written_bytes, both.flushes, both.busy_ms), (16 * 512, 11, 90));
        assert_eq!(both.discarded_bytes, Some(5 * 512));
        assert_eq!(both.since(&data).written_bytes, 6 * 512);
    }

    #[test]
    fn disks_are_below_volumes() {
        let root = std::env::temp_dir().join(format!("sluice-disks-{}", std::process::id()));
        let made = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let volume = made("dm-0/slaves").parent().unwrap().to_path_buf();
        let raid = made("md0/slaves").parent().unwrap().to_path_buf();
        let part = made("nvme0n1/nvme0n1p2");
        fs::write(part.join("partition"), "2\n").unwrap();
        let whole = made("nvme1n1");
        let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
        link(&raid, volume.join("slaves/md0"));
        link(&part, raid.join("slaves/nvme0n1p2"));
        link(&whole, raid.join("slaves/nvme1n1"));
        let names = |sys: PathBuf| {
            let disks = Device::at(sys).unwrap().disks();
            let mut names: Vec<String> = disks.into_iter().map(|disk| disk.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(volume), ["nvme0n1", "nvme1n1"]);
        assert_eq!(names(part), ["nvme0n1"], "a partition is of its disk");
        fs::remove_dir_all(&root).unwrap();
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
