//! The journal of a file system, and the bytes that went to it.
//!
//! 1. ext4 tells its transactions, and how many blocks a transaction has logged in the mean since the
//!    file system was mounted, rounded down. So the bytes between two readings are known only within
//!    bounds: [`Logged`] has them.
//! 2. XFS counts what it writes to its log.
//! 3. Of any other file system nothing is known, and that is said. It is never 0.

use super::device::{mount_of, Device, Mount};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// XFS counts in basic blocks (`BTOBB` in fs/xfs/xfs_log.c of Linux).
const XFS_BLOCK_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub struct Journal {
    /// The device of the file system, which may be a partition.
    pub device: String,
    pub kind: String,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Jbd2 { info: PathBuf, block_bytes: u64 },
    Xfs { stats: PathBuf },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JournalCounters {
    Jbd2(Jbd2),
    /// Basic blocks; wraps.
    Xfs(u32),
}

/// What /proc/fs/jbd2/DEVICE-INODE/info shows (`jbd2_seq_info_show` in fs/jbd2/journal.c of Linux).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jbd2 {
    transactions: u64,
    /// `rs_blocks_logged / ts_tid`, rounded down. The sum counts the copies of metadata, the
    /// descriptor and revoke blocks and one commit record for each transaction (fs/jbd2/commit.c). It
    /// counts neither the superblock of the journal, nor fast commits, nor the metadata that is later
    /// written to its place.
    mean_blocks: u64,
}

/// Written to a journal between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Logged {
    /// Not of XFS, which counts transactions of another kind.
    pub transactions: Option<u64>,
    /// The bytes, or the best guess: the transactions with the mean since the mount.
    pub bytes: u64,
    /// They are surely not fewer and not more.
    pub least_bytes: u64,
    pub most_bytes: u64,
}

impl Logged {
    pub fn is_exact(&self) -> bool {
        self.least_bytes == self.most_bytes
    }
}

impl Journal {
    /// Of the file system that holds `dir`; or why it is not known.
    pub fn of(dir: &Path) -> Result<Journal, String> {
        let Some(mount) = mount_of(dir) else {
            return Err(format!("{}: its file system is not known", dir.display()));
        };
        let found = partition_of(dir).ok_or_else(|| not_reported(&mount)).and_then(|device| {
            let block_bytes = fs::metadata(dir).map_or(4096, |data| data.blksize());
            Journal::on(Path::new("/"), &device, &mount, block_bytes)
        });
        found.map_err(|why| format!("{} ({}): {why}", mount.point.display(), mount.kind))
    }

    /// With `proc` and `sys` below `root`.
    fn on(root: &Path, device: &str, mount: &Mount, block_bytes: u64) -> Result<Journal, String> {
        let source = match mount.kind.as_str() {
            "ext4" | "ext3" => {
                let info = jbd2_info(root, device).ok_or_else(|| why_no_jbd2(root, device))?;
                Source::Jbd2 { info, block_bytes }
            }
            "xfs" if mount.options.split(',').any(|option| option.starts_with("logdev=")) => {
                return Err("it is on another device".to_string());
            }
            "xfs" => Source::Xfs { stats: root.join(format!("sys/fs/xfs/{device}/stats/stats")) },
            _ => return Err(not_reported(mount)),
        };
        let journal = Journal { device: device.to_string(), kind: mount.kind.clone(), source };
        journal.counters().map(|_| journal.clone()).ok_or_else(|| {
            let (Source::Jbd2 { info: path, .. } | Source::Xfs { stats: path }) = &journal.source;
            format!("cannot read {}", path.display())
        })
    }

    pub fn counters(&self) -> Option<JournalCounters> {
        match &self.source {
            Source::Jbd2 { info, .. } => {
                parse_jbd2(&fs::read_to_string(info).ok()?).map(JournalCounters::Jbd2)
            }
            Source::Xfs { stats } => {
                parse_xfs(&fs::read_to_string(stats).ok()?).map(JournalCounters::Xfs)
            }
        }
    }

    /// `None` when the counters began anew in between, so that nothing is known.
    pub fn between(&self, then: JournalCounters, now: JournalCounters) -> Option<Logged> {
        match (&self.source, then, now) {
            (
                Source::Jbd2 { block_bytes, .. },
                JournalCounters::Jbd2(then),
                JournalCounters::Jbd2(now),
            ) => now.since(then, *block_bytes),
            (Source::Xfs { .. }, JournalCounters::Xfs(then), JournalCounters::Xfs(now)) => {
                xfs_since(then, now)
            }
            _ => None,
        }
    }
}

impl Jbd2 {
    /// The fewest and the most blocks that give this mean.
    fn sum(self) -> (u64, u64) {
        let least = self.mean_blocks.saturating_mul(self.transactions);
        (least, least.saturating_add(self.transactions.saturating_sub(1)))
    }

    fn since(self, then: Jbd2, block_bytes: u64) -> Option<Logged> {
        let transactions = self.transactions.checked_sub(then.transactions)?;
        if transactions == 0 {
            return Some(Logged { transactions: Some(0), ..Logged::default() });
        }
        let (before, now) = (then.sum(), self.sum());
        // A transaction has one block at least, the commit record. The kernel's sum has 32 bits: a
        // sum that went back wrapped.
        let most = now.1.checked_sub(before.0).filter(|most| *most >= transactions)?;
        let least = now.0.saturating_sub(before.1).max(transactions);
        // Half a block more than the mean, which is rounded down.
        let guess = self.mean_blocks * transactions + transactions / 2;
        Some(Logged {
            transactions: Some(transactions),
            bytes: guess.clamp(least, most) * block_bytes,
            least_bytes: least * block_bytes,
            most_bytes: most * block_bytes,
        })
    }
}

fn xfs_since(then: u32, now: u32) -> Option<Logged> {
    // Half of its range in one interval is no growth: the counters were cleared.
    let blocks = Some(now.wrapping_sub(then)).filter(|blocks| *blocks < 1 << 31)?;
    let bytes = u64::from(blocks) * XFS_BLOCK_BYTES;
    Some(Logged { transactions: None, bytes, least_bytes: bytes, most_bytes: bytes })
}

/// As the kernel calls the device of `dir`: a partition has a name of its own.
fn partition_of(dir: &Path) -> Option<String> {
    let sys = Device::sys_of(dir)?;
    Some(sys.file_name()?.to_string_lossy().into_owned())
}

fn not_reported(mount: &Mount) -> String {
    format!("{} does not report it", mount.kind)
}

/// The directory is DEVICE-INODE: the journal is a file of its file system.
fn jbd2_info(root: &Path, device: &str) -> Option<PathBuf> {
    let all = fs::read_dir(root.join("proc/fs/jbd2")).ok()?;
    let is_ours = |name: &str| {
        let inode = name.strip_prefix(device).and_then(|rest| rest.strip_prefix('-'));
        inode.is_some_and(|inode| inode.parse::<u64>().is_ok())
    };
    let mut ours = all.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    Some(ours.next()?.path().join("info"))
}

fn why_no_jbd2(root: &Path, device: &str) -> String {
    let task = fs::read_to_string(root.join(format!("sys/fs/ext4/{device}/journal_task")));
    match task.as_deref().map(str::trim) {
        Ok("<none>") => "it has no journal".to_string(),
        Ok(_) => "it is on another device".to_string(),
        Err(_) => "the kernel does not report it".to_string(),
    }
}

fn parse_jbd2(info: &str) -> Option<Jbd2> {
    let before = |words: &str| {
        let number = |line: &str| line.trim().split_once(words)?.0.parse().ok();
        info.lines().find_map(number)
    };
    let transactions = before(" transactions (")?;
    // Before the first transaction there is no mean.
    let mean_blocks = match transactions {
        0 => 0,
        _ => before(" logged blocks per transaction")?,
    };
    Some(Jbd2 { transactions, mean_blocks })
}

/// `log`: writes, blocks, and three counts of waits (fs/xfs/xfs_stats.h of Linux).
fn parse_xfs(stats: &str) -> Option<u32> {
    let log = stats.lines().find_map(|line| line.strip_prefix("log "))?;
    log.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
