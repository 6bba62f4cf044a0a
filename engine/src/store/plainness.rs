//! Which records can be read without a key. Only tests and the simulator ask.

use super::engine::{pages_path, superblock_path, Store};
use super::gc::scan_records;
use super::record;
use super::superblock;
use crate::base::{Result, TreeId};
use crate::cipher::Oldest;
use crate::os::{OpenMode, Os};
use std::collections::BTreeSet;
use std::path::Path;

impl Store {
    /// Trees with a live record, by whether it is plain.
    pub fn trees_by_plainness(&self) -> Result<BTreeSet<(TreeId, bool)>> {
        let leaves = 0..self.state.read().map.leaf_slots();
        let mut found = BTreeSet::new();
        for leaf in leaves {
            for (page, _) in self.leaf_pages(leaf)? {
                // GC may move it meanwhile; its place stays until this is over.
                let _reading = self.epochs.enter();
                let Some(entry) = self.entry(page)? else { continue };
                let key_of = |bytes: &mut [u8]| record::key_of(bytes);
                let key = self.pages.fetch(entry.place(), entry.record_bytes(), key_of)?;
                found.insert((entry.tree(), key.is_none()));
            }
        }
        Ok(found)
    }

    /// Trees with a live record that is plain and must not be, or the other way round.
    pub fn badly_kept_trees(&self) -> Result<Vec<TreeId>> {
        let found = self.trees_by_plainness()?;
        let encrypts = self.under().is_some();
        let state = self.state.read();
        let is_bad = |&(tree, is_plain): &(TreeId, bool)| match is_plain {
            true => state.choices.oldest_of(tree, None) == Oldest::Foreign,
            false => !encrypts,
        };
        Ok(found.into_iter().filter(is_bad).map(|(tree, _)| tree).collect())
    }
}

/// Trees of which a record in the file of pages is plain, whether the map names it or not.
pub fn trees_with_plain_records(os: &dyn Os, dir: &Path) -> Result<BTreeSet<TreeId>> {
    let direct = OpenMode { create: false, direct: true };
    let slots = os.open(&superblock_path(dir), direct)?;
    let (_, sb) = superblock::read(&*slots)?.newest_of(&*slots)?;
    let file = os.open(&pages_path(dir), OpenMode::default())?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    let all = scan_records(sb.seed, &bytes).into_iter();
    let plain = all.filter(|(_, at)| record::key_of(&bytes[*at..]).is_none());
    Ok(plain.map(|(head, _)| head.tree).collect())
}
