//! A small file system in memory, which a test fills. It needs the right to mount.

use sluice_rig::tool::run;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Mounted as long as it is not dropped.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// At a new directory. None: this machine does not let us.
    pub fn mount(dir: PathBuf, bytes: u64) -> Option<SmallDisk> {
        fs::create_dir(&dir).expect("a new directory");
        let size = format!("size={bytes}");
        let mut command = Command::new("mount");
        let ended = run(command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&dir));
        (ended.code == Some(0)).then(|| SmallDisk(dir))
    }

    pub fn resize(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        run(Command::new("mount").args(["-o", &size]).arg(&self.0)).ok();
    }

    pub fn used_bytes(&self) -> u64 {
        let mut command = Command::new("df");
        let said = run(command.args(["--output=used", "-B1"]).arg(&self.0)).ok();
        said.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number of bytes")
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Writes until there is no room, or until the filler has so many bytes.
    pub fn fill(&self, bytes_max: usize) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        let mut written = 0;
        while written < bytes_max {
            match file.write(&[0; 4096][..4096.min(bytes_max - written)]) {
                Ok(bytes) if bytes > 0 => written += bytes,
                _ => break,
            }
        }
    }

    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("a filler");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
