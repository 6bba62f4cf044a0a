//! What a copy of the store lacks of the store as it is pinned.
//!
//! Invariants:
//! 1. An image never changes in its place. A page whose entry is the same in both maps (place, length, LSN,
//!    tree and check) has its image at that place of the copy, too. The image of every other page is copied.
//! 2. Whole blocks are copied. A block that is not copied holds no live image but such as the copy has.
//! 3. Nothing but the two maps decides. The running store keeps nothing for it, so starts, crashes and other
//!    keys in between make no difference.

use super::backup::{FilePart, PinnedStore};
use super::engine::{is_named, load_map, pages_path, superblock_path};
use super::entry::{MapEntry, RECORD_BYTES_MAX};
use super::leaf::LEAF_PAGES;
use super::map::{page_at, PageMap};
use super::record;
use super::superblock::{self, Superblock};
use crate::base::{Error, PageId, Result, BLOCK_BYTES};
use crate::os::planted::{self, Bug};
use crate::os::{AlignedBuf, OpenMode, Os};
use std::ops::Range;
use std::path::{Path, PathBuf};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Images this close to each other are copied in one piece, with what lies between.
const GAP_BYTES: u64 = 16 << 10;

/// A copy, or an increment, by its superblock and its page map. Its pages are not looked at.
pub struct CopiedStore {
    dir: PathBuf,
    sb: Superblock,
    map: PageMap,
}

/// A part of the original's file, and its place in a file that has nothing but such parts.
#[derive(Clone, Copy, Debug)]
pub struct PackedPiece {
    pub offset: u64,
    pub bytes: u64,
    pub at: u64,
}

impl CopiedStore {
    pub fn read(os: &dyn Os, dir: &Path) -> Result<CopiedStore> {
        let direct = OpenMode { create: false, direct: true };
        let file = os.open(&superblock_path(dir), direct)?;
        let (_, sb) = superblock::read(&*file)?.newest_of(&*file)?;
        let (map, ..) = load_map(os, dir, &sb, 0)?;
        Ok(CopiedStore { dir: dir.to_owned(), sb, map })
    }

    /// Refused if the store cannot have been this copy once.
    fn check_was(&self, os: &dyn Os, dir: &Path, now: &Superblock) -> Result<()> {
        let refuse = |why: String| Err(Error::Refused(why));
        if (self.sb.seed, self.sb.segment_bytes) != (now.seed, now.segment_bytes) {
            return refuse("it is a copy of other tables: of another server, or made anew".into());
        }
        if (now.generation, now.map_generation) < (self.sb.generation, self.sb.map_generation) {
            let (then, now) = (self.sb.generation, now.generation);
            return refuse(format!(
                "it is of checkpoint {then}, and the server is at {now}: the server's files are an older state"
            ));
        }
        if now.map_generation != self.sb.map_generation {
            return Ok(());
        }
        // The server's change log goes on from that of the copy.
        match load_map(os, dir, &self.sb, 0) {
            Ok(_) => Ok(()),
            Err(Error::Corrupt { .. }) => {
                refuse("the page map of the server does not go on from its own".into())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads what an increment on `base` has of the pages, and verifies each image. Answers their number.
    /// `pieces` are in the order of offsets.
    pub fn check_images(
        &self,
        os: &dyn Os,
        base: &CopiedStore,
        pieces: &[PackedPiece],
    ) -> Result<u64> {
        let direct = OpenMode { create: false, direct: true };
        let pages = os.open(&pages_path(&self.dir), direct)?;
        let mut buffer = AlignedBuf::new(RECORD_BYTES_MAX + 2 * BLOCK_BYTES);
        let mut images = 0;
        changed(&self.map, &base.map, &mut |page, entry| {
            let corrupt = |why: &str| {
                let place = format!("{}, offset {}", pages.path().display(), entry.place());
                let what = format!("page {page} of tree {}: {why}", entry.tree());
                Err(Error::corrupt(what, place))
            };
            let blocks = blocks_of(entry);
            let after = pieces.partition_point(|piece| piece.offset <= blocks.start);
            let piece = after.checked_sub(1).map(|at| pieces[at]);
            let Some(piece) = piece.filter(|piece| blocks.end <= piece.offset + piece.bytes) else {
                return corrupt("it was not copied");
            };
            if entry.record_bytes() > RECORD_BYTES_MAX {
                return corrupt("the map names an impossible length");
            }
            let room = &mut buffer[..(blocks.end - blocks.start) as usize];
            pages.read_at(room, piece.at + (blocks.start - piece.offset))?;
            let skip = (entry.place() - blocks.start) as usize;
            match record::verify(self.sb.seed, &room[skip..skip + entry.record_bytes()]) {
                Ok(head) if is_named(&head, page, entry) => images += 1,
                Ok(_) => return corrupt("record is not the one that the page map names"),
                Err(why) => return corrupt(why),
            }
            Ok(())
        })?;
        Ok(images)
    }
}

impl PinnedStore {
    /// As [`PinnedStore::parts`], without the pages that `base` has; those come in the order of their places.
    pub fn parts_since(&self, os: &dyn Os, base: &CopiedStore) -> Result<Vec<FilePart>> {
        base.check_was(os, &self.dir, &self.sb)?;
        let (map, ..) = load_map(os, &self.dir, &self.sb, 0)?;
        let mut places = Vec::new();
        changed(&map, &base.map, &mut |_, entry| {
            places.push(blocks_of(entry));
            Ok(())
        })?;
        let mut parts = self.map_parts();
        parts.extend(joined(places).into_iter().map(|place| FilePart {
            path: self.pages_path(),
            offset: place.start,
            bytes: place.end - place.start,
        }));
        Ok(parts)
    }
}

/// Visits the pages of `now` whose entries are not those of `before`.
fn changed(
    now: &PageMap,
    before: &PageMap,
    visit: &mut dyn FnMut(PageId, MapEntry) -> Result<()>,
) -> Result<()> {
    for leaf in 0..now.leaf_slots() {
        let mut old = [MapEntry::NONE; LEAF_PAGES];
        for (index, entry) in before.view(leaf).read()? {
            old[index] = entry;
        }
        for (index, entry) in now.view(leaf).read()? {
            if !is_same(old[index], entry) {
                visit(page_at(leaf, index), entry)?;
            }
        }
    }
    Ok(())
}

/// The LSN alone does not do: GC gives an image another place.
fn is_same(old: MapEntry, new: MapEntry) -> bool {
    match planted::is(Bug::IncrementByLsn) {
        true => old.lsn() == new.lsn(),
        false => old == new,
    }
}

/// The blocks that an image lies in.
fn blocks_of(entry: MapEntry) -> Range<u64> {
    let end = entry.place() + entry.record_bytes() as u64;
    entry.place() / BLOCK * BLOCK..end.next_multiple_of(BLOCK)
}

/// The places in order, with those that lie close to each other in one.
fn joined(mut places: Vec<Range<u64>>) -> Vec<Range<u64>> {
    places.sort_unstable_by_key(|place| place.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for place in places {
        match out.last_mut() {
            Some(last) if place.start <= last.end + GAP_BYTES => last.end = last.end.max(place.end),
            _ => out.push(place),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Lsn, TreeId};

    #[test]
    fn an_image_is_copied_with_all_of_its_blocks() {
        let at = |place, bytes| blocks_of(MapEntry::new(place, bytes, Lsn(1), TreeId(1), 0));
        assert_eq!(at(0, 4096), 0..4096);
        assert_eq!(at(4095, 2), 0..8192);
        assert_eq!(at(8192, 1), 8192..12288);
        assert_eq!(at(8191, 16412), 4096..24576 + 4096);
    }

    #[test]
    fn places_become_few_pieces_in_order() {
        assert_eq!(joined(Vec::new()), Vec::<Range<u64>>::new());
        let far = 3 * GAP_BYTES;
        let places = vec![far..far + BLOCK, 0..BLOCK, 0..2 * BLOCK, BLOCK..2 * BLOCK];
        assert_eq!(joined(places), [0..2 * BLOCK, far..far + BLOCK]);
        let near = 2 * BLOCK + GAP_BYTES;
        let joined = joined(vec![near..near + BLOCK, 0..2 * BLOCK]);
        assert!(joined.len() == 1 && joined[0] == (0..near + BLOCK), "{joined:?}");
    }

    /// Neither the LSN nor the place alone tells that an image is the same.
    #[test]
    fn an_image_is_the_same_by_all_of_its_entry() {
        let entry =
            |place, lsn, tree, check| MapEntry::new(place, 100, Lsn(lsn), TreeId(tree), check);
        let old = entry(4096, 7, 16, 9);
        assert!(is_same(old, entry(4096, 7, 16, 9)));
        for other in [
            entry(8192, 7, 16, 9),
            entry(4096, 8, 16, 9),
            entry(4096, 7, 17, 9),
            entry(4096, 7, 16, 8),
            MapEntry::new(4096, 101, Lsn(7), TreeId(16), 9),
        ] {
            assert!(!is_same(old, other), "{other:?}");
        }
        assert!(!is_same(MapEntry::NONE, old));
    }
}
