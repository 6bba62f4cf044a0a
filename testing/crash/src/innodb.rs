//! InnoDB's checkpoints, which the losses of a power cut leave whole (`--spare innodb-checkpoint`).
//!
//! InnoDB syncs its data files, and then asks which is the oldest page that is not written
//! (`log_checkpoint` in storage/innobase/buf/buf0flu.cc of 10.11). A page whose write ends between the two counts
//! as written and is not synced: the checkpoint passes it. Recovery then did not take the copy in the doublewrite
//! buffer, though it was whole, and the server did not start ("Unable to apply log to corrupted page"; docs/powercut.md).
//! So page writes that were noted before a checkpoint are never lost here.

use crate::journal::{Entry, KIND_CHANGE};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LOG: &str = "ib_logfile0";
/// The log begins with a header; two blocks for checkpoints follow, then the records.
const CHECKPOINTS: std::ops::Range<u64> = 4096..12288;

#[derive(Default)]
pub struct Innodb {
    log: Option<u64>,
    /// Tablespaces, by their numbers in the journal.
    pub pages: BTreeSet<u64>,
}

impl Innodb {
    /// `side/files` holds a second name of each file of `data`.
    pub fn find(side: &Path) -> io::Result<Innodb> {
        let mut ids = HashMap::new();
        for link in fs::read_dir(side.join("files"))? {
            let link = link?;
            let id = link.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(id) = id {
                ids.insert(link.metadata()?.ino(), id);
            }
        }
        let mut found = Innodb::default();
        let data = side.with_file_name("data");
        if data.exists() {
            found.look_into(&data, &ids)?;
        }
        Ok(found)
    }

    fn look_into(&mut self, dir: &Path, ids: &HashMap<u64, u64>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let (path, meta) = (entry.path(), entry.metadata()?);
            if meta.is_dir() && !path.ends_with("sluice") {
                self.look_into(&path, ids)?;
            }
            let (Some(id), Some(name)) = (ids.get(&meta.ino()), path.file_name()) else { continue };
            let name = name.to_string_lossy();
            if name == LOG {
                self.log = Some(*id);
            } else if name.starts_with("ibdata")
                || name.ends_with(".ibd")
                || name.starts_with("undo")
            {
                self.pages.insert(*id);
            }
        }
        Ok(())
    }

    pub fn is_checkpoint(&self, entry: &Entry) -> bool {
        entry.kind == KIND_CHANGE
            && self.log == Some(entry.file)
            && CHECKPOINTS.contains(&entry.offset)
    }
}
