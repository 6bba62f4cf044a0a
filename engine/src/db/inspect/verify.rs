//! Everything that can be checked about a stopped directory.

use super::{log, Directory, Overlay};
use crate::base::{Error, Result};
use crate::btree::check_page;
use crate::db::recovery::CheckpointNote;
use crate::db::{CheckDepth, Config, Engine, Geometry, Host, Level};
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::{OpenMode, Os};
use crate::store::{file_names, PagePlace, StoreFiles};
use crate::wal::{self, SegmentState};
use std::sync::Arc;

/// Memory for pages while tables are checked.
const POOL_BYTES: u64 = 256 << 20;
/// Pages whose records are read in the order in which they lie in the file.
const BATCH_PAGES: usize = 1 << 16;
/// Faults listed for one kind of thing.
const FAULTS_MAX: usize = 1000;

/// One kind of thing that was looked at.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    /// How many: pages, records, rows.
    pub items: u64,
    pub faults: Vec<String>,
}

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub checks: Vec<Check>,
    /// True but no damage: what recovery would do.
    pub remarks: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.checks.iter().all(|check| check.faults.is_empty())
    }

    fn add(&mut self, name: impl Into<String>, items: u64, mut faults: Vec<String>) {
        let more = faults.len().saturating_sub(FAULTS_MAX);
        faults.truncate(FAULTS_MAX);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        self.checks.push(Check { name: name.into(), items, faults });
    }
}

/// Damage becomes a fault of the report; anything else is an error of the verification.
fn damage<T>(found: Result<T>, faults: &mut Vec<String>) -> Result<Option<T>> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(error @ (Error::Corrupt { .. } | Error::Refused(_) | Error::NotRetained)) => {
            faults.push(error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Keeps what recovery has to say.
struct Listener(Mutex<Vec<(Level, String)>>);

impl Default for Listener {
    fn default() -> Listener {
        Listener(Mutex::ranked(Rank::Listener, Vec::new()))
    }
}

impl Host for Listener {
    fn log(&self, level: Level, message: &str) {
        self.0.lock().push((level, message.to_owned()));
    }

    fn lock_wait(&self, _waiter_session: u64, _holder_session: u64) {}
}

impl Directory {
    /// Checks files, pages, log, and on an overlay recovery and all tables.
    pub fn verify(&self, geometry: Geometry) -> Result<Report> {
        StoreFiles::check_keys(&*self.os, &self.data_dir, self.cipher.as_deref())?;
        let mut report = Report::default();
        let mut faults = Vec::new();
        let store = damage(self.read_store(), &mut faults)?;
        report.add("superblock and page map", store.is_some().into(), faults);
        if let Some(store) = &store {
            self.verify_store(store, &mut report)?;
        }
        self.verify_log(store.as_ref(), &mut report)?;
        self.verify_tables(geometry, &mut report)?;
        Ok(report)
    }

    pub(super) fn read_store(&self) -> Result<StoreFiles> {
        // A missing file is damage, and the message says which.
        let superblock = self.data_dir.join("superblock");
        if !self.os.exists(&superblock)? {
            return Err(Error::Refused(format!("{} is missing", superblock.display())));
        }
        match self.store() {
            Err(Error::Io { op: "open", path, source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Err(Error::Refused(format!("{} is missing", path.display())))
            }
            other => other,
        }
    }

    fn verify_store(&self, store: &StoreFiles, report: &mut Report) -> Result<()> {
        let header = store.header;
        for (slot, damaged) in header.damaged_slots.iter().enumerate() {
            if *damaged {
                let path = self.data_dir.join("superblock");
                let text = format!("slot {slot} of {} is damaged", path.display());
                report.add("superblock slots", 1, vec![text]);
            }
        }
        if header.slots_differ && header.damaged_slots == [false; 2] {
            report.remarks.push("the superblock slots differ: a checkpoint was interrupted".into());
        }
        let names = file_names(&self.data_dir, header.map_generation);
        for path in self.os.list(&self.data_dir)? {
            let known = names.contains(&path)
                || path == self.log_dir
                || path.file_name().is_some_and(|name| name == "lock");
            if !known {
                report.remarks.push(format!("{} is not a file of this store", path.display()));
            }
        }
        let (mut faults, mut pages) = (Vec::new(), 0);
        let (mut map_faults, mut leaves_are_sound) = (Vec::new(), true);
        let mut batch = Vec::new();
        let mut check = |batch: &mut Vec<PagePlace>| {
            let mut found = Ok(());
            store.read_pages(std::mem::take(batch), &mut |page, bytes| {
                let checked =
                    bytes.and_then(|bytes| check_page(bytes).map_err(|e| e.of_page(page)));
                let known = damage(checked, &mut faults).map(|_| ());
                found = std::mem::replace(&mut found, Ok(())).and(known);
            });
            found
        };
        for place in store.places() {
            let Some(place) = damage(place, &mut map_faults)? else {
                leaves_are_sound = false;
                continue;
            };
            pages += 1;
            batch.push(place);
            if batch.len() == BATCH_PAGES {
                check(&mut batch)?;
            }
        }
        check(&mut batch)?;
        report.add(format!("pages in {}", store.path().display()), pages, faults);
        if leaves_are_sound {
            map_faults.extend(store.wrong_sums()?);
        }
        report.add("entries and sums of the page map", pages, map_faults);
        Ok(())
    }

    fn verify_log(&self, store: Option<&StoreFiles>, report: &mut Report) -> Result<()> {
        let mut faults = Vec::new();
        let control = self.log_dir.join("control");
        let files = if self.os.exists(&control)? {
            damage(wal::inspect(&*self.os, &self.log_dir), &mut faults)?
        } else {
            faults.push(format!("{} is missing", control.display()));
            None
        };
        let Some(files) = files else {
            report.add("log files", 0, faults);
            return Ok(());
        };
        self.verify_control_copies(&mut faults)?;
        for segment in files.segments.iter().filter(|s| s.state == SegmentState::Damaged) {
            let path = segment.path.display();
            faults.push(format!(
                "{path}: header or length is not that of segment {}",
                segment.number
            ));
        }
        report.add("log files", files.segments.len() as u64 + 1, faults);
        let note = match store {
            Some(store) => CheckpointNote::decode(&store.note),
            None => return Ok(()),
        };
        let (mut faults, mut records) = (Vec::new(), 0);
        if let Some(note) = damage(note, &mut faults)? {
            let visit = &mut |item| {
                records += u64::from(matches!(item, log::LogItem::Record(_)));
                true
            };
            let end =
                log::scan(&self.os, &self.log_dir, note.scan_from, self.cipher.clone(), visit);
            if let Some(end) = damage(end, &mut faults)? {
                report.remarks.push(format!("the log's last valid batch ends at {end}"));
            }
        }
        report.add("log records after the last checkpoint", records, faults);
        Ok(())
    }

    /// Both copies are written together; one may be damaged without harm, and is a fault here.
    fn verify_control_copies(&self, faults: &mut Vec<String>) -> Result<()> {
        let path = self.log_dir.join("control");
        let file = self.os.open(&path, OpenMode { create: false, direct: true })?;
        for slot in wal::damaged_control_copies(&*file)? {
            faults.push(format!("copy {slot} in {} is damaged", path.display()));
        }
        Ok(())
    }

    /// Recovers on an overlay and checks every table that the catalog names.
    fn verify_tables(&self, geometry: Geometry, report: &mut Report) -> Result<()> {
        let overlay: Arc<dyn Os> = Overlay::new(Arc::clone(&self.os));
        let mut config = Config::new(&self.data_dir);
        config.log_dir = Some(self.log_dir.clone());
        config.background = false;
        config.buffer_pool_bytes = POOL_BYTES;
        config.encryption = self.encryption.clone();
        let host = Arc::new(Listener::default());
        let mut faults = Vec::new();
        let opened =
            Engine::open_with(overlay, config, geometry, Arc::clone(&host) as Arc<dyn Host>);
        let engine = match opened {
            Err(error @ Error::Io { .. }) => {
                faults.push(error.to_string());
                None
            }
            other => damage(other, &mut faults)?,
        };
        for (level, message) in std::mem::take(&mut *host.0.lock()) {
            match level {
                Level::Note => report.remarks.push(message),
                Level::Warning | Level::Error => faults.push(message),
            }
        }
        report.add("recovery", 1, faults);
        let Some(engine) = engine else { return Ok(()) };
        engine.start_readers();
        let checked = engine.table_names().into_iter().try_for_each(|name| {
            let mut faults = Vec::new();
            let checked = engine.check_table(&name, CheckDepth::Full, &|| false);
            let found = damage(checked, &mut faults)?;
            let rows = found.as_ref().map_or(0, |found| found.rows);
            faults.extend(found.into_iter().flat_map(|found| found.faults));
            report.add(format!("table {name}"), rows, faults);
            Ok(())
        });
        engine.stop_workers();
        checked
    }
}
