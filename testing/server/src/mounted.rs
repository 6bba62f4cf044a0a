//! A file system of its own on a loop device: nothing else writes there.

use sluice_rig::suite::skip;
use sluice_rig::tool::{ensure_package, run, Ended, Tool};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// In a file of the work directory, mounted at `at` below it. A server on it has its directory in
/// `at`/d: there the janitor of [`Tool`] finds it after a failed test.
pub struct FileSystem {
    image: PathBuf,
    pub at: PathBuf,
}

fn program(name: &str, args: &[&str]) -> Ended {
    run(Command::new(name).args(args))
}

impl FileSystem {
    /// ext4, not mounted yet. Skips the test where that cannot be.
    pub fn ext4(tool: &Tool, name: &str) -> FileSystem {
        // Otherwise the kernel writes its tables after the mount, for minutes.
        let whole = "lazy_itable_init=0,lazy_journal_init=0";
        FileSystem::made(tool, name, &["mkfs.ext4", "-q", "-E", whole])
    }

    /// XFS, likewise. Installs what makes it where it may.
    pub fn xfs(tool: &Tool, name: &str) -> FileSystem {
        if !ensure_package("xfsprogs") {
            skip("no xfsprogs, and it cannot be installed");
        }
        FileSystem::made(tool, name, &["mkfs.xfs", "-q"])
    }

    /// btrfs, likewise: it has snapshots.
    pub fn btrfs(tool: &Tool, name: &str) -> FileSystem {
        if !ensure_package("btrfs-progs") {
            skip("no btrfs-progs, and it cannot be installed");
        }
        FileSystem::made(tool, name, &["mkfs.btrfs", "-q"])
    }

    fn made(tool: &Tool, name: &str, mkfs: &[&str]) -> FileSystem {
        if program("id", &["-u"]).ok().trim() != "0" {
            skip("mounting a file system needs root");
        }
        if program("sh", &["-c", &format!("command -v {}", mkfs[0])]).code != Some(0) {
            skip(format!("there is no {}", mkfs[0]));
        }
        let at = tool.work.join(name);
        let image = tool.work.join(format!("{name}.image"));
        fs::create_dir(&at).expect("a new directory");
        fs::File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("an image");
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image)).ok();
        let made = FileSystem { image, at };
        if made.mount("rw").code != Some(0) {
            skip("no loop device can be mounted here, or the kernel lacks the file system");
        }
        made.unmount().ok();
        made
    }

    pub fn mount(&self, options: &str) -> Ended {
        let options = format!("loop,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.image).arg(&self.at))
    }

    pub fn unmount(&self) -> Ended {
        run(Command::new("umount").arg(&self.at))
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // After a failed test the server still runs there; the janitor stops it and unmounts.
        self.unmount();
    }
}
