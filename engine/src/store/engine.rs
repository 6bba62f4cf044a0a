//! The store: opening, reading, writing, freeing.

use super::checkpointer::Checkpointer;
use super::choices::Choices;
use super::counters::{add, Counters};
use super::entry::{MapEntry, PAGE_ID_MAX};
use super::epoch::Epochs;
use super::free::GivingBack;
use super::map::PageMap;
use super::mapfile::{self, ChangeLog};
use super::pages::{PagesFile, StreamKind};
use super::policy::SPACE_PERCENT;
use super::record::{self, NoPage, Packed};
use super::segments::RESERVED_SEGMENTS;
use super::snapshot::{write_snapshot, Failure, MapSnapshot};
use super::state::State;
use super::sums::Sums;
use super::superblock::{self, KeyClaim, Superblock, SLOTS};
use super::victim::Collector;
use super::written::{Cause, WrittenPages};
use super::{PageWrite, StoreOptions};
use crate::base::{Error, Lsn, PageId, Result, TreeId, BLOCK_BYTES, PAGE_BYTES};
use crate::cipher::{self, Cipher};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked, RwLock};
use crate::os::{File, OpenMode, Os};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// What the map knows about a page that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    pub lsn: Lsn,
    pub tree: TreeId,
}

pub struct Store {
    pub(super) os: Arc<dyn Os>,
    pub(super) dir: PathBuf,
    pub(super) segment_bytes: u64,
    pub(super) seed: u32,
    pub(super) cipher: Option<Arc<Cipher>>,
    pub(super) pages: PagesFile,
    pub(super) state: RwLock<State>,
    pub(super) epochs: Epochs,
    /// Threads that pack records, each under a key that was the newest after it began.
    pub(super) packing: Epochs,
    /// No record comes that is under an older version of the key.
    pub(super) settled_key: AtomicU32,
    pub(super) checkpointer: Mutex<Checkpointer>,
    pub(super) collector: Mutex<Collector>,
    /// Held while the pages file grows or is cut.
    pub(super) growth: Mutex<()>,
    pub(super) giving_back: GivingBack,
    /// The first failure; set once.
    poison: Mutex<Option<String>>,
    pub(super) counters: Counters,
    /// See [`Store::set_space_percent`].
    pub(super) space_percent: AtomicU64,
    /// See [`Store::debt_percent`] and [`Store::is_full`].
    pub(super) debt_percent: AtomicU64,
    pub(super) debt_bytes_eased: AtomicU64,
    pub(super) full: AtomicBool,
    pub(super) short: AtomicBool,
    /// The generation of the map files that a backup reads; 0: there is none.
    pub(super) backup_map: AtomicU64,
}

const PROMISED: &str = "tables were made with ENCRYPTED=YES, and encryption is off: set \
                        sluice_encrypt=TABLES or ON";

pub(super) fn superblock_path(dir: &Path) -> PathBuf {
    dir.join("superblock")
}

/// What a backup copies as the superblock, while it is under way.
pub(super) fn backup_superblock_path(dir: &Path) -> PathBuf {
    dir.join("superblock.backup")
}

pub(super) fn pages_path(dir: &Path) -> PathBuf {
    dir.join("pages")
}

impl Store {
    /// Whether `dir` holds a store whose creation came to its end.
    pub fn exists(os: &dyn Os, dir: &Path) -> Result<bool> {
        let path = superblock_path(dir);
        if !os.exists(&path)? {
            return Ok(false);
        }
        let file = os.open(&path, OpenMode { create: false, direct: true })?;
        Ok(!superblock::read(&*file)?.unfinished)
    }

    /// Makes the store one whose creation never came to its end, at whatever moment it loses power.
    pub fn blank(os: &dyn Os, dir: &Path) -> Result<()> {
        let slots = os.open(&superblock_path(dir), OpenMode { create: false, direct: true })?;
        superblock::blank(&*slots)
    }

    /// Makes an empty store, with an empty checkpoint note, in a directory that holds none.
    /// Files that an interrupted creation left are replaced.
    pub fn create(os: Arc<dyn Os>, options: StoreOptions) -> Result<Arc<Store>> {
        check_segment_bytes(options.segment_bytes)?;
        let dir = &options.dir;
        os.create_dir(dir)?;
        if Store::exists(&*os, dir)? {
            return Err(Error::Refused(format!("{} holds a page store already", dir.display())));
        }
        let slots = superblock_path(dir);
        if !os.exists(&slots)? {
            if os.exists(&pages_path(dir))? {
                return Err(Error::Refused(format!(
                    "{} holds pages but no superblock: restore it, or remove the files of the store",
                    dir.display()
                )));
            }
            // From here on an empty superblock marks the creation as unfinished.
            os.open(&slots, OpenMode { create: true, direct: true })?;
            os.sync_dir(dir)?;
        }
        let seed = (os.entropy() >> 32) as u32;
        let first = write_empty_store(&*os, &options, seed)?;
        let slots = os.open(&slots, OpenMode { create: false, direct: true })?;
        superblock::blank(&*slots)?;
        for slot in 0..SLOTS {
            first.write(&*slots, slot)?;
        }
        let (store, _) = Store::open(os, options)?;
        Ok(store)
    }

    /// Opens a store; answers the note of its newest checkpoint as well.
    pub fn open(os: Arc<dyn Os>, options: StoreOptions) -> Result<(Arc<Store>, Vec<u8>)> {
        let dir = options.dir;
        let direct = OpenMode { create: false, direct: true };
        let slots = os.open(&superblock_path(&dir), direct)?;
        let found = superblock::read(&*slots)?;
        let (newest, sb) = found.newest_of(&*slots)?;
        // Else a log that needs keys is missed when it is read.
        if let Some(proof) = sb.proof.as_ref().filter(|_| !sb.claim.needs_no_key()) {
            cipher::check_proof_with(options.cipher.as_deref(), proof)?;
        }
        let under = options.cipher.as_ref().and_then(|cipher| cipher.writes_under());
        if sb.promises && under.is_none() {
            return Err(Error::Refused(PROMISED.into()));
        }
        check_segment_bytes(sb.segment_bytes)?;
        let (mut map, changes, note, sums) = load_map(&*os, &dir, &sb, options.map_bytes)?;
        let note = decrypt_note(options.cipher.as_deref(), &sb, note)?;
        let file = os.open(&pages_path(&dir), direct)?;
        let count = check_loaded(&mut map, &sums, &sb, &*file)?;
        let choices = Choices::new(under, options.scope, sb.promises);
        let mut state = State::load(map, sums, sb.segment_bytes, count, (sb.claim, choices));
        state.max_page = PageId(sb.max_page);

        // Both slots must name what is kept before anything may be reused.
        if !found.same {
            sb.write(&*slots, 1 - newest)?;
        }
        remove_obsolete(&*os, &dir, [sb.map_generation; 2])?;
        remove_if_there(&*os, &backup_superblock_path(&dir))?;
        let store = Store {
            seed: sb.seed,
            segment_bytes: sb.segment_bytes,
            cipher: options.cipher,
            pages: PagesFile::new(file, sb.segment_bytes),
            state: RwLock::ranked(Rank::StoreState, state),
            epochs: Epochs::default(),
            packing: Epochs::default(),
            settled_key: AtomicU32::new(0),
            checkpointer: Mutex::ranked(
                Rank::StoreCheckpointer,
                Checkpointer::new(slots, newest, sb, changes),
            ),
            collector: Mutex::ranked(Rank::StoreCollector, Collector::default()),
            growth: Mutex::ranked(Rank::StoreGrowth, ()),
            poison: Mutex::ranked(Rank::StorePoison, None),
            counters: Counters::default(),
            giving_back: GivingBack::default(),
            space_percent: AtomicU64::new(SPACE_PERCENT),
            debt_percent: AtomicU64::new(0),
            debt_bytes_eased: AtomicU64::new(u64::MAX),
            full: AtomicBool::new(false),
            short: AtomicBool::new(false),
            backup_map: AtomicU64::new(0),
            os,
            dir,
        };
        store.settled_key.store(store.newest_version(), Ordering::Relaxed);
        Ok((Arc::new(store), note))
    }

    /// Reads the newest image of a page; None if the store has no such page.
    pub fn read(&self, page: PageId, out: &mut [u8]) -> Result<Option<PageInfo>> {
        assert_eq!(out.len(), PAGE_BYTES);
        add(&self.counters.reads, 1);
        loop {
            let reading = self.epochs.enter();
            let Some(entry) = self.entry(page)? else { return Ok(None) };
            let done = self.read_record(page, entry, out);
            drop(reading);
            let error = match done {
                Ok(()) => return Ok(Some(PageInfo { lsn: entry.lsn(), tree: entry.tree() })),
                Err(error) => error,
            };
            // The record may have been replaced, and its place reused, while it was read.
            if self.entry(page)? == Some(entry) {
                add(&self.counters.corrupt_reads, 1);
                return Err(error.of_page(page));
            }
        }
    }

    /// What the map names at this moment: its place may be reused at the next.
    pub(super) fn entry_now(&self, page: PageId) -> Result<Option<MapEntry>> {
        let _reading = self.epochs.enter();
        self.entry(page)
    }

    /// Restores the page from `bytes`, if they are exactly the record that the map names.
    pub(super) fn unpack_named(
        &self,
        page: PageId,
        entry: MapEntry,
        bytes: &mut [u8],
        out: &mut [u8],
    ) -> std::result::Result<(), NoPage> {
        let head = self.check_record(page, entry, bytes)?;
        record::unpack(&head, bytes, out, self.cipher.as_deref())
    }

    fn read_record(&self, page: PageId, entry: MapEntry, out: &mut [u8]) -> Result<()> {
        let verdict = self.pages.fetch(entry.place(), entry.record_bytes(), |bytes| {
            self.unpack_named(page, entry, bytes, out)
        })?;
        verdict.map_err(|fault| match fault {
            NoPage::Damaged(why) => self.corrupt(page, entry, why),
            NoPage::Locked(error) => error,
        })
    }

    /// Checks that `bytes` begin with exactly the record that the map names.
    pub(super) fn check_record(
        &self,
        page: PageId,
        entry: MapEntry,
        bytes: &[u8],
    ) -> std::result::Result<record::Header, &'static str> {
        let head = record::verify(self.seed, bytes)?;
        if !is_named(&head, page, entry) {
            return Err("record is not the one that the page map names");
        }
        Ok(head)
    }

    fn corrupt(&self, page: PageId, entry: MapEntry, why: &str) -> Error {
        let file = self.pages.file().path().display();
        Error::corrupt(
            format!("page {page} of tree {}: {why}", entry.tree()),
            format!("{file} offset {} length {}", entry.place(), entry.record_bytes()),
        )
        .of_page(page)
    }

    /// Writes pages. When this returns `Ok`, reads see them; they are durable after the next
    /// checkpoint. `Full` leaves some of them written, and all may be written again. The caller
    /// has at most one write of a page in flight. The answer names the pages that were not written,
    /// because their leaf of the map cannot be read.
    pub fn write(&self, cause: Cause, pages: &[PageWrite<'_>]) -> Result<Vec<(PageId, Error)>> {
        self.check_poison()?;
        let _packing = self.packing.enter();
        let mut records = Vec::with_capacity(pages.len());
        for write in pages {
            if write.page.0 > PAGE_ID_MAX {
                let (bytes, limit) = (write.page.0 as usize, PAGE_ID_MAX as usize);
                return Err(Error::TooLarge { what: "page id", bytes, limit });
            }
            records.push(record::pack(self.seed, write, self.cipher_for(write.tree))?);
        }
        let (mut pins, mut unwritten) = (Vec::with_capacity(records.len()), Vec::new());
        records.retain(|record| match self.pin([record.page].into_iter()) {
            Ok(pin) => {
                pins.push(pin);
                true
            }
            Err(error) => {
                unwritten.push((record.page, error));
                false
            }
        });
        add(&self.counters.images, records.len() as u64);
        add(&self.counters.image_bytes, records.iter().map(|r| r.bytes.len() as u64).sum());
        self.append(cause, &records, &|state, i, place| {
            state.publish(&records[i], place);
        })?;
        Ok(unwritten)
    }

    /// Packs records in order and calls `publish` for each with its place, under the state lock
    /// and before its segment can be closed.
    pub(super) fn append(
        &self,
        cause: Cause,
        records: &[Packed],
        publish: &dyn Fn(&mut State, usize, u64),
    ) -> Result<()> {
        if self.pages.tail_is_long() {
            self.write_tail()?;
        }
        if planted::is(Bug::StoreSegmentFreedEarly) {
            let segments = &mut self.state.write().segments;
            segments.release(&segments.releasable(), self.epochs.now());
        }
        let (kind, mut next) = (cause.stream(), 0);
        while next < records.len() {
            let mut stream = self.pages.stream(kind);
            let mut placed = Vec::new();
            while let Some(record) = records.get(next + placed.len()) {
                let Some(place) = self.pages.push(kind, &mut stream, record) else { break };
                placed.push(place);
            }
            let full = next + placed.len() < records.len();
            {
                let mut state = self.state.write();
                for (i, &place) in placed.iter().enumerate() {
                    state.count_written(&records[next + i], cause);
                    publish(&mut state, next + i, place);
                }
                if let (true, Some(segment)) = (full, stream.segment()) {
                    self.pages.close_segment(kind, &mut stream);
                    state.segments.close(segment);
                }
            }
            drop(stream);
            next += placed.len();
            if full {
                self.open_segment(kind)?;
                self.refresh_debt();
            }
        }
        self.pages.write_tail_if_idle().map_err(|error| self.poisoned_by(error))
    }

    /// Gives the stream a segment, unless another caller has done so. The file grows outside
    /// of the stream's lock.
    fn open_segment(&self, kind: StreamKind) -> Result<()> {
        let segment = self.acquire_segment(kind)?;
        let mut stream = self.pages.stream(kind);
        let mut state = self.state.write();
        if stream.segment().is_some() {
            state.segments.give_back(segment);
        } else {
            stream.open_segment(segment, state.segments.start(segment), self.segment_bytes);
        }
        Ok(())
    }

    pub(super) fn write_tail(&self) -> Result<()> {
        self.pages.write_tail().map_err(|error| self.poisoned_by(error))
    }

    /// Highest page id that this store was ever given.
    pub fn max_page(&self) -> PageId {
        self.state.read().max_page
    }

    /// Pages that it has.
    pub fn pages(&self) -> u64 {
        self.state.read().pages
    }

    /// Records written by tree and cause.
    pub fn written(&self) -> WrittenPages {
        self.state.read().written.clone()
    }

    /// Whether writes of the tree's pages are dropped: it is being freed.
    pub fn is_dropped(&self, tree: TreeId) -> bool {
        self.state.read().dropped.contains_key(&tree)
    }

    /// Pages of a tree and the bytes they take on disk.
    #[cfg(test)]
    pub fn tree_bytes(&self, tree: TreeId) -> (u64, u64) {
        let state = self.state.read();
        let used = state.trees.get(&tree).copied().unwrap_or_default();
        (used.pages, used.stored_bytes)
    }

    /// Every tree that has a page in the map.
    pub fn trees(&self) -> Vec<TreeId> {
        let mut trees: Vec<TreeId> = self.state.read().trees.keys().copied().collect();
        trees.sort_unstable();
        trees
    }

    #[cfg(test)]
    pub fn is_poisoned(&self) -> bool {
        self.poison.lock().is_some()
    }

    pub fn check_poison(&self) -> Result<()> {
        match &*self.poison.lock() {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Stops all writing after a failed write or sync. A full disk is no such failure.
    pub(super) fn poisoned_by(&self, error: Error) -> Error {
        if !matches!(error, Error::Full { .. }) {
            self.poison.lock().get_or_insert_with(|| error.to_string());
        }
        error
    }
}

/// Whether a verified record is exactly the one that the map names.
pub(super) fn is_named(head: &record::Header, page: PageId, entry: MapEntry) -> bool {
    let found = (head.page, head.tree, head.lsn, head.checksum, head.record_bytes);
    found == (page, entry.tree(), entry.lsn(), entry.checksum(), entry.record_bytes())
}

fn check_segment_bytes(segment_bytes: u64) -> Result<()> {
    let whole = segment_bytes % BLOCK_BYTES as u64 == 0;
    if whole && (StoreOptions::SEGMENT_BYTES_MIN..=1 << 30).contains(&segment_bytes) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a segment of the page store has 64 KiB to 1 GiB in whole blocks, not {segment_bytes} bytes"
    )))
}

/// Makes all files of an empty store but the superblock, and answers that.
fn write_empty_store(os: &dyn Os, options: &StoreOptions, seed: u32) -> Result<Superblock> {
    let dir = &options.dir;
    let pages = mapfile::create_file(os, &pages_path(dir))?;
    pages.allocate((RESERVED_SEGMENTS as u64 + 1) * options.segment_bytes)?;
    pages.sync()?;
    let generation = 1;
    let snapshot = mapfile::create_file(os, &mapfile::snapshot_path(dir, generation))?;
    let written = write_snapshot(snapshot, seed, generation, 0, &|_| Ok(Vec::new()));
    let directory = match written {
        Ok(written) => written.directory,
        Err(Failure::Write(error) | Failure::Read(error)) => return Err(error),
    };
    let changes = mapfile::create_file(os, &mapfile::changes_path(dir, generation))?;
    let changes = ChangeLog::new(changes, seed, generation).append(&[], &Sums::default(), &[])?;
    os.sync_dir(dir)?;
    Ok(Superblock {
        generation,
        seed,
        segment_bytes: options.segment_bytes,
        max_page: 0,
        map_generation: generation,
        directory_at: directory.at,
        directory_bytes: directory.bytes,
        directory_checksum: directory.checksum,
        changes_end: changes.end(),
        changes_chain: changes.chain(),
        last_batch_at: changes.last_batch_at(),
        proof: proof(options.cipher.as_deref(), None)?,
        claim: KeyClaim::default(),
        promises: false,
    })
}

/// What the next superblock has to show that keys are right.
pub(super) fn proof(cipher: Option<&Cipher>, last: Option<Proof>) -> Result<Option<Proof>> {
    match cipher.and_then(|cipher| Some((cipher, cipher.newest()?))) {
        Some((cipher, newest)) if last.is_none_or(|last| cipher::name_of(&last) != newest) => {
            cipher.proof().map(Some)
        }
        _ => Ok(last),
    }
}

type Proof = [u8; cipher::ENVELOPE_BYTES];

/// The first byte of an encrypted note, in a directory whose superblock has a proof. Notes of the engine begin
/// otherwise.
const ENCRYPTED_NOTE: u8 = 0xff;

fn note_context(seed: u32) -> [u8; 8] {
    let mut context = *b"note\0\0\0\0";
    context[4..].copy_from_slice(&seed.to_le_bytes());
    context
}

/// A note as the change log has it: what users call their transactions is in it.
pub(super) fn encrypt_note<'a>(
    cipher: Option<&Cipher>,
    seed: u32,
    note: &'a [u8],
) -> Result<Cow<'a, [u8]>> {
    let Some(cipher) = cipher.filter(|cipher| cipher.encrypts() && !note.is_empty()) else {
        return Ok(note.into());
    };
    let mut encrypted = vec![ENCRYPTED_NOTE];
    encrypted.resize(1 + cipher::ENVELOPE_BYTES, 0);
    encrypted.extend_from_slice(note);
    cipher.encrypt(&note_context(seed), &mut encrypted[1..])?;
    Ok(encrypted.into())
}

/// The note of a directory with this superblock, which says whether it may be encrypted: any byte can be a
/// plain note's first.
pub(super) fn decrypt_note(
    cipher: Option<&Cipher>,
    sb: &Superblock,
    note: Vec<u8>,
) -> Result<Vec<u8>> {
    match note.split_first() {
        Some((&ENCRYPTED_NOTE, encrypted)) if sb.proof.is_some() => {
            cipher::decrypt_with(cipher, &note_context(sb.seed), encrypted)
        }
        _ => Ok(note),
    }
}

/// Reads the directory of the snapshot and the change log, and no leaf.
pub(super) fn load_map(
    os: &dyn Os,
    dir: &Path,
    sb: &Superblock,
    budget_bytes: usize,
) -> Result<(PageMap, ChangeLog, Vec<u8>, Sums)> {
    let direct = OpenMode { create: false, direct: true };
    let snapshot = os.open(&mapfile::snapshot_path(dir, sb.map_generation), direct)?;
    let (snapshot, chunks) = MapSnapshot::open(snapshot, sb)?;
    let mut map = PageMap::new(snapshot, &chunks, budget_bytes);
    let changes = os.open(&mapfile::changes_path(dir, sb.map_generation), direct)?;
    let mut changes = ChangeLog::new(changes, sb.seed, sb.map_generation);
    let (note, sums) = changes.load(sb, &mut map)?;
    Ok((map, changes, note, sums))
}

/// Checks what was loaded against the pages file; answers its number of segments.
fn check_loaded(map: &mut PageMap, sums: &Sums, sb: &Superblock, file: &dyn File) -> Result<usize> {
    let count = file.len()? / sb.segment_bytes;
    let corrupt = |what: String, offset: u64| {
        Err(Error::corrupt(what, format!("{} offset {offset}", file.path().display())))
    };
    if let Err(why) = sums.check(sb.segment_bytes, count) {
        return corrupt(format!("sums of the page map: {why}"), 0);
    }
    for (page, entry) in map.loaded_changes() {
        if !entry.is_none() && !entry.is_possible(sb.segment_bytes, count) {
            return corrupt(format!("map entry of page {page}"), entry.place());
        }
    }
    Ok(count as usize)
}

/// Removes map files of other generations than those that the superblock and a backup name.
pub(super) fn remove_obsolete(os: &dyn Os, dir: &Path, keep: [u64; 2]) -> Result<()> {
    for path in os.list(dir)? {
        if keep.iter().all(|&generation| mapfile::is_obsolete(&path, generation)) {
            os.remove(&path)?;
        }
    }
    Ok(())
}

pub(super) fn remove_if_there(os: &dyn Os, path: &Path) -> Result<()> {
    match os.exists(path)? {
        true => os.remove(path),
        false => Ok(()),
    }
}
