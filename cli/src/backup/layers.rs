//! A backup and its increments, laid over one another.
//!
//! 1. Each increment names the backup that it rests on, so none is missing, foreign, or in another's place.
//! 2. Nothing but images is used of a backup that others rest on: all other files are those of the last one.
//! 3. A file of an increment has its pieces one after the other, and nothing between.

use super::files;
use super::make::ENGINE;
use super::manifest::{Listed, Manifest, Piece, DATA};
use crate::pace::Pace;
use crate::Result;
use sluice_engine::base::checksum::checksum;
use sluice_engine::base::Error;
use sluice_engine::db::backup::PAGES;
use sluice_engine::os::{OpenMode, Os, RealOs};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 20;

/// One of them.
pub struct Layer {
    /// As the user has named it.
    pub shown: String,
    pub manifest: Manifest,
    /// Where its files are.
    pub data: PathBuf,
}

impl Layer {
    pub fn open(dir: &Path) -> Result<Layer> {
        let (manifest, data) = (Manifest::read(dir)?, dir.join(DATA));
        Ok(Layer { shown: dir.display().to_string(), manifest, data })
    }

    fn is_packed(&self) -> bool {
        self.manifest.base().is_some()
    }

    fn pages(&self) -> Result<&Listed> {
        let found = self.manifest.files.iter().find(|file| is_pages(file));
        found.ok_or_else(|| format!("{} is damaged: it has no {ENGINE}/{PAGES}", self.shown))
    }

    fn check_size(&self, file: &Listed) -> Result<()> {
        let path = self.data.join(&file.name);
        let found = fs::metadata(&path);
        let found = found.map_err(|e| format!("the backup is damaged: {}: {e}", path.display()))?;
        let wanted = file.stored_bytes(self.is_packed());
        match found.len() == wanted {
            true => Ok(()),
            false => Err(format!(
                "the backup is damaged: {} has {} bytes, not {wanted}",
                path.display(),
                found.len()
            )),
        }
    }

    /// Verifies a file of it.
    pub fn check(&self, file: &Listed) -> Result<()> {
        self.check_size(file)?;
        self.read(file, &mut |_, _| Ok(()))
    }

    /// Reads the pieces of a file, each by its checksum, and hands on their bytes and offsets.
    fn read(&self, file: &Listed, put: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let path = self.data.join(&file.name);
        let cannot = |e| format!("cannot read {}: {e}", path.display());
        let source = File::open(&path).map_err(cannot)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut packed_at = 0;
        for Piece { offset, bytes, check } in &file.pieces {
            let at = if self.is_packed() { packed_at } else { *offset };
            let (mut done, mut found) = (0, 0);
            while done < *bytes {
                let piece = &mut buffer[..(bytes - done).min(BUFFER_BYTES as u64) as usize];
                source.read_exact_at(piece, at + done).map_err(cannot)?;
                found = checksum(found, piece);
                put(piece, offset + done)?;
                done += piece.len() as u64;
            }
            if found != *check {
                return Err(format!(
                    "the backup is damaged: {} has a wrong checksum at offset {at}",
                    path.display()
                ));
            }
            packed_at += bytes;
        }
        Ok(())
    }

    /// Copies a file to `stage`, or lays it over what is there. It is durable then.
    fn lay(&self, os: &dyn Os, file: &Listed, stage: &Path, pace: &Pace) -> Result<()> {
        let target = stage.join(&file.name);
        if let Some(dir) = target.parent() {
            files::make_dir(dir)?;
        }
        let plain = |e: Error| match e {
            Error::Interrupted => "stopped: nothing is restored".into(),
            other => files::shown(&target, other),
        };
        let create = !target.exists();
        let made = os.open(&target, OpenMode { create, direct: false }).map_err(plain)?;
        if !create && made.len().map_err(plain)? > file.bytes {
            made.set_len(file.bytes).map_err(plain)?;
        }
        // Also what lies between the pieces: the engine relies on it.
        if file.bytes > 0 {
            made.allocate(file.bytes).map_err(plain)?;
        }
        self.read(file, &mut |piece, offset| {
            made.write_at(piece, offset).map_err(plain)?;
            pace.step(piece.len() as u64).map(|_| ()).map_err(plain)
        })?;
        made.sync().map_err(plain)
    }
}

fn is_pages(file: &Listed) -> bool {
    file.name == Path::new(ENGINE).join(PAGES)
}

/// A full backup, and the increments on it in their order.
pub struct Layers {
    below: Vec<Layer>,
    last: Layer,
}

impl Layers {
    /// Fails unless each rests on the one before, and all files are there in their lengths.
    pub fn new(full: Layer, mut increments: Vec<Layer>) -> Result<Layers> {
        let (below, last) = match increments.pop() {
            None => (Vec::new(), full),
            Some(last) => {
                increments.insert(0, full);
                (increments, last)
            }
        };
        let layers = Layers { below, last };
        check_order(&layers.below, &layers.last)?;
        for (layer, files) in layers.used()? {
            files.iter().try_for_each(|file| layer.check_size(file))?;
        }
        Ok(layers)
    }

    /// Of the last: where the directory will stand.
    pub fn manifest(&self) -> &Manifest {
        &self.last.manifest
    }

    pub fn has_increments(&self) -> bool {
        !self.below.is_empty()
    }

    /// Each with the files that are used of it.
    fn used(&self) -> Result<Vec<(&Layer, Vec<&Listed>)>> {
        let images = |layer| Ok((layer, vec![Layer::pages(layer)?]));
        let mut used = self.below.iter().map(images).collect::<Result<Vec<_>>>()?;
        used.push((&self.last, self.last.manifest.files.iter().collect()));
        Ok(used)
    }

    /// Makes the files of the last one in `stage`.
    pub fn fill(&self, stage: &Path) -> Result<()> {
        let (os, used) = (RealOs::new(), self.used()?);
        let total = used.iter().flat_map(|(_, files)| files).map(|file| file.piece_bytes()).sum();
        let pace = Pace::new("restoring files", total, None);
        for (layer, files) in used {
            files.iter().try_for_each(|file| layer.lay(&*os, file, stage, &pace))?;
        }
        pace.end();
        Ok(())
    }
}

/// An increment alone is no backup.
pub fn check_full(shown: &str, manifest: &Manifest) -> Result<()> {
    match manifest.base() {
        None => Ok(()),
        Some(base) => Err(format!(
            "{shown} is an increment, on the backup {base}: --from takes the full backup, and --with each \
             increment on it, in the order in which they were made"
        )),
    }
}

fn check_order(below: &[Layer], last: &Layer) -> Result<()> {
    let full = below.first().unwrap_or(last);
    check_full(&full.shown, &full.manifest)?;
    let all: Vec<&Layer> = below.iter().chain([last]).collect();
    all.windows(2).try_for_each(|pair| check_pair(pair[0], pair[1], &all))
}

fn check_pair(before: &Layer, layer: &Layer, all: &[&Layer]) -> Result<()> {
    let shown = &layer.shown;
    let Some(base) = layer.manifest.base() else {
        return Err(format!(
            "{shown} is a full backup: --with takes increments, --from the full backup"
        ));
    };
    if before.manifest.id() == Some(base) {
        return Ok(());
    }
    let rests_on = match all.iter().find(|other| other.manifest.id() == Some(base)) {
        Some(other) => other.shown.clone(),
        None => {
            let position = layer.manifest.fact("base_log_position").unwrap_or("?");
            format!("the backup {base} (log_position {position}), which is not given")
        }
    };
    let id = before.manifest.id().unwrap_or("without a backup_id");
    Err(format!(
        "{shown} is an increment on {rests_on}: it cannot follow {}, which is the backup {id}. Give the \
         full backup by --from, and each increment by --with, in the order in which they were made",
        before.shown
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(shown: &str, id: &str, base: Option<&str>) -> Layer {
        let facts = [("backup_id", Some(id)), ("base_id", base), ("base_log_position", base)];
        let fact = |(name, value): (&str, Option<&str>)| Some((name.to_owned(), value?.to_owned()));
        let facts = facts.into_iter().filter_map(fact).collect();
        Layer {
            shown: shown.into(),
            manifest: Manifest { facts, files: Vec::new() },
            data: PathBuf::new(),
        }
    }

    /// The error that these, in this order, are refused with.
    fn refused(full: &str, increments: &[&str]) -> String {
        let made = |name: &&str| match *name {
            "full" => layer("FULL", "f", None),
            "one" => layer("ONE", "1", Some("f")),
            "two" => layer("TWO", "2", Some("1")),
            "foreign" => layer("FOREIGN", "x", Some("y")),
            name => panic!("{name}"),
        };
        let mut all: Vec<Layer> = [full].iter().chain(increments).map(made).collect();
        let last = all.pop().expect("a layer");
        check_order(&all, &last).err().unwrap_or_default()
    }

    #[test]
    fn increments_follow_what_they_rest_on() {
        assert_eq!(refused("full", &[]), "");
        assert_eq!(refused("full", &["one"]), "");
        assert_eq!(refused("full", &["one", "two"]), "");
        let says = |full, increments: &[&str], why: &str| {
            let error = refused(full, increments);
            assert!(error.contains(why), "{error}");
        };
        says("one", &[], "ONE is an increment, on the backup f: --from takes the full backup");
        says("one", &["two"], "ONE is an increment");
        says(
            "full",
            &["two"],
            "TWO is an increment on the backup 1 (log_position 1), which is not given",
        );
        says("full", &["two", "one"], "TWO is an increment on ONE: it cannot follow FULL");
        says("full", &["one", "one"], "ONE is an increment on FULL: it cannot follow ONE");
        says("full", &["one", "foreign"], "FOREIGN is an increment on the backup y");
        says("full", &["full"], "FULL is a full backup: --with takes increments");
    }
}
