//! The store's files for tools and people: where a page lies, and the files as they are on disk
//! without opening them for work.

use super::engine::{decrypt_note, is_named, load_map, pages_path, superblock_path, Store};
use super::entry::{MapEntry, RECORD_BYTES_MAX};
use super::map::{leaf_of, page_at, Lookup, PageMap};
use super::mapfile;
use super::read_plan::ReadPlan;
use super::record::{self, NoPage};
use super::sums::Sums;
use super::superblock::{self, Superblock};
use crate::base::{Error, Lsn, PageId, Result, TreeId, BLOCK_BYTES, PAGE_BYTES};
use crate::cipher::{self, Cipher, KeyName};
use crate::os::{AlignedBuf, File, OpenMode, Os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Store {
    /// File, offset and length of a page's record, for messages.
    pub fn place_of(&self, page: PageId) -> String {
        let file = self.pages.file().path().display();
        match self.entry(page) {
            Ok(Some(entry)) => {
                format!("{file} offset {} length {}", entry.place(), entry.record_bytes())
            }
            Ok(None) | Err(_) => format!("{file}, by the page map"),
        }
    }

    /// Whether the disk gives anything at all: a place that is certain to have been written.
    pub fn answers(&self) -> bool {
        let superblock = superblock_path(&self.dir);
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        let mode = OpenMode { create: false, direct: true };
        let read = self.os.open(&superblock, mode).and_then(|file| file.read_at(&mut block, 0));
        read.is_ok()
    }

    /// The LSN of the newest image of a page, by the map.
    pub fn lsn_of(&self, page: PageId) -> Result<Option<Lsn>> {
        Ok(self.entry(page)?.map(|entry| entry.lsn()))
    }

    /// The same, if no leaf of the map has to be read for that: at a start, of pages that were written since
    /// the map's last snapshot.
    pub fn lsn_in_memory(&self, page: PageId) -> Option<Lsn> {
        match self.state.read().map.get(page) {
            Lookup::Known(entry) => entry.map(|entry| entry.lsn()),
            Lookup::Missing(_) => None,
        }
    }

    /// The tree of a page, as far as the map can be read.
    pub fn tree_of(&self, page: PageId) -> Option<TreeId> {
        self.entry(page).ok().flatten().map(|entry| entry.tree())
    }
}

/// One page as the map names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    pub page: PageId,
    pub tree: TreeId,
    pub lsn: Lsn,
    pub offset: u64,
    pub bytes: usize,
    entry: MapEntry,
}

/// Read at a time at most, and left unused between two records.
const GAP_BYTES_MAX: u64 = 64 << 10;
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// The blocks of one record, wherever it begins.
const ALONE_BYTES_MAX: usize = RECORD_BYTES_MAX.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;

impl PagePlace {
    fn new(page: PageId, entry: MapEntry) -> PagePlace {
        let (tree, lsn) = (entry.tree(), entry.lsn());
        PagePlace { page, tree, lsn, offset: entry.place(), bytes: entry.record_bytes(), entry }
    }
}

/// What the superblock says.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreHeader {
    /// Of the newest slot.
    pub version: u32,
    pub generation: u64,
    pub segment_bytes: u64,
    pub max_page: u64,
    pub map_generation: u64,
    pub changes_end: u64,
    /// Slots of the superblock that cannot be used, by number.
    pub damaged_slots: [bool; 2],
    pub slots_differ: bool,
}

/// The files of a store that nobody has open.
pub struct StoreFiles {
    pub header: StoreHeader,
    /// The checkpoint note; opaque here.
    pub note: Vec<u8>,
    pages: Arc<dyn File>,
    map: PageMap,
    sums: Sums,
    sb: Superblock,
    cipher: Option<Arc<Cipher>>,
}

fn proof_of(os: &dyn Os, dir: &Path) -> Option<[u8; cipher::ENVELOPE_BYTES]> {
    let direct = OpenMode { create: false, direct: true };
    let file = os.open(&superblock_path(dir), direct).ok()?;
    let sb = superblock::read(&*file).ok()?.newest?.1;
    sb.proof.filter(|_| !sb.claim.needs_no_key())
}

/// Paths that belong to a store of map generation `generation`.
pub fn file_names(dir: &Path, generation: u64) -> [PathBuf; 4] {
    [
        superblock_path(dir),
        pages_path(dir),
        mapfile::snapshot_path(dir, generation),
        mapfile::changes_path(dir, generation),
    ]
}

impl StoreFiles {
    /// Reads superblock, page map and note; writes nothing.
    pub fn read(os: &dyn Os, dir: &Path, cipher: Option<Arc<Cipher>>) -> Result<StoreFiles> {
        let direct = OpenMode { create: false, direct: true };
        let slots = os.open(&superblock_path(dir), direct)?;
        let found = superblock::read(&*slots)?;
        let (_, sb) = found.newest_of(&*slots)?;
        let (map, _, note, sums) = load_map(os, dir, &sb, 0)?;
        let note = decrypt_note(cipher.as_deref(), &sb, note)?;
        let pages = os.open(&pages_path(dir), direct)?;
        let header = StoreHeader {
            version: found.version,
            generation: sb.generation,
            segment_bytes: sb.segment_bytes,
            max_page: sb.max_page,
            map_generation: sb.map_generation,
            changes_end: sb.changes_end,
            damaged_slots: found.damaged,
            slots_differ: !found.same,
        };
        Ok(StoreFiles { header, note, pages, map, sums, sb, cipher })
    }

    /// Refused if the directory is encrypted and `cipher` has not the keys. Damage is for others to find.
    pub fn check_keys(os: &dyn Os, dir: &Path, cipher: Option<&Cipher>) -> Result<()> {
        match proof_of(os, dir) {
            Some(proof) => cipher::check_proof_with(cipher, &proof),
            None => Ok(()),
        }
    }

    /// The key that a directory is, or was, written under.
    pub fn key_of(os: &dyn Os, dir: &Path) -> Option<KeyName> {
        proof_of(os, dir).as_ref().map(cipher::name_of)
    }

    pub fn path(&self) -> &Path {
        self.pages.path()
    }

    pub fn pages_bytes(&self) -> Result<u64> {
        self.pages.len()
    }

    /// Every page of the map, in the order of ids. A leaf that cannot be read is one error.
    pub fn places(&self) -> impl Iterator<Item = Result<PagePlace>> + '_ {
        (0..self.map.leaf_slots()).flat_map(|leaf| {
            let place = move |(i, entry)| Ok(PagePlace::new(page_at(leaf, i), entry));
            match self.map.view(leaf).read() {
                Ok(pages) => pages.into_iter().map(place).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        })
    }

    pub fn place(&self, page: PageId) -> Result<Option<PagePlace>> {
        let entry = self.entry(page)?;
        Ok(entry.map(|entry| PagePlace::new(page, entry)))
    }

    fn entry(&self, page: PageId) -> Result<Option<MapEntry>> {
        let leaf = leaf_of(page);
        let pages = self.map.view(leaf).read().map_err(|error| error.of_page(page))?;
        let found = pages.into_iter().find(|(index, _)| page_at(leaf, *index) == page);
        Ok(found.map(|(_, entry)| entry))
    }

    /// Where the persisted sums are not those of the map; walks all of it.
    pub fn wrong_sums(&self) -> Result<Vec<String>> {
        let mut counted = Sums::default();
        for leaf in 0..self.map.leaf_slots() {
            let pages = self.map.view(leaf).read()?;
            pages.iter().for_each(|(_, e)| counted.count(*e, self.sb.segment_bytes));
        }
        Ok(self.sums.differences(&counted))
    }

    /// Reads and verifies a page's record.
    pub fn page(&self, page: PageId) -> Result<Vec<u8>> {
        let Some(entry) = self.entry(page)? else { return Err(Error::NotFound) };
        let mut out = vec![0; PAGE_BYTES];
        let mut buffer = AlignedBuf::new(ALONE_BYTES_MAX);
        self.read_alone(&PagePlace::new(page, entry), &mut buffer, &mut out)?;
        Ok(out)
    }

    /// Reads and verifies the records of many pages, in the order in which they lie in the file.
    pub fn read_pages(
        &self,
        mut places: Vec<PagePlace>,
        visit: &mut dyn FnMut(PageId, Result<&[u8]>),
    ) {
        places.sort_unstable_by_key(|place| place.offset);
        let mut out = vec![0; PAGE_BYTES];
        let mut buffer = AlignedBuf::new(TOGETHER_BYTES_MAX);
        let mut rest = &places[..];
        while !rest.is_empty() {
            let (count, plan) = together(rest);
            let (run, after) = rest.split_at(count);
            rest = after;
            let shared = run.len() > 1
                && self.pages.read_at(&mut buffer[..plan.bytes()], plan.start()).is_ok();
            for place in run {
                let read = match shared {
                    true => self.unpack(place, &mut buffer, plan.start(), &mut out),
                    // So that what cannot be read costs nothing but itself.
                    false => self.read_alone(place, &mut buffer, &mut out),
                };
                visit(place.page, read.map(|()| &out[..]));
            }
        }
    }

    fn read_alone(&self, place: &PagePlace, buffer: &mut AlignedBuf, out: &mut [u8]) -> Result<()> {
        let mut plan = plan();
        if !plan.takes(place.offset, place.bytes) {
            return Err(self.fault(place, "the map names an impossible length"));
        }
        self.pages.read_at(&mut buffer[..plan.bytes()], plan.start())?;
        self.unpack(place, buffer, plan.start(), out)
    }

    /// Of a record in bytes of the file from `from` on.
    fn unpack(
        &self,
        place: &PagePlace,
        buffer: &mut AlignedBuf,
        from: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let skip = (place.offset - from) as usize;
        let bytes = &mut buffer[skip..skip + place.bytes];
        let head = record::verify(self.sb.seed, bytes).map_err(|why| self.fault(place, why))?;
        if !is_named(&head, place.page, place.entry) {
            return Err(self.fault(place, "record is not the one that the page map names"));
        }
        record::unpack(&head, bytes, out, self.cipher.as_deref()).map_err(|e| match e {
            NoPage::Damaged(why) => self.fault(place, why),
            NoPage::Locked(error) => error,
        })
    }

    fn fault(&self, place: &PagePlace, why: &str) -> Error {
        let file = self.pages.path().display();
        let at = format!("{file} offset {} length {}", place.offset, place.bytes);
        let of = format!("page {} of tree {}: {why}", place.page, place.tree);
        Error::corrupt(of, at).of_page(place.page)
    }
}

fn plan() -> ReadPlan {
    ReadPlan::new(GAP_BYTES_MAX, TOGETHER_BYTES_MAX)
}

/// How many of these records, which are sorted, one read brings; at least one, and no plan for one that is
/// impossible.
pub(super) fn together(places: &[PagePlace]) -> (usize, ReadPlan) {
    let mut plan = plan();
    let count = places.iter().take_while(|place| plan.takes(place.offset, place.bytes)).count();
    (count.max(1), plan)
}
