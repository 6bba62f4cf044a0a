//! What a loss of power leaves: reads the shim's journal and takes from the files what was not
//! durable, by a seed.
//!
//! The model:
//! 1. A change of bytes is durable once a sync of its file that began after it has ended, or a
//!    data-sync write of the same sectors. Every other change is kept or lost sector by sector; a
//!    sector that was changed several times may be left as any of these changes left it.
//! 2. Lengths likewise, independent of the bytes: a kept length over lost bytes leaves zeros.
//! 3. Names are changed in the order of a metadata journal, as in ext4: some prefix of the changes
//!    survives, at least up to the last one that a sync has committed. In a strict directory a name
//!    needs a sync of that directory, as POSIX has it, and each directory has its own prefix.

use crate::innodb::Innodb;
use crate::journal::*;
use sluice_rig::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// What one cut has taken.
#[derive(Default, Clone, Copy, Debug)]
pub struct Lost {
    pub changes_at_risk: u64,
    pub sectors_at_risk: u64,
    pub sectors: u64,
    pub lengths: u64,
    pub names_at_risk: u64,
    pub names: u64,
}

impl Lost {
    pub fn add(&mut self, other: &Lost) {
        self.changes_at_risk += other.changes_at_risk;
        self.sectors_at_risk += other.sectors_at_risk;
        self.sectors += other.sectors;
        self.lengths += other.lengths;
        self.names_at_risk += other.names_at_risk;
        self.names += other.names;
    }
}

/// How much survives of the changes at risk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    Nothing,
    Everything,
    /// What was noted before this place in the journal.
    Until(u64),
    /// Each sector has its own moment.
    Sectors,
    /// Each block of 4 KiB has its own moment; some have two, torn at a sector.
    Blocks,
}

struct DataChange {
    position: u64,
    entry: Entry,
    /// Made durable by data-sync writes.
    except: Vec<Range<u64>>,
}

#[derive(Default)]
struct History {
    changes: Vec<DataChange>,
    /// Changes of the length that may be lost: place in the journal, length before.
    lengths: Vec<(u64, u64)>,
    created_at: u64,
}

struct NameChange {
    position: u64,
    entry: Entry,
    paths: Vec<PathBuf>,
}

/// A server without a binlog spoils the first byte of tc.log when it shuts down, and then deletes
/// the file (`TC_LOG_MMAP::close` in sql/log.cc of 10.11.18). Neither is synced: when the first
/// survives and the second does not, the stock server refuses to start ("Bad magic header in tc
/// log"). So that deletion is never lost, and what ended between the two is taken for after both.
/// A start makes the file, fills it with zeros, and writes the magic last, before anything uses it
/// (`TC_LOG_MMAP::open`): of a cut in between that server says the same. So a file of zeros goes, too.
const TC_LOG: &str = "tc.log";
/// The magic of tc.log with its first byte spoiled.
const TC_LOG_SPOILED: [u8; 4] = [b'A', 0x23, 0x05, 0x74];

/// DROP TABLE writes its entry to this log, syncs it, and then links it to the entry that will be
/// executed, without a sync (`ddl_log_drop` and `update_next_entry_pos` in sql/ddl_log.cc of
/// 10.11.18). Without the link recovery does not go on with the drop: the engine has dropped the
/// table, its .frm is still there. So what was written to this log is never lost.
const DDL_LOG: &str = "ddl_recovery.log";

/// Which of the losses that the stock server does not survive are left out; see docs/powercut.md.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spare {
    /// The deletion of tc.log.
    pub tc_log: bool,
    /// Bytes of the DDL log.
    pub ddl_log: bool,
    /// Renames and deletions of .frm files.
    pub frm: bool,
    /// Pages that InnoDB's checkpoint took for durable.
    pub innodb_checkpoint: bool,
}

impl Spare {
    pub const ALL: Spare =
        Spare { tc_log: true, ddl_log: true, frm: true, innodb_checkpoint: true };
}

impl NameChange {
    fn is_deleted_tc_log(&self) -> bool {
        self.entry.kind == KIND_UNLINK && self.paths[0].ends_with(TC_LOG)
    }

    /// ALTER TABLE without a binlog renames .frm files and is acknowledged with nothing synced that
    /// would commit the names. The engine has no part in these files: such a change is never lost.
    fn is_spared(&self, spare: Spare) -> bool {
        let frm = |path: &PathBuf| path.extension().is_some_and(|e| e == "frm");
        let renamed = matches!(self.entry.kind, KIND_RENAME | KIND_UNLINK);
        (spare.tc_log && self.is_deleted_tc_log())
            || (spare.frm && renamed && self.paths.iter().any(frm))
    }
}

/// Deletes a tc.log that was about to be deleted, or that nothing has used yet.
fn finish_tc_log(path: &Path, story: &mut impl Write) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let state = match bytes.starts_with(&TC_LOG_SPOILED) {
        true => "spoiled",
        false if bytes.iter().all(|&byte| byte == 0) => "not used yet",
        false => return Ok(()),
    };
    writeln!(story, "  {} was {state}: deleted", path.display())?;
    fs::remove_file(path)
}

/// Everything that the journal says may be lost.
pub struct AtRisk {
    journal: File,
    end: u64,
    files: BTreeMap<u64, History>,
    names: Vec<NameChange>,
    /// Names changed before this place are durable, but for those of strict directories.
    committed: u64,
    dirs_committed: HashMap<PathBuf, u64>,
    spare: Spare,
    innodb: Innodb,
}

fn bad<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> io::Error + '_ {
    move |error| io::Error::other(format!("{what}: {error}"))
}

impl AtRisk {
    pub fn read(side: &Path, spare: Spare) -> io::Result<AtRisk> {
        let journal = File::open(side.join("journal"))?;
        let mut header = [0u8; 16];
        journal.read_exact_at(&mut header, 0).map_err(bad("the journal's header"))?;
        let word =
            |i: usize| u64::from_ne_bytes(header[8 * i..8 * i + 8].try_into().unwrap_or([0; 8]));
        let mut at_risk = AtRisk {
            journal,
            // No magic: the server was dead before its first call.
            end: if word(WORD_MAGIC) == MAGIC { word(WORD_END) } else { HEADER_BYTES },
            files: BTreeMap::new(),
            names: Vec::new(),
            committed: 0,
            dirs_committed: HashMap::new(),
            spare,
            innodb: match spare.innodb_checkpoint {
                true => Innodb::find(side)?,
                false => Innodb::default(),
            },
        };
        let mut position = HEADER_BYTES;
        while position < at_risk.end {
            let entry = at_risk.entry(position)?;
            at_risk.take(position, entry)?;
            position += entry.total_bytes();
        }
        Ok(at_risk)
    }

    fn entry(&self, position: u64) -> io::Result<Entry> {
        let mut bytes = [0u8; ENTRY_BYTES as usize];
        self.journal.read_exact_at(&mut bytes, position)?;
        let mut words =
            bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or([0; 8])));
        let mut next = || words.next().unwrap_or(0);
        Ok(Entry {
            kind: next(),
            file: next(),
            offset: next(),
            len: next(),
            old_len: next(),
            new_len: next(),
            mark: next(),
            payload_bytes: next(),
        })
    }

    fn payload(&self, position: u64, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.journal.read_exact_at(&mut bytes, position + ENTRY_BYTES + range.start)?;
        Ok(bytes)
    }

    fn take(&mut self, position: u64, entry: Entry) -> io::Result<()> {
        match entry.kind {
            KIND_CHANGE => {
                if self.innodb.is_checkpoint(&entry) {
                    for id in &self.innodb.pages {
                        if let Some(pages) = self.files.get_mut(id) {
                            pages.synced(0..u64::MAX, position);
                        }
                    }
                }
                let history = self.files.entry(entry.file).or_default();
                if entry.old_len != entry.new_len {
                    history.lengths.push((position, entry.old_len));
                }
                history.changes.push(DataChange { position, entry, except: Vec::new() });
            }
            KIND_SYNCED => self.synced(&entry),
            KIND_SYNCED_ALL => {
                for history in self.files.values_mut() {
                    history.synced(0..u64::MAX, entry.mark);
                }
                self.committed = self.committed.max(entry.mark);
                self.names.retain(|name| name.position >= entry.mark);
            }
            KIND_DIR_SYNCED => {
                let path = self.paths(position, &entry)?.remove(0);
                self.committed = self.committed.max(entry.mark);
                let committed = self.dirs_committed.entry(path).or_default();
                *committed = entry.mark.max(*committed);
            }
            KIND_CREATE..=KIND_RMDIR => {
                if entry.kind == KIND_CREATE {
                    self.files.entry(entry.file).or_default().created_at = position;
                }
                let paths = self.paths(position, &entry)?;
                self.names.push(NameChange { position, entry, paths });
            }
            other => return Err(io::Error::other(format!("entry {other} in the journal"))),
        }
        Ok(())
    }

    fn paths(&self, position: u64, entry: &Entry) -> io::Result<Vec<PathBuf>> {
        let bytes = self.payload(position, 0..entry.payload_bytes)?;
        let path = |part: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(part));
        Ok(bytes.split(|b| *b == 0).map(path).collect())
    }

    /// A sync of a file's data commits the metadata journal as far as the file's length and its
    /// existence need it; fsync as far as the file's times, which is where it began.
    fn synced(&mut self, sync: &Entry) {
        let history = self.files.entry(sync.file).or_default();
        let metadata = sync.old_len != 0;
        let own = history.lengths.iter().map(|l| l.0).chain([history.created_at]);
        let needed = own.filter(|p| *p < sync.mark).map(|p| p + 1).max().unwrap_or(0);
        self.committed = self.committed.max(if metadata { sync.mark } else { needed });
        history.synced(sync.offset..sync.offset.saturating_add(sync.len), sync.mark);
    }

    /// Takes from the files what the fates say. `side/files` holds a second name of each file.
    /// Without a common fate each file has its own. `story` gets a line for each file and each name that was at risk.
    pub fn lose(
        &self,
        side: &Path,
        strict: &[PathBuf],
        fate: Option<Fate>,
        rng: &mut Rng,
        story: &mut impl Write,
    ) -> io::Result<Lost> {
        let mut lost = Lost::default();
        writeln!(story, "power cut, common fate {fate:?}, {} bytes of journal", self.end)?;
        let spared = self.spared(side)?;
        for (id, history) in &self.files {
            if history.changes.is_empty() && history.lengths.is_empty() {
                continue;
            }
            let fate = fate.unwrap_or_else(|| own_fate(rng));
            let fate = spared.get(id).copied().unwrap_or(fate);
            let path = side.join("files").join(id.to_string());
            // A file whose creation was noted and not done has no second name.
            match File::options().read(true).write(true).open(&path) {
                Ok(file) => {
                    let before = lost;
                    self.lose_changes(&file, history, fate, rng, &mut lost)?;
                    writeln!(
                        story,
                        "  file {id} inode {} {fate:?}: {} changes, {} of {} sectors, {} lengths of {}",
                        file.metadata()?.ino(),
                        history.changes.len(),
                        lost.sectors - before.sectors,
                        lost.sectors_at_risk - before.sectors_at_risk,
                        lost.lengths - before.lengths,
                        history.lengths.len(),
                    )?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.lose_names(side, strict, fate, rng, &mut lost, story)?;
        if self.spare.tc_log {
            finish_tc_log(&side.with_file_name("data").join(TC_LOG), story)?;
        }
        Ok(lost)
    }

    /// The fates of files that the stock server does not sync as it should, see `TC_LOG`.
    fn spared(&self, side: &Path) -> io::Result<BTreeMap<u64, Fate>> {
        let deleted = self.names.iter().filter(|n| self.spare.tc_log && n.is_deleted_tc_log());
        let mut fates: BTreeMap<_, _> = deleted.map(|n| (n.entry.file, Fate::Nothing)).collect();
        let ddl_log = fs::metadata(side.with_file_name("data").join(DDL_LOG));
        if let Some(meta) = ddl_log.ok().filter(|_| self.spare.ddl_log) {
            for id in self.files.keys() {
                let file = fs::metadata(side.join("files").join(id.to_string()));
                if file.is_ok_and(|file| file.ino() == meta.ino()) {
                    fates.insert(*id, Fate::Everything);
                }
            }
        }
        Ok(fates)
    }

    /// In a third of the cuts all files share one fate.
    pub fn common_fate(&self, rng: &mut Rng) -> Option<Fate> {
        match rng.between(1, 9) {
            1 | 2 => Some(Fate::Nothing),
            3 => Some(Fate::Until(rng.between(HEADER_BYTES as i64, self.end as i64) as u64)),
            _ => None,
        }
    }

    fn lose_changes(
        &self,
        file: &File,
        history: &History,
        fate: Fate,
        rng: &mut Rng,
        lost: &mut Lost,
    ) -> io::Result<()> {
        let now = file.metadata()?.len();
        let len = history.length(now, fate, rng);
        lost.changes_at_risk += history.changes.len() as u64;
        lost.lengths += u64::from(len != now);
        let mut keep = history.moments(fate, rng);
        lost.sectors_at_risk += keep.len() as u64;
        // A truncation that is lost leaves all the bytes that it would have taken.
        keep.range_mut(now / SECTOR..)
            .for_each(|(_, kept)| *kept = if len > now { 0 } else { *kept });
        if len != now {
            file.set_len(len)?;
        }
        let mut touched = BTreeSet::new();
        for (index, change) in history.changes.iter().enumerate().rev() {
            let lose = |sector: u64| keep.get(&sector).is_some_and(|kept| index >= *kept);
            for range in runs(change, lose) {
                let range = range.start..range.end.min(len);
                if range.start < range.end {
                    file.write_all_at(&self.old_bytes(change, &range)?, range.start)?;
                    touched.extend(range.start / SECTOR..range.end.div_ceil(SECTOR));
                }
            }
        }
        lost.sectors += touched.len() as u64;
        Ok(())
    }

    /// What `range` held before the change; zeros where the payload is shorter.
    fn old_bytes(&self, change: &DataChange, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let start = range.start - change.entry.offset;
        let wanted = range.end - range.start;
        let end = (start + wanted).min(change.entry.payload_bytes).max(start);
        let mut bytes =
            if start < end { self.payload(change.position, start..end)? } else { Vec::new() };
        bytes.resize(wanted as usize, 0);
        Ok(bytes)
    }

    fn lose_names(
        &self,
        side: &Path,
        strict: &[PathBuf],
        fate: Option<Fate>,
        rng: &mut Rng,
        lost: &mut Lost,
        story: &mut impl Write,
    ) -> io::Result<()> {
        // Changes at risk by domain: a strict directory, or all the others together.
        let mut domains: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        for (index, name) in self.names.iter().enumerate() {
            let dir = name.paths[0].parent().unwrap_or(Path::new("/"));
            let is_strict = strict.iter().any(|s| dir.starts_with(s));
            let (domain, committed) = match is_strict {
                true => (dir.into(), self.dirs_committed.get(dir).copied().unwrap_or(0)),
                false => (PathBuf::new(), self.committed),
            };
            if name.position >= committed {
                domains.entry(domain).or_default().push(index);
            }
        }
        let mut undone: Vec<usize> = Vec::new();
        for indexes in domains.values() {
            let kept = match fate {
                Some(Fate::Nothing) => 0,
                Some(Fate::Everything) => indexes.len(),
                Some(Fate::Until(place)) => {
                    indexes.iter().filter(|i| self.names[**i].position < place).count()
                }
                _ => rng.between(0, indexes.len() as i64) as usize,
            };
            lost.names_at_risk += indexes.len() as u64;
            let (spared, lossy): (Vec<usize>, _) =
                indexes[kept..].iter().partition(|i| self.names[**i].is_spared(self.spare));
            for index in &spared {
                writeln!(story, "  name spared: {:?}", self.names[*index].paths)?;
            }
            for index in &indexes[..kept] {
                let name = &self.names[*index];
                writeln!(story, "  name kept: kind {} {:?}", name.entry.kind, name.paths)?;
            }
            undone.extend::<Vec<usize>>(lossy);
        }
        lost.names += undone.len() as u64;
        undone.sort_unstable();
        for index in undone.into_iter().rev() {
            let name = &self.names[index];
            writeln!(story, "  name lost: kind {} {:?}", name.entry.kind, name.paths)?;
            undo(name, side).map_err(bad(&format!("undoing {:?} {:?}", name.entry, name.paths)))?;
        }
        Ok(())
    }
}

fn own_fate(rng: &mut Rng) -> Fate {
    match rng.between(1, 8) {
        1 | 2 => Fate::Nothing,
        3 => Fate::Everything,
        4 | 5 => Fate::Sectors,
        _ => Fate::Blocks,
    }
}

impl History {
    fn synced(&mut self, range: Range<u64>, mark: u64) {
        self.lengths.retain(|(position, _)| *position >= mark);
        // The disk writes whole sectors.
        let range = range.start / SECTOR * SECTOR
            ..range.end.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
        let covers = |outer: &Range<u64>, c: &DataChange| {
            outer.start <= c.entry.offset && c.entry.offset.saturating_add(c.entry.len) <= outer.end
        };
        self.changes.retain(|c| c.position >= mark || !covers(&range, c));
        for change in self.changes.iter_mut().filter(|c| c.position < mark) {
            let own = change.entry.offset..change.entry.offset.saturating_add(change.entry.len);
            if own.start < range.end && range.start < own.end {
                change.except.push(range.clone());
            }
        }
    }

    fn length(&self, now: u64, fate: Fate, rng: &mut Rng) -> u64 {
        let count = self.lengths.len();
        let kept = match fate {
            Fate::Nothing => 0,
            Fate::Everything => count,
            Fate::Until(place) => self.lengths.iter().filter(|l| l.0 < place).count(),
            Fate::Sectors | Fate::Blocks => match rng.between(1, 3) {
                1 => 0,
                2 => count,
                _ => rng.between(0, count as i64) as usize,
            },
        };
        self.lengths.get(kept).map_or(now, |l| l.1)
    }

    /// For each sector at risk, how many of the file's changes it has seen.
    fn moments(&self, fate: Fate, rng: &mut Rng) -> BTreeMap<u64, usize> {
        let unit = if fate == Fate::Blocks { BLOCK } else { SECTOR };
        let mut touching: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, change) in self.changes.iter().enumerate() {
            for at in change.units(unit) {
                touching.entry(at).or_default().push(index);
            }
        }
        let all = self.changes.len();
        let seen_until = |place| self.changes.partition_point(|c| c.position < place);
        let mut moments = BTreeMap::new();
        for (at, indexes) in touching {
            let mut moment =
                || rng.pick(&indexes).copied().filter(|_| !rng.one_in(3)).unwrap_or(all);
            match fate {
                Fate::Nothing => drop(moments.insert(at, 0)),
                Fate::Everything => drop(moments.insert(at, all)),
                Fate::Until(place) => drop(moments.insert(at, seen_until(place))),
                Fate::Sectors => drop(moments.insert(at, moment())),
                Fate::Blocks => {
                    let (first, second) = (moment(), moment());
                    let torn_at = match rng.one_in(3) {
                        true => rng.between(1, 7) as u64,
                        false => 8,
                    };
                    for i in 0..8 {
                        moments.insert(8 * at + i, if i < torn_at { first } else { second });
                    }
                }
            }
        }
        moments
    }
}

impl DataChange {
    fn units(&self, unit: u64) -> Range<u64> {
        let end = self.entry.offset.saturating_add(self.entry.len);
        self.entry.offset / unit..end.div_ceil(unit)
    }
}

/// The parts of a change in sectors that lose it, neighbours joined.
fn runs(change: &DataChange, lose: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let own = change.entry.offset..change.entry.offset.saturating_add(change.entry.len);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for sector in change.units(SECTOR) {
        let range = (sector * SECTOR).max(own.start)..((sector + 1) * SECTOR).min(own.end);
        let durable = change.except.iter().any(|e| e.start <= range.start && range.end <= e.end);
        if durable || !lose(sector) {
            continue;
        }
        match runs.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => runs.push(range),
        }
    }
    runs
}

/// Takes back one change of a name; the later ones are taken back already. It may not have
/// happened, if the process was killed just then.
fn undo(name: &NameChange, side: &Path) -> io::Result<()> {
    let path = &name.paths[0];
    let bytes_of = |id: u64| side.join("files").join(id.to_string());
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let restore = |id: u64, path: &Path| match path.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(_) => fs::hard_link(bytes_of(id), path),
    };
    match name.entry.kind {
        KIND_CREATE | KIND_LINK => absent_is_fine(fs::remove_file(path)),
        KIND_UNLINK => restore(name.entry.file, path),
        KIND_MKDIR => absent_is_fine(fs::remove_dir_all(path)),
        KIND_RMDIR if path.exists() => Ok(()),
        KIND_RMDIR => fs::create_dir(path),
        _ => {
            let to = name.paths.get(1).ok_or_else(|| io::Error::other("no second name"))?;
            let done = to.symlink_metadata().is_ok_and(|m| m.ino() == name.entry.len);
            if done {
                fs::rename(to, path)?;
                if name.entry.offset != 0 {
                    restore(name.entry.offset, to)?;
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tc_log_that_is_in_use_stays() {
        let path = std::env::temp_dir().join(format!("sluice-tc-log-{}", std::process::id()));
        let spoiled = [&TC_LOG_SPOILED[..], &[3; 9]].concat();
        let in_use = [&[0xfe][..], &spoiled[1..], &[0; 100]].concat();
        for (bytes, stays) in
            [(in_use, true), (spoiled, false), (vec![0; 12288], false), (vec![], false)]
        {
            fs::write(&path, &bytes).unwrap();
            finish_tc_log(&path, &mut io::sink()).unwrap();
            assert_eq!(path.exists(), stays, "{bytes:?}");
        }
        finish_tc_log(&path, &mut io::sink()).expect("no file, no harm");
    }
}
