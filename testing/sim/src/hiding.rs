//! What a seed encrypts, and what must not be readable in its files.

use sluice_engine::base::{Error, Result, TreeId};
use sluice_engine::db::{trees_with_plain_records, Encryption, Engine, FixedKeys, Keys, Scope};
use sluice_engine::os::sim::{SimOs, SimRng};
use sluice_engine::os::{OpenMode, Os};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// So many seeds of 100 encrypt what they write: drawn apart, the others stay as they were.
const ENCRYPTION_PERCENT: u64 = 30;
const ENCRYPTION_SALT: u64 = 0x33_17;
/// One opening of so many of those is without.
const PLAIN_EVERY: u64 = 7;
/// And so many of all others encrypt single tables; their openings differ.
const NAMED_PERCENT: u64 = 20;
const NAMED_SALT: u64 = 0x7ab1e5;
/// As many equal bytes as these are no accident.
const FILLER_BYTES_MIN: usize = 24;
/// Of the superblock (docs/format.md): its slots, where their version stands, and from which one on there is a
/// table that must be encrypted.
const SLOT_BYTES: u64 = 64 << 10;
const VERSION_AT: u64 = 8;
const PROMISING_VERSION: u32 = 5;
const DIRS: [&str; 2] = ["/data", "/data/log"];

/// What an opening does with what is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Off,
    Named,
    All,
}

pub struct Hiding {
    pub keys: Option<Arc<FixedKeys>>,
    /// If tables have a choice.
    modes: Option<RefCell<SimRng>>,
    /// Openings so far; and whether each of them had encryption on.
    opened: Cell<u64>,
    is_hidden: Cell<bool>,
    mode: Cell<Mode>,
    /// Of the next opening, instead of what it would draw.
    ordered: Cell<Option<Mode>>,
    /// Of all tables that had to be encrypted, whether they are there or not.
    pub promised: Arc<Mutex<BTreeSet<TreeId>>>,
    /// Trees with plain records at the last look, and those of them whose ids were free after it.
    plain: RefCell<BTreeSet<TreeId>>,
    earlier: RefCell<BTreeSet<TreeId>>,
}

impl Hiding {
    pub fn of_seed(seed: u64) -> Hiding {
        let is_all = SimRng::new(seed ^ ENCRYPTION_SALT).chance(ENCRYPTION_PERCENT);
        let mut modes = SimRng::new(seed ^ NAMED_SALT);
        let is_named = !is_all && modes.chance(NAMED_PERCENT);
        Hiding {
            keys: (is_all || is_named).then(|| FixedKeys::new(1)),
            modes: is_named.then(|| RefCell::new(modes)),
            opened: Cell::new(0),
            is_hidden: Cell::new(is_all || is_named),
            mode: Cell::new(Mode::Off),
            ordered: Cell::new(None),
            promised: Arc::default(),
            plain: RefCell::default(),
            earlier: RefCell::default(),
        }
    }

    /// Whether tables of this opening may have to be encrypted.
    pub fn has_choice(&self) -> bool {
        self.modes.is_some() && self.mode.get() != Mode::Off
    }

    /// What else the end of a seed has to come to rest with.
    pub fn modes_of_the_end(&self) -> &[Mode] {
        if self.modes.is_some() {
            &[Mode::Named, Mode::All]
        } else {
            &[]
        }
    }

    pub fn order(&self, mode: Mode) {
        self.ordered.set(Some(mode));
    }

    /// Keys get a new version now and then; and once in a while encryption is off.
    fn draw(&self, keys: &FixedKeys, os: &SimOs) -> Mode {
        let opened = self.opened.replace(self.opened.get() + 1);
        keys.newest.fetch_max(1 + opened / 3, Ordering::Relaxed);
        if let Some(mode) = self.ordered.take() {
            return mode;
        }
        let Some(modes) = &self.modes else {
            let is_on = opened % PLAIN_EVERY != PLAIN_EVERY - 1;
            return if is_on { Mode::All } else { Mode::Off };
        };
        match modes.borrow_mut().below(10) {
            // The opening that shows a promise which was not kept.
            _ if self.lacks_promise(os) => Mode::Off,
            0..=4 => Mode::Named,
            5..=7 => Mode::All,
            _ => Mode::Off,
        }
    }

    /// A table had to be encrypted, whether it is there or not, and no slot of the superblock says so.
    fn lacks_promise(&self, os: &SimOs) -> bool {
        let known = !self.promised.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let Ok(file) = os.open(&Path::new(DIRS[0]).join("superblock"), OpenMode::default()) else {
            return false;
        };
        let is_without = |slot: u64| {
            let mut version = [0; 4];
            let read = file.read_at(&mut version, slot * SLOT_BYTES + VERSION_AT);
            read.is_ok() && u32::from_le_bytes(version) < PROMISING_VERSION
        };
        known && (0..2).all(is_without)
    }

    fn encryption(&self, keys: &Arc<FixedKeys>, mode: Mode) -> Encryption {
        self.mode.set(mode);
        self.is_hidden.set(self.is_hidden.get() && mode != Mode::Off);
        Encryption {
            keys: Arc::clone(keys) as Arc<dyn Keys>,
            writes_under: (mode != Mode::Off).then_some(1),
            scope: if mode == Mode::Named { Scope::NamedTables } else { Scope::AllTables },
        }
    }

    /// Opens the engine as this seed does it. Where a table has to be encrypted an opening that writes plain is
    /// refused, before it has changed a file.
    pub fn open(
        &self,
        os: &Arc<SimOs>,
        open: &dyn Fn(Option<Encryption>) -> Result<Arc<Engine>>,
    ) -> Result<Arc<Engine>> {
        let Some(keys) = &self.keys else { return open(None) };
        let mode = self.draw(keys, os);
        let may_be_refused = self.modes.is_some() && mode == Mode::Off;
        let was_hidden = self.is_hidden.get();
        let before = may_be_refused.then(|| files(os)).flatten();
        let opened = match open(Some(self.encryption(keys, mode))) {
            Err(Error::Refused(why)) if may_be_refused && why.contains("ENCRYPTED=YES") => {
                let is_same = |now| before.is_none_or(|before| before == now);
                assert!(files(os).is_none_or(is_same), "a refused start has changed files: {why}");
                self.is_hidden.set(was_hidden);
                open(Some(self.encryption(keys, Mode::Named)))
            }
            opened => opened,
        };
        if let Ok(engine) = &opened {
            let promised = engine.promised_trees();
            let is_kept = self.mode.get() != Mode::Off || promised.is_empty();
            assert!(is_kept, "tables that must be encrypted are open where nothing is");
            // Ids that only log which is lost has given are given again.
            let next = engine.next_tree();
            let mut known = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|tree| *tree < next);
            known.extend(promised);
            // So an id of a plain tree may come back for one that must be encrypted.
            let plain = self.plain.borrow();
            self.earlier.borrow_mut().extend(plain.iter().filter(|tree| **tree >= next));
        }
        opened
    }

    /// After a loss of power: nothing that must be hidden can be read.
    pub fn check(&self, os: &Arc<SimOs>) {
        if self.modes.is_some() {
            let plain = trees_with_plain_records(&**os, Path::new(DIRS[0])).unwrap_or_default();
            let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
            let earlier = self.earlier.borrow();
            let bad = promised.intersection(&plain).find(|tree| !earlier.contains(tree));
            assert!(bad.is_none(), "a page of {bad:?}, which must be encrypted, is to be read");
            drop(promised);
            self.plain.replace(plain);
        }
        if !self.is_hidden.get() {
            return;
        }
        for (path, bytes) in files(os).unwrap_or_default() {
            // Fillers of rows are many equal bytes. Encrypted bytes never are, and nothing else is.
            let is_filler = |run: &[u8]| run.len() >= FILLER_BYTES_MIN && run[0] != 0;
            let is_looked_at = self.modes.is_none() || !path.ends_with("pages");
            let mut runs = bytes.chunk_by(|a, b| a == b);
            assert!(!is_looked_at || !runs.any(is_filler), "{} is to be read", path.display());
        }
    }

    /// At rest everything is as the last opening has to keep it.
    pub fn check_at_rest(&self, engine: &Engine) {
        if self.keys.is_some() && engine.given_up_pages() == 0 {
            let bad = engine.badly_kept_trees().expect("a look at all pages");
            assert!(bad.is_empty(), "pages of {bad:?} are plain, or encrypted, and must not be");
        }
    }
}

/// Keeps in mind which trees had to be encrypted.
pub fn note(promised: &Mutex<BTreeSet<TreeId>>, engine: &Engine) {
    let mut known = promised.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(engine.promised_trees());
}

/// Names and bytes of the files that outlive a start; `None`: something cannot be read now.
fn files(os: &Arc<SimOs>) -> Option<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for dir in DIRS.map(Path::new) {
        for path in os.list(dir).unwrap_or_default() {
            let is_of_a_start = |name: &str| name == "lock" || name.starts_with("sort-");
            if path.file_name().and_then(|name| name.to_str()).is_none_or(is_of_a_start) {
                continue;
            }
            let Ok(file) = os.open(&path, OpenMode::default()) else { continue };
            let mut bytes = vec![0; file.len().map_or(0, |bytes| bytes as usize)];
            file.read_at(&mut bytes, 0).ok()?;
            found.push((path, bytes));
        }
    }
    Some(found)
}
