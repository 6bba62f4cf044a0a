//! After a crash: the binlog files made equal to the log (rules M13, M14).
//!
//! Everything is looked at first. Where a file that the log holds the end of is not to be found,
//! or has more after that end than a crash can leave, nothing is touched and the start is refused:
//! the log goes on holding it. Else the logged bytes that differ are written, the file is cut
//! after its last group end, and synced. A crash on the way repeats all of it.

use super::behind::Behind;
use super::census::Decisions;
use super::events;
use super::files;
use super::gtid::Gtid;
use super::index::Index;
use super::planted::{self, Bug};
use super::record::{decode_bytes, Authority, FileInfo, RECORD_BINLOG};
use super::recover::{BinlogRecovery, Trace};
use crate::base::{Error, Lsn, Result};
use crate::os::{File, OpenMode, Os};
use crate::wal::Wal;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// What the log knows of the last file, which the server would scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub path: String,
    /// The GTID state at its end; of a domain the most recent last.
    pub gtids: Vec<Gtid>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub files: u64,
    /// Bytes that were missing or different.
    pub completed_bytes: u64,
    pub cut_bytes: u64,
    /// For the error log: what was left alone and why; what was cut, and where it is now.
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
    /// Or why the server has to scan the last file.
    pub known: std::result::Result<Known, &'static str>,
    /// What became of transactions, as far as the log knows.
    pub decisions: Decisions,
    /// The server will not scan its last file: it was closed, or there is none.
    pub is_closed: bool,
    /// The server will not look where the log does: what the binlog has is committed before.
    pub is_aside: bool,
}

impl Default for Completion {
    fn default() -> Completion {
        Completion {
            files: 0,
            completed_bytes: 0,
            cut_bytes: 0,
            warnings: Vec::new(),
            notes: Vec::new(),
            known: Err("the log had no authority over it"),
            decisions: Decisions::default(),
            is_closed: false,
            is_aside: false,
        }
    }
}

/// Where the files are looked for.
pub(super) struct Site<'a> {
    pub os: &'a dyn Os,
    pub wal: &'a Wal,
    pub index: Index,
    /// The name of the binlog's files without their number, as the server has it now.
    pub base: PathBuf,
    /// The mark of this log stands there.
    pub has_mark: bool,
}

/// What is to be done, when nothing speaks against it.
struct Plan<'a> {
    targets: Vec<Target<'a>>,
    /// Files that a server without the plugin opened and did not write to.
    unknown: Vec<String>,
    /// Such a server found all that the log holds: nothing of the files is touched.
    is_equal: bool,
    decisions: Decisions,
    warnings: Vec<String>,
}

/// Takes logged bytes of a file, from a position on.
type Take<'a> = dyn FnMut(&mut Target<'_>, u64, &[u8]) -> Result<()> + 'a;

enum Place {
    At(String),
    /// It was purged, or never named.
    Gone,
}

fn refuse<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// The name of a binlog file without its number.
pub(super) fn base_of(path: &str) -> PathBuf {
    Path::new(path).with_extension("")
}

impl BinlogRecovery {
    /// Makes the files equal to the log. `may_abandon`: what would be refused is left as it is.
    pub(super) fn complete(&self, site: &mut Site<'_>, may_abandon: bool) -> Result<Completion> {
        if self.is_settled() {
            return Ok(Completion::default());
        }
        match self.plan(site) {
            Ok(plan) => self.run(site, plan),
            Err(Error::Refused(text)) if may_abandon => Ok(Completion {
                warnings: vec![format!("{text}. It is left as it is: sluice_abandon_binlog is ON")],
                known: Err("sluice_abandon_binlog is ON"),
                decisions: self.commits(),
                is_aside: true,
                ..Completion::default()
            }),
            Err(Error::Refused(text)) => refuse(format!(
                "{text}. To give up that end of the binary log, start once with \
                 sluice_abandon_binlog=ON: no file is changed then"
            )),
            Err(error) => Err(error),
        }
    }

    fn plan(&self, site: &Site<'_>) -> Result<Plan<'_>> {
        let mut plan = Plan {
            targets: Vec::new(),
            unknown: Vec::new(),
            is_equal: false,
            decisions: self.commits(),
            warnings: Vec::new(),
        };
        // The server removes old files; the newest that the index ever named is there.
        let mut must_be_there = true;
        for trace in self.traces.iter().rev() {
            if let Place::At(path) = self.place(site, trace, must_be_there, &mut plan.warnings)? {
                plan.targets.insert(0, Target::open(site.os, trace, path)?);
                must_be_there = false;
            }
        }
        plan.unknown = self.unknown_files(site, &plan.targets)?;
        match plan.unknown.is_empty() {
            true => self.plan_cuts(&plan)?,
            false => self.plan_unknown(site, &mut plan)?,
        }
        Ok(plan)
    }

    /// Where is the file of this trace now?
    fn place(
        &self,
        site: &Site<'_>,
        trace: &Trace,
        must_be_there: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Place> {
        let info = &trace.info;
        if self.traces.iter().any(|t| t.info.id > info.id && t.info.path == info.path) {
            return Ok(Place::Gone);
        }
        let Some(path) = site.find(info)? else {
            return match must_be_there {
                true => site.check_unnamed(trace),
                false => Ok(Place::Gone),
            };
        };
        let text = match site.os.exists(Path::new(&path))? {
            false => format!("{path} is in the index but does not exist"),
            true if site.generation(&path)? == Some(info.generation) => {
                return Ok(Place::At(path));
            }
            true => format!("{path} is not the file that the log knows by this name"),
        };
        if !must_be_there {
            warnings.push(text);
            return Ok(Place::Gone);
        }
        refuse(format!("{text}, and the log holds its end: mount its volume, or restore it"))
    }

    /// The files in the index after the last one of ours.
    fn unknown_files(&self, site: &Site<'_>, targets: &[Target<'_>]) -> Result<Vec<String>> {
        let Some(last) = targets.last() else { return Ok(Vec::new()) };
        let at = site.index.names.iter().rposition(|name| *name == last.path);
        let mut unknown = Vec::new();
        for name in &site.index.names[at.map_or(site.index.names.len(), |at| at + 1)..] {
            if site.os.exists(Path::new(name))? {
                unknown.push(name.clone());
            }
        }
        Ok(unknown)
    }

    /// The log holds all but the group that was under way.
    fn plan_cuts(&self, plan: &Plan<'_>) -> Result<()> {
        let is_seen = !planted::is(Bug::CutUnseen);
        if self.state.authority != Authority::On || self.state.is_relaxed || !is_seen {
            return Ok(());
        }
        for target in &plan.targets {
            let behind = target.behind()?;
            if behind.groups > 1 {
                return self.refuse_older(target, &behind);
            }
        }
        Ok(())
    }

    fn refuse_older<T>(&self, target: &Target<'_>, behind: &Behind) -> Result<T> {
        refuse(format!(
            "{} has {} bytes in {} groups after position {}, where the log of Sluice ends, and a \
             crash leaves at most one: the files of Sluice (directories sluice and sluice_log_dir) \
             are an older copy, or another server wrote to this file. Restore the newer ones",
            target.path, behind.bytes, behind.groups, target.trace.info.end
        ))
    }

    /// A server without the plugin went on after our last file.
    fn plan_unknown(&self, site: &Site<'_>, plan: &mut Plan<'_>) -> Result<()> {
        let Some(last) = plan.targets.last() else { return Ok(()) };
        let behind = last.behind()?;
        if behind.is_closed || (behind.groups > 1 && !self.state.is_relaxed) {
            return self.refuse_older(last, &behind);
        }
        let missing = self.compare(site.wal, &mut plan.targets)?;
        let path = plan.targets.last().map(|t| t.path.clone()).unwrap_or_default();
        if missing == 0 {
            plan.is_equal = true;
            plan.decisions.commit(behind.xids);
            if behind.groups > 0 {
                plan.warnings.push(format!(
                    "the server was started without Sluice after a crash, and kept a group after \
                     position {} of {path} that Sluice may not have: compare its tables with it",
                    plan.targets.last().map_or(0, |t| t.trace.info.end)
                ));
            }
            return Ok(());
        }
        let first = &plan.unknown[0];
        for name in &plan.unknown {
            if !events::is_header_only(&*site.os.open(Path::new(name), OpenMode::default())?)? {
                return refuse(format!(
                    "the server ran without Sluice after a crash and wrote {name}, but {missing} \
                     bytes of {path} are in the log only: GTIDs may have been used twice, and \
                     other engines may have rolled back what these bytes say"
                ));
            }
        }
        plan.warnings.push(format!(
            "the server was started without Sluice after a crash, when {missing} bytes of {path} \
             were in the log only. They are restored, and {first} and what follows it, without \
             events, are taken out of the index, not from the disk. Other engines may have rolled \
             back what these bytes say: compare their tables with it"
        ));
        Ok(())
    }

    /// How many logged bytes do the files not have?
    fn compare(&self, wal: &Wal, targets: &mut [Target<'_>]) -> Result<u64> {
        let mut missing = 0;
        self.each_piece(wal, targets, &mut |target, pos, bytes| {
            missing += if target.has(pos, bytes)? { 0 } else { bytes.len() as u64 };
            Ok(())
        })?;
        Ok(missing)
    }

    /// From where on the files may lack logged bytes. A file that is shorter than what was synced was
    /// put back to an older state: then all that the log has of it is compared.
    fn first_unsynced(&self, targets: &[Target<'_>]) -> Result<Option<Lsn>> {
        let (Some(first), Some(synced)) = (self.first_lsn, self.synced) else {
            return Ok(self.first_lsn);
        };
        for target in targets {
            let bytes = match target.trace.info.id.cmp(&synced.id) {
                Less => target.trace.info.end,
                Equal => synced.pos,
                Greater => 0,
            };
            if target.file.len()? < bytes && !planted::is(Bug::OlderFileUnseen) {
                return Ok(Some(first));
            }
        }
        Ok(Some(first.max(synced.before)))
    }

    /// The logged bytes of the targets that no sync has covered, up to their last group ends.
    fn each_piece(&self, wal: &Wal, targets: &mut [Target<'_>], take: &mut Take<'_>) -> Result<()> {
        let Some(from) = self.first_unsynced(targets)? else { return Ok(()) };
        wal.scan(from, wal.end(), &mut |_, record| {
            if record.kind != RECORD_BINLOG {
                return Ok(());
            }
            let bytes = decode_bytes(record.payload)?;
            let target = targets.iter_mut().rev().find(|t| t.trace.info.id == bytes.id);
            let Some(target) = target else { return Ok(()) };
            match target.wanted(bytes.pos, bytes.bytes) {
                [] => Ok(()),
                wanted => take(target, bytes.pos, wanted),
            }
        })
    }

    fn run(&self, site: &mut Site<'_>, mut plan: Plan<'_>) -> Result<Completion> {
        let mut done = Completion { warnings: plan.warnings, ..Completion::default() };
        let count = plan.targets.len() as u64;
        done.files = count;
        if plan.is_equal {
            plan.targets.iter().try_for_each(|target| target.file.sync())?;
            (done.decisions, done.is_aside) = (plan.decisions, true);
            done.known = Err("the server ran without Sluice after a crash");
            return Ok(done);
        }
        if !plan.unknown.is_empty() {
            // A later start without these names cuts and completes the file.
            plan.targets.iter_mut().try_for_each(Target::open_again)?;
            if !planted::is(Bug::IndexLate) {
                site.index.forget(site.os, &plan.unknown)?;
            }
        }
        let done_bytes = &mut done.completed_bytes;
        self.each_piece(site.wal, &mut plan.targets, &mut |target, pos, bytes| {
            if !target.has(pos, bytes)? {
                target.open_again()?;
                target.file.write_at(bytes, pos)?;
                *done_bytes += bytes.len() as u64;
            }
            Ok(())
        })?;
        for target in &mut plan.targets {
            if self.state.authority == Authority::On {
                target.cut(site.os, self.state.is_relaxed, &mut done)?;
            }
            if !planted::is(Bug::SettledBeforeSync) {
                target.file.sync()?;
            }
        }
        if planted::is(Bug::IndexLate) && !plan.unknown.is_empty() {
            site.index.forget(site.os, &plan.unknown)?;
        }
        done.decisions = self.commits();
        done.known = self.known(&plan.targets, &site.index, &mut done.decisions);
        Ok(done)
    }

    /// Transactions that the binlog has for certain; of others nothing is said.
    fn commits(&self) -> Decisions {
        Decisions { xids: self.state.census.xids().0, all_from: None }
    }

    /// What the server would find out by a scan.
    fn known(
        &self,
        targets: &[Target<'_>],
        index: &Index,
        decisions: &mut Decisions,
    ) -> std::result::Result<Known, &'static str> {
        let census = &self.state.census;
        if self.state.authority != Authority::On {
            return Err("a fault had ended the log's authority over it");
        }
        let target = targets.iter().find(|t| t.trace.info.id == census.file);
        let is_last = |t: &&Target<'_>| index.is_guess || index.names.last() == Some(&t.path);
        let Some(target) = target.filter(is_last) else {
            return Err("the log does not know the last file in the index");
        };
        let gtids = census.gtids().ok_or("its GTID state is not known, or it is encrypted")?;
        if !self.has_read(census.file, target.trace.info.end) {
            return Err("not all of its events were read");
        }
        decisions.all_from = Some(census.xids().1);
        Ok(Known { path: target.path.clone(), gtids: gtids.to_vec() })
    }
}

impl Site<'_> {
    /// The file's name in the index. It may have been moved to another directory with the index.
    fn find(&self, info: &FileInfo) -> Result<Option<String>> {
        let mut names = self.index.names.iter();
        if names.any(|name| *name == info.path) {
            return Ok(Some(info.path.clone()));
        }
        let file = Path::new(&info.path).file_name();
        for name in self.index.names.iter().filter(|n| Path::new(n).file_name() == file) {
            if self.generation(name)? == Some(info.generation) {
                return Ok(Some(name.clone()));
            }
        }
        let is_there = self.index.is_guess && self.os.exists(Path::new(&info.path))?;
        Ok(is_there.then(|| info.path.clone()))
    }

    /// `None`: there is no such file, or it has no whole header.
    fn generation(&self, path: &str) -> Result<Option<u64>> {
        if !self.os.exists(Path::new(path))? {
            return Ok(None);
        }
        let file = self.os.open(Path::new(path), OpenMode::default())?;
        Ok(events::generation(&*file).ok())
    }

    /// The newest file of all is not in the index: may that be?
    fn check_unnamed(&self, trace: &Trace) -> Result<Place> {
        let path = &trace.info.path;
        let base = base_of(path);
        if base != self.base {
            return refuse(format!(
                "the log holds the end of the binary log {path}, but log_bin is {} now: start with \
                 log_bin={}",
                self.base.display(),
                base.display()
            ));
        }
        let index = self.index.path.display();
        if self.generation(path)? == Some(trace.info.generation) {
            // A crash between the file's header and its name in the index.
            let file = self.os.open(Path::new(path), OpenMode::default())?;
            if trace.from.is_none() && events::is_header_only(&*file)? {
                return Ok(Place::Gone);
            }
            return refuse(format!(
                "the log holds the end of {path}, but {index} does not name it: put its name back"
            ));
        }
        // In RESET MASTER the index is empty; a new file may be lost before it is named. The server
        // makes an empty index where there is none, so only the mark tells that it is the right one.
        let is_empty = self.index.names.is_empty();
        if self.has_mark && self.index.is_there && (is_empty || trace.from.is_none()) {
            return Ok(Place::Gone);
        }
        refuse(match self.index.is_there && !is_empty {
            true => format!(
                "the log holds the end of {path}, which does not exist, and {index} does not name \
                 it: restore the file and its name"
            ),
            false => format!(
                "the log holds the end of {path}, but neither this file nor a name in {index} is \
                 there: is their volume mounted?"
            ),
        })
    }
}

struct Target<'a> {
    trace: &'a Trace,
    path: String,
    file: Arc<dyn File>,
    is_changed: bool,
}

impl<'a> Target<'a> {
    fn open(os: &dyn Os, trace: &'a Trace, path: String) -> Result<Target<'a>> {
        let file = os.open(Path::new(&path), OpenMode::default())?;
        let (synced, length) = (trace.from.unwrap_or(trace.info.end), file.len()?);
        if length < synced {
            return refuse(format!(
                "{path} has {length} bytes, but {synced} were synced, and the log does not hold \
                 them any more: restore the file"
            ));
        }
        Ok(Target { trace, path, file, is_changed: false })
    }

    fn behind(&self) -> Result<Behind> {
        let end = self.trace.info.end;
        let is_encrypted = events::is_encrypted(&*self.file, events::MAGIC_BYTES, end)?;
        Behind::read(&*self.file, end, is_encrypted)
    }

    /// The part of the logged bytes that belongs into the file.
    fn wanted<'b>(&self, pos: u64, bytes: &'b [u8]) -> &'b [u8] {
        let end = self.trace.info.end;
        if self.trace.from.is_none_or(|from| pos < from) || pos >= end {
            return &[];
        }
        &bytes[..bytes.len().min((end - pos) as usize)]
    }

    fn has(&self, pos: u64, bytes: &[u8]) -> Result<bool> {
        if self.file.len()? < pos + bytes.len() as u64 {
            return Ok(false);
        }
        let mut found = vec![0; bytes.len()];
        self.file.read_at(&mut found, pos)?;
        Ok(found == bytes)
    }

    /// The file will change: it must not look as if the server had closed it.
    fn open_again(&mut self) -> Result<()> {
        if !self.is_changed && !events::is_in_use(&*self.file)? {
            events::set_in_use(&*self.file, true)?;
        }
        self.is_changed = true;
        Ok(())
    }

    /// Cuts off the group that was under way. The bytes that are cut stay beside the file.
    fn cut(&mut self, os: &dyn Os, is_relaxed: bool, done: &mut Completion) -> Result<()> {
        let (end, length) = (self.trace.info.end, self.file.len()?);
        if length <= end {
            return Ok(());
        }
        let kept = self.keep_cut(os, end, length)?;
        self.open_again()?;
        self.file.set_len(end)?;
        done.cut_bytes += length - end;
        let fate = match is_relaxed {
            true => "may have been acknowledged, as sync_binlog and sluice_flush_log_at_trx_commit asked",
            false => "were neither acknowledged nor sent to a replica",
        };
        done.notes.push(format!(
            "{} is cut at position {end}, where the log ends; the {} bytes after it {fate}, and {kept}",
            self.path,
            length - end,
        ));
        Ok(())
    }

    fn keep_cut(&self, os: &dyn Os, end: u64, length: u64) -> Result<String> {
        let path = Path::new(&self.path);
        if os.free_bytes(files::directory(path))? < 2 * (length - end) {
            return Ok("are gone: the disk has no room for a copy".to_owned());
        }
        let to = (0..).map(|n| match n {
            0 => files::beside(path, &format!(".cut-{end}")),
            n => files::beside(path, &format!(".cut-{end}-{n}")),
        });
        for to in to {
            if os.exists(&to)? {
                continue;
            }
            let copy = os.open(&to, OpenMode { create: true, direct: false })?;
            let mut at = end;
            while at < length {
                let mut bytes = vec![0; COPY_BYTES.min((length - at) as usize)];
                self.file.read_at(&mut bytes, at)?;
                copy.write_at(&bytes, at - end)?;
                at += bytes.len() as u64;
            }
            copy.sync()?;
            os.sync_dir(files::directory(path))?;
            return Ok(format!("are in {}", to.display()));
        }
        Ok(String::new())
    }
}
