//! The power of one server: the shim that is preloaded into it, its side directory, the switch,
//! and what happens to the files when it is off.

use crate::journal::{MAX_BYTES, WORD_CALLS, WORD_CUT_AT, WORD_CUT_PHASE};
use crate::loss::{AtRisk, Lost, Spare};
use sluice_rig::rng::Rng;
use sluice_rig::server::Launch;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How the power of every server of a run behaves.
#[derive(Clone)]
pub struct PowerPlan {
    /// The shared library to preload.
    pub library: PathBuf,
    /// Parts of paths whose syncs are ignored, for the proof that this is noticed.
    pub ignore_sync: String,
    /// A name needs a sync of its directory everywhere, not only in the engine's own.
    pub strict_names: bool,
    /// Kill servers that write a binlog too and cut the power later: see docs/powercut.md.
    pub kills_with_binlog: bool,
    /// Every cut comes in an ALTER TABLE that copies rows, at each of its calls in turn.
    pub in_copies: bool,
    /// Cuts during the restart, in half of the rounds.
    pub cuts_in_recovery: bool,
    /// Losses that no server survives.
    pub spare: Spare,
}

#[derive(Clone)]
pub struct Power {
    pub plan: PowerPlan,
    side: PathBuf,
    root: PathBuf,
}

/// The shim sees neither asynchronous I/O nor stdio, which writes the dump of the buffer pool.
const WATCHED_OPTIONS: [&str; 4] = [
    "--loose-innodb-log-file-mmap=0",
    "--innodb-use-native-aio=0",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
];

/// A sync takes this long, so that others come in between.
const SYNC_US: &str = "200";

impl Power {
    /// `dir` holds the server's directory `data`; the side directory is made beside it, in the
    /// same file system.
    pub fn new(plan: &PowerPlan, dir: &Path) -> io::Result<Power> {
        let root = dir.join("data").canonicalize()?;
        let power = Power { plan: plan.clone(), side: dir.join("side"), root };
        power.forget()?;
        Ok(power)
    }

    /// Nothing is at risk any more.
    fn forget(&self) -> io::Result<()> {
        if self.side.exists() {
            fs::remove_dir_all(&self.side)?;
        }
        fs::create_dir_all(self.side.join("files"))?;
        File::create(self.side.join("journal"))?.set_len(MAX_BYTES)
    }

    /// What makes a process load the shim, which then watches its files.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        vec![
            ("LD_PRELOAD".into(), self.plan.library.clone().into()),
            ("SLUICE_SHIM_SIDE".into(), self.side.clone().into()),
            ("SLUICE_SHIM_ROOTS".into(), self.root.clone().into()),
            ("SLUICE_SHIM_SYNC_US".into(), SYNC_US.into()),
            ("SLUICE_SHIM_IGNORE_SYNC".into(), self.plan.ignore_sync.clone().into()),
        ]
    }

    /// From now on the shim watches the servers that `launch` starts.
    pub fn watch(&self, launch: &mut Launch) {
        launch.environment.extend(self.environment());
        let mut options = WATCHED_OPTIONS.map(String::from).to_vec();
        options.push(format!("--tmpdir={}", launch.dir.display()));
        // Before the options of the plan, which override them.
        launch.extra.splice(0..0, options);
    }

    fn journal(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(self.side.join("journal"))
    }

    /// File calls since the last cut.
    pub fn calls(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        self.journal()?.read_exact_at(&mut word, 8 * WORD_CALLS as u64)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// The server will not survive the `after`th file call from now.
    pub fn arm(&self, after: u64, phase: u64) -> io::Result<()> {
        let journal = self.journal()?;
        journal.write_all_at(&phase.to_ne_bytes(), 8 * WORD_CUT_PHASE as u64)?;
        let at = self.calls()? + after.max(1);
        journal.write_all_at(&at.to_ne_bytes(), 8 * WORD_CUT_AT as u64)
    }

    /// What the shim has complained about, and files that changed without it since `start`.
    pub fn unseen(&self, start: SystemTime) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.side.join("complaints")).unwrap_or_default();
        let mut found: Vec<String> = text.lines().map(String::from).collect();
        let mut seen = HashSet::new();
        for entry in fs::read_dir(self.side.join("files"))? {
            seen.insert(entry?.metadata()?.ino());
        }
        let since = start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        walk(&self.root, &mut |path, meta| {
            let changed =
                Duration::new(meta.mtime().max(0) as u64, meta.mtime_nsec().max(0) as u32);
            if changed > since && !seen.contains(&meta.ino()) {
                found.push(format!("{} has changed unseen", path.display()));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// What the numbers in the story mean: the files that have a second name.
    fn name_inodes(&self, story: &mut impl Write) -> io::Result<()> {
        walk(&self.root, &mut |path, meta| match meta.nlink() {
            1 => Ok(()),
            _ => writeln!(story, "inode {} is {}", meta.ino(), path.display()),
        })
    }

    /// The server has ended; what was not durable goes.
    pub fn lose(&self, rng: &mut Rng) -> io::Result<Lost> {
        let strict = match self.plan.strict_names {
            true => self.root.clone(),
            false => self.root.join("sluice"),
        };
        let story = self.side.with_file_name("cuts.log");
        let mut story = BufWriter::new(File::options().create(true).append(true).open(story)?);
        self.name_inodes(&mut story)?;
        let at_risk = AtRisk::read(&self.side, self.plan.spare)?;
        let fate = at_risk.common_fate(rng);
        let lost = at_risk.lose(&self.side, &[strict], fate, rng, &mut story)?;
        story.flush()?;
        self.forget()?;
        Ok(lost)
    }
}

fn walk(
    dir: &Path,
    visit: &mut impl FnMut(&Path, &fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            walk(&entry.path(), visit)?;
        } else if meta.is_file() {
            visit(&entry.path(), &meta)?;
        }
    }
    Ok(())
}
