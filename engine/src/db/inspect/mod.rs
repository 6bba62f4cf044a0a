//! A stopped data directory, for tools and people. Nothing in it is changed.
//!
//! Everything is decoded by the code that decodes it for work; `verify` also recovers the
//! directory on an [`Overlay`], and then checks all tables as CHECK TABLE does.

mod log;
mod outlook;
mod overlay;
mod verify;

#[cfg(test)]
pub(super) use log::describe as fuzz_describe;

pub use crate::btree::NodeView;
pub use crate::store::{PagePlace, StoreHeader};
pub use log::{LogItem, LogLine};
pub use outlook::Outlook;
pub use overlay::Overlay;
pub use verify::{Check, Report};

use super::recovery::CheckpointNote;
use crate::base::{EntryHeader, Lsn, PageId, Result};
use crate::btree::view_page;
use crate::catalog::{CATALOG_TREE, FIRST_USER_TREE};
use crate::cipher::{Cipher, Keys};
use crate::db::config::{Encryption, Scope};
use crate::os::Os;
use crate::store::StoreFiles;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory that no engine has open, kept closed to engines until this is dropped.
pub struct Directory {
    os: Arc<dyn Os>,
    data_dir: PathBuf,
    log_dir: PathBuf,
    /// Of what is encrypted.
    cipher: Option<Arc<Cipher>>,
    encryption: Option<Encryption>,
    _lock: Box<dyn Send + Sync>,
}

/// How full a segment of the pages file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    pub number: u64,
    pub live_bytes: u64,
    pub records: u64,
}

/// The page map and what it says of the pages file.
pub struct MapView {
    pub header: StoreHeader,
    /// Pages of the leaves that can be read.
    pub pages: Vec<PagePlace>,
    pub segments: Vec<SegmentUse>,
    /// What is wrong with each of the other leaves.
    pub faults: Vec<String>,
}

/// An entry of a leaf, or a child of an inner node.
#[derive(Clone, Debug)]
pub struct EntryView {
    pub key: Vec<u8>,
    /// In inner nodes.
    pub child: Option<PageId>,
    /// In leaves.
    pub header: Option<EntryHeader>,
    pub payload: Vec<u8>,
}

/// One page as the last checkpoint has it: what the log holds beyond that is not in it.
pub struct PageView {
    pub place: PagePlace,
    pub node: NodeView,
    pub entries: Vec<EntryView>,
}

impl Directory {
    /// Refuses a directory that an engine has open.
    pub fn open(
        os: Arc<dyn Os>,
        data_dir: impl Into<PathBuf>,
        log_dir: Option<PathBuf>,
    ) -> Result<Directory> {
        let data_dir = data_dir.into();
        let log_dir = log_dir.unwrap_or_else(|| data_dir.join("log"));
        let lock = os.lock_dir(&data_dir)?;
        let (cipher, encryption) = (None, None);
        Ok(Directory { os, data_dir, log_dir, cipher, encryption, _lock: lock })
    }

    /// With the keys of a directory that is encrypted.
    pub fn with_keys(mut self, keys: Arc<dyn Keys>) -> Result<Directory> {
        self.cipher = Some(Cipher::new(&*self.os, Arc::clone(&keys), None)?);
        // A check recovers the engine, though it writes no file: an encrypted one wants to encrypt.
        let key = StoreFiles::key_of(&*self.os, &self.data_dir).map(|key| key.id);
        let writes_under = key.filter(|&id| keys.newest(id).is_some());
        self.encryption = Some(Encryption { keys, writes_under, scope: Scope::AllTables });
        Ok(self)
    }

    fn store(&self) -> Result<StoreFiles> {
        StoreFiles::read(&*self.os, &self.data_dir, self.cipher.clone())
    }

    pub fn map(&self) -> Result<MapView> {
        let store = self.store()?;
        let segment_bytes = store.header.segment_bytes.max(1);
        let count = store.pages_bytes()? / segment_bytes;
        let empty = |number| SegmentUse { number, live_bytes: 0, records: 0 };
        let mut segments: Vec<SegmentUse> = (0..count).map(empty).collect();
        let (mut pages, mut faults) = (Vec::new(), Vec::new());
        for place in store.places() {
            match place {
                Ok(place) => pages.push(place),
                Err(error) => faults.push(error.to_string()),
            }
        }
        for place in &pages {
            let number = (place.offset / segment_bytes) as usize;
            if let Some(segment) = segments.get_mut(number) {
                segment.live_bytes += place.bytes as u64;
                segment.records += 1;
            }
        }
        Ok(MapView { header: store.header, pages, segments, faults })
    }

    /// Decodes one page; `NotFound` if the map has none of this id.
    pub fn page(&self, page: PageId) -> Result<PageView> {
        let store = self.store()?;
        let place = store.place(page)?.ok_or(crate::base::Error::NotFound)?;
        let node = view_page(&store.page(page)?)?;
        let mut entries = Vec::with_capacity(node.entries.len());
        for (key, value) in &node.entries {
            entries.push(view_entry(&node, key, value)?);
        }
        Ok(PageView { place, node, entries })
    }

    /// Visits the log from `from` on, or from where recovery would read it. Answers where the
    /// last valid batch ends.
    pub fn log(&self, from: Option<Lsn>, visit: &mut dyn FnMut(LogItem) -> bool) -> Result<Lsn> {
        let from = match from {
            Some(from) => from,
            None => CheckpointNote::decode(&self.store()?.note)?.scan_from,
        };
        log::scan(&self.os, &self.log_dir, from, self.cipher.clone(), visit)
    }
}

fn view_entry(node: &NodeView, key: &[u8], value: &[u8]) -> Result<EntryView> {
    let key = key.to_vec();
    if node.level > 0 {
        let child = <[u8; 8]>::try_from(value).ok().map(|id| PageId(u64::from_le_bytes(id)));
        return Ok(EntryView { key, child, header: None, payload: Vec::new() });
    }
    // Trees of the engine itself may hold entries without a header.
    if node.tree < FIRST_USER_TREE && node.tree != CATALOG_TREE {
        return Ok(EntryView { key, child: None, header: None, payload: value.to_vec() });
    }
    let (header, payload) = EntryHeader::split(value)?;
    Ok(EntryView { key, child: None, header: Some(header), payload: payload.to_vec() })
}
