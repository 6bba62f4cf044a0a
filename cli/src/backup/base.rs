//! The backup that an increment rests on.
//!
//! Nothing of the server is asked which of its images are newer: the page map of the base is compared with
//! the server's, image by image. So the base's list, superblock and page map must be there, and no more of it.

use super::identity::RESTORE_ID;
use super::layers::Layer;
use super::make::ENGINE;
use super::manifest::{Listed, BASE};
use crate::Result;
use sluice_engine::base::Error;
use sluice_engine::db::backup::{check_increment, Copied, Copying, FilePart};
use sluice_engine::os::{Os, RealOs};
use std::path::{Path, PathBuf};

const POSITION: &str = "log_position";

pub struct Base {
    layer: Layer,
    id: String,
    position: u64,
}

impl Base {
    pub fn read(dir: &Path) -> Result<Base> {
        let shown = dir.display();
        if dir.is_file() {
            return Err(format!(
                "{shown} is a file: an increment rests on the directory of a backup or of an increment, \
                 not on a stream"
            ));
        }
        let layer = Layer::open(dir)?;
        let Some(id) = layer.manifest.id().map(str::to_owned) else {
            return Err(format!(
                "{shown} has no backup_id: a release without increments has made it. Make a full backup"
            ));
        };
        let position = layer.manifest.fact(POSITION).and_then(|text| text.parse().ok());
        let position = position.ok_or_else(|| format!("{shown} has no {POSITION}"))?;
        layer
            .manifest
            .files
            .iter()
            .filter(|file| is_map(file))
            .try_for_each(|file| layer.check(file))?;
        Ok(Base { layer, id, position })
    }

    pub fn shown(&self) -> &str {
        &self.layer.shown
    }

    /// The facts by which the increment names it.
    pub fn facts(&self) -> [(String, String); 2] {
        [(BASE.into(), self.id.clone()), (format!("base_{POSITION}"), self.position.to_string())]
    }

    /// Fails if the server does not go on from where this backup ended: `restore` is the name of the restore
    /// that has made its data directory, and its log is durable up to `durable`.
    pub fn check_server(&self, restore: Option<&str>, durable: u64) -> Result<()> {
        if self.layer.manifest.fact(RESTORE_ID) != restore {
            return Err(
                self.refused("the server's data directory was restored since, or is another one")
            );
        }
        match durable < self.position {
            true => Err(self.refused(&format!(
                "its log_position is {}, and the server's log ends at {durable}: the server's files are \
                 an older state",
                self.position
            ))),
            false => Ok(()),
        }
    }

    fn refused(&self, why: &str) -> String {
        format!("{} is no base for an increment: {why}. Make a full backup", self.shown())
    }

    fn engine(&self) -> PathBuf {
        self.layer.data.join(ENGINE)
    }

    /// The parts of the store that the increment copies.
    pub fn parts(&self, copying: &mut Copying) -> Result<Vec<FilePart>> {
        let parts = copying.store_parts_since((&*RealOs::new(), &self.engine()));
        parts.map_err(|error| match error {
            Error::Refused(why) => self.refused(&why),
            other => other.to_string(),
        })
    }

    /// Verifies the images of the increment in `dir`.
    pub fn verify(&self, os: &dyn Os, dir: &Path, copied: &Copied) -> Result<()> {
        let checked = check_increment(os, dir, (os, &self.engine()), copied);
        checked.map(|_| ()).map_err(|error| {
            format!("the copy is damaged: {error}. CHECK TABLE says whether the server's own files are, too")
        })
    }
}

/// Does the file say which images there are?
fn is_map(file: &Listed) -> bool {
    let name = file.name.strip_prefix(ENGINE).ok().and_then(Path::to_str).unwrap_or_default();
    name == "superblock" || name.starts_with("map")
}
