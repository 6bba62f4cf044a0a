//! Files that can be changed without changing them: reads come from the files below, writes stay
//! in memory. A stopped directory is recovered on top of it, by the code that recovers it for
//! work, and is the same afterwards.

use crate::base::{Error, Result, BLOCK_BYTES};
use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked, RwLock};
use crate::os::{File, OpenMode, Os};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What changed in one file.
struct Layer {
    base: Option<Arc<dyn File>>,
    /// Length of the part of the base that still shows.
    base_bytes: u64,
    len: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

#[derive(Default)]
struct Names {
    open: HashMap<PathBuf, Arc<RwLock<Layer>>>,
    removed: BTreeSet<PathBuf>,
}

pub struct Overlay {
    base: Arc<dyn Os>,
    names: Mutex<Names>,
}

impl Overlay {
    pub fn new(base: Arc<dyn Os>) -> Arc<Overlay> {
        Arc::new(Overlay { base, names: Mutex::ranked(Rank::OverlayNames, Names::default()) })
    }

    fn layer(&self, names: &mut Names, path: &Path) -> Result<Option<Arc<RwLock<Layer>>>> {
        if let Some(layer) = names.open.get(path) {
            return Ok(Some(Arc::clone(layer)));
        }
        if names.removed.contains(path) || !self.base.exists(path)? {
            return Ok(None);
        }
        // Not direct: lengths of damaged files need not be whole blocks.
        let base = self.base.open(path, OpenMode { create: false, direct: false })?;
        let len = base.len()?;
        let layer = Layer { base: Some(base), base_bytes: len, len, blocks: BTreeMap::default() };
        let layer = Arc::new(RwLock::ranked(Rank::OverlayLayer, layer));
        names.open.insert(path.to_owned(), Arc::clone(&layer));
        Ok(Some(layer))
    }
}

fn missing(op: &'static str, path: &Path) -> Error {
    Error::io(op, path, io::ErrorKind::NotFound.into())
}

impl Os for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        let found = self.layer(&mut names, path)?;
        let layer = match (found, mode.create) {
            (Some(_), true) => {
                return Err(Error::io("open", path, io::ErrorKind::AlreadyExists.into()))
            }
            (None, false) => return Err(missing("open", path)),
            (Some(layer), false) => layer,
            (None, true) => {
                let layer = Layer { base: None, base_bytes: 0, len: 0, blocks: BTreeMap::new() };
                let layer = Arc::new(RwLock::ranked(Rank::OverlayLayer, layer));
                names.open.insert(path.to_owned(), Arc::clone(&layer));
                layer
            }
        };
        Ok(Arc::new(OverlayFile { path: path.to_owned(), layer }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let names = self.names.lock();
        if names.open.contains_key(path) {
            return Ok(true);
        }
        Ok(!names.removed.contains(path) && self.base.exists(path)?)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let below = self.base.list(dir)?;
        let names = self.names.lock();
        let mut all: BTreeSet<PathBuf> =
            below.into_iter().filter(|path| !names.removed.contains(path)).collect();
        all.extend(names.open.keys().filter(|path| path.parent() == Some(dir)).cloned());
        Ok(all.into_iter().collect())
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        match self.base.exists(dir)? {
            true => Ok(()),
            false => Err(missing("look into directory", dir)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if !self.exists(path)? {
            return Err(missing("remove", path));
        }
        let mut names = self.names.lock();
        names.open.remove(path);
        names.removed.insert(path.to_owned());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = self.names.lock();
        let layer = self.layer(&mut names, from)?.ok_or_else(|| missing("rename", from))?;
        names.open.remove(from);
        names.removed.insert(from.to_owned());
        names.removed.insert(to.to_owned());
        names.open.insert(to.to_owned(), layer);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.base.free_bytes(path)
    }

    /// The maker of the overlay has locked the directory below.
    fn lock_dir(&self, _dir: &Path) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn now_ns(&self) -> u64 {
        self.base.now_ns()
    }

    fn random(&self, out: &mut [u8]) -> Result<()> {
        self.base.random(out)
    }

    fn entropy(&self) -> u64 {
        self.base.entropy()
    }
}

struct OverlayFile {
    path: PathBuf,
    layer: Arc<RwLock<Layer>>,
}

impl Layer {
    fn base_read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let seen = self.base_bytes.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (front, rest) = buf.split_at_mut(seen);
        rest.fill(0);
        match &self.base {
            Some(base) if seen > 0 => base.read_at(front, offset),
            _ => Ok(()),
        }
    }

    fn block(&mut self, number: u64) -> Result<&mut [u8]> {
        if !self.blocks.contains_key(&number) {
            let mut bytes = vec![0; BLOCK_BYTES].into_boxed_slice();
            self.base_read(&mut bytes, number * BLOCK)?;
            self.blocks.insert(number, bytes);
        }
        Ok(self.blocks.entry(number).or_default())
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (number, skip) = (at / BLOCK, (at % BLOCK) as usize);
            let n = rest.len().min(BLOCK_BYTES - skip);
            let fresh = number * BLOCK >= self.base_bytes && !self.blocks.contains_key(&number);
            // Zeros after everything are zeros anyway: new log segments take no memory.
            if !fresh || rest[..n].iter().any(|&b| b != 0) {
                self.block(number)?[skip..skip + n].copy_from_slice(&rest[..n]);
            }
            (at, rest) = (at + n as u64, &rest[n..]);
        }
        self.len = self.len.max(at);
        Ok(())
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.base_read(buf, offset)?;
        let end = offset + buf.len() as u64;
        for (&number, bytes) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        if len < self.len {
            if len % BLOCK != 0 {
                self.block(len / BLOCK)?[(len % BLOCK) as usize..].fill(0);
            }
            self.blocks.split_off(&len.div_ceil(BLOCK));
            self.base_bytes = self.base_bytes.min(len);
        }
        self.len = len;
        Ok(())
    }
}

impl File for OverlayFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        Ok(self.layer.read().len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let layer = self.layer.read();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > layer.len) {
            let place = format!("{} offset {offset}", self.path.display());
            return Err(Error::corrupt("file is too short", place));
        }
        layer.read(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.layer.write().write(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.layer.write().set_len(len)
    }

    fn allocate_range(&self, from: u64, len: u64) -> Result<()> {
        let mut layer = self.layer.write();
        layer.len = layer.len.max(from + len);
        Ok(())
    }

    /// Nothing here takes room.
    fn punch(&self, _from: u64, _len: u64) -> Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        Arc::new(OverlayFile { path: to.to_owned(), layer: Arc::clone(&self.layer) })
    }
}
