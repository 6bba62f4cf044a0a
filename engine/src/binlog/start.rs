//! The binlog when the server starts and stops, and the file beside it that says whose log holds
//! its end (the mark).
//!
//! The mark is there before the first byte is in the log only, and goes after the last is synced.

use super::census::Decision;
use super::complete::{base_of, Completion, Site};
use super::events;
use super::files::{self, beside};
use super::gtid::Gtid;
use super::index::{self, Index};
use super::live::Binlog;
use super::mark::Mark;
use super::planted::{self, Bug};
use super::record::{Authority, StateChange};
use super::recover::BinlogRecovery;
use super::stats::add;
use crate::base::{Error, Lsn, Result};
use crate::os::OpenMode;
use std::path::{Path, PathBuf};

/// How the server starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting<'a> {
    /// The index, and the name of the files without a number; `None`: without a binlog.
    pub files: Option<(&'a Path, &'a Path)>,
    /// A file that cannot be completed is left as it is, and forgotten.
    pub may_abandon: bool,
    /// The server has opened its binlog already.
    pub is_running: bool,
}

impl BinlogRecovery {
    /// The name of the files without a number, as it was before the crash.
    fn base(&self) -> Option<PathBuf> {
        self.traces.last().map(|trace| base_of(&trace.info.path))
    }
}

impl Binlog {
    /// Completes what the last crash left, before the server opens its binlog. Refuses, and
    /// changes nothing, when that cannot be done.
    pub fn start(&self, setting: Setting<'_>) -> Result<Completion> {
        let recovered = self.recovered.lock().clone();
        let (index, base, is_guess) = match (setting.files, &recovered) {
            (Some((index, base)), _) => (index.to_owned(), base.to_owned(), false),
            (None, Some(recovered)) => {
                let Some(base) = recovered.base() else { return self.forget_recovered() };
                (beside(&base, ".index"), base, true)
            }
            (None, None) => return Ok(Completion::default()),
        };
        let mut warnings = Vec::new();
        if let Err(error) = self.check_mark(&mark_of(&base)) {
            match setting.may_abandon {
                true => warnings.push(error.to_string()),
                false => return Err(error),
            }
        }
        let mut done = Completion::default();
        if let Some(recovered) = &recovered {
            if setting.is_running {
                return Err(Error::Refused(
                    "the log holds the end of the binary log since a crash: restart the server \
                     with the plugin, which completes it before the server opens it"
                        .to_owned(),
                ));
            }
            done = self.complete(recovered, (&index, &base, is_guess), setting.may_abandon)?;
        } else if !setting.is_running {
            self.mend(&index, &mut warnings)?;
        }
        done.warnings.splice(0..0, warnings);
        done.is_closed = self.is_closed(&index, &done)?;
        match is_guess {
            // Nothing is in the log only any more.
            true => files::remove(&*self.os, &mark_of(&base))?,
            false => *self.base.lock() = Some(base),
        }
        Ok(done)
    }

    /// Does the server not scan the last file?
    fn is_closed(&self, index: &Path, done: &Completion) -> Result<bool> {
        let last = match &done.known {
            Ok(known) => Some(known.path.clone()),
            Err(_) => Index::read(&*self.os, index, false)?.names.pop(),
        };
        Ok(match last {
            Some(path) if self.os.exists(Path::new(&path))? => !self.is_in_use(&path)?,
            _ => true,
        })
    }

    fn mend(&self, index: &Path, warnings: &mut Vec<String>) -> Result<()> {
        let zeros = index::mend(&*self.os, index)?;
        if zeros > 0 {
            warnings.push(format!(
                "{zeros} zero bytes removed from {}: a loss of power left them in place of a name \
                 that was not written yet",
                index.display()
            ));
        }
        Ok(())
    }

    fn complete(
        &self,
        recovered: &BinlogRecovery,
        (index, base, is_guess): (&Path, &Path, bool),
        may_abandon: bool,
    ) -> Result<Completion> {
        let mut warnings = Vec::new();
        self.mend(index, &mut warnings)?;
        let index = Index::read(&*self.os, index, is_guess)?;
        let has_mark = Mark::read(&*self.os, &mark_of(base))?.is_some();
        let base = base.to_owned();
        let mut site = Site { os: &*self.os, wal: &self.wal, index, base, has_mark };
        let done = recovered.complete(&mut site, may_abandon);
        if done.is_err() && planted::is(Bug::RefusedIsSettled) {
            self.forget_recovered()?;
        }
        let mut done = done?;
        done.warnings.splice(0..0, warnings);
        add(&self.counters.completed_bytes, done.completed_bytes);
        add(&self.counters.cut_bytes, done.cut_bytes);
        // Without a binlog the server asks nobody what became of prepared transactions.
        done.is_aside |= is_guess && done.known.is_err();
        self.forget_recovered()?;
        *self.known.lock() = done.known.clone().ok();
        *self.decisions.lock() = done.decisions.clone();
        Ok(done)
    }

    /// Everything is completed, or was given up.
    fn forget_recovered(&self) -> Result<Completion> {
        let mut recovered = self.recovered.lock();
        if recovered.is_some() {
            self.change(&mut self.inner.lock(), StateChange::End { settled: true });
            self.flush()?;
            *recovered = None;
        }
        Ok(Completion::default())
    }

    /// These files are a copy, and the binlog of their server is not with them: what the log holds of it
    /// is of no use, and the next server begins one of its own.
    pub fn part_from_files(&self) -> Result<()> {
        self.forget_recovered().map(drop)
    }

    /// Has the binlog that was completed the server's XID `xid`? All prepare records of
    /// transactions with it lie at or after `prepared_from`; zero if nothing is known of that.
    pub fn decide(&self, xid: u64, prepared_from: Lsn) -> Decision {
        self.decisions.lock().decide(xid, prepared_from)
    }

    /// Does the file say that it was not closed? Then the server scans it.
    pub fn is_in_use(&self, path: &str) -> Result<bool> {
        events::is_in_use(&*self.os.open(Path::new(path), OpenMode::default())?)
    }

    /// The completed file becomes one that the server has closed, and will not scan: the GTID
    /// state is made durable where the server looks for it first. No transaction is in doubt.
    pub fn close_completed(&self) -> Result<()> {
        let Some(known) = self.known.lock().take() else { return Ok(()) };
        let base = self.base().unwrap_or_else(|| base_of(&known.path));
        let line = |g: &Gtid| format!("{}-{}-{}\n", g.domain, g.server, g.sequence);
        let lines: String = known.gtids.iter().map(line).collect();
        let file = self.os.open(Path::new(&known.path), OpenMode::default())?;
        if planted::is(Bug::ClosedBeforeState) {
            events::set_in_use(&*file, false)?;
        }
        files::replace(&*self.os, &beside(&base, ".state"), lines.as_bytes())?;
        events::set_in_use(&*file, false)
    }

    /// The number of this log, drawn at the first call, with a new state record that says so: no
    /// older copy of the log has it. Durable.
    fn own_mark(&self) -> Result<Mark> {
        let mut inner = self.inner.lock();
        let identity = match inner.state.identity {
            0 => self.os.entropy() | 1,
            drawn => drawn,
        };
        self.change(&mut inner, StateChange::Identity(identity));
        let mark = Mark { identity: inner.state.identity, sequence: inner.state.sequence };
        drop(inner);
        self.flush()?;
        Ok(mark)
    }

    /// Does the mark say that another log than this one holds the end?
    fn check_mark(&self, path: &Path) -> Result<()> {
        let Some(mark) = Mark::read(&*self.os, path)? else { return Ok(()) };
        let inner = self.inner.lock();
        let is_ours = mark.identity == inner.state.identity;
        let problem = match is_ours && mark.sequence <= inner.state.sequence {
            true => return Ok(()),
            false if is_ours => "but of a newer state of this one: these files are an older copy",
            false => "but not of this one",
        };
        let path = path.display();
        Err(Error::Refused(format!(
            "{path} says that the end of the binary log is in the log of a Sluice engine, \
             {problem}: restore its files (directories sluice and sluice_log_dir), or remove \
             {path} to start without the transactions at the end of the binary log",
        )))
    }

    /// What must be there before [`Binlog::switch`] may set the switch ON. An error here changes
    /// nothing.
    pub fn prepare_switch(&self) -> Result<()> {
        let Some(base) = self.base() else { return Ok(()) };
        let is_on = self.inner.lock().wanted;
        match is_on || planted::is(Bug::MarkLate) {
            true => Ok(()),
            false => self.own_mark()?.write(&*self.os, &mark_of(&base)),
        }
    }

    fn base(&self) -> Option<PathBuf> {
        self.base.lock().clone()
    }

    /// The switch. Set to what it is already, it does nothing.
    pub fn switch(&self, on: bool) -> Result<()> {
        let was_on = self.inner.lock().wanted;
        match self.base().is_none() || was_on == on {
            true => Ok(()),
            false => self.set_wanted(on),
        }
    }

    /// After the switch to OFF, and the stop: nothing is in the log only.
    pub fn remove_mark(&self) -> Result<()> {
        let Some(base) = self.base() else { return Ok(()) };
        let inner = self.inner.lock();
        match inner.wanted || inner.state.authority != Authority::Off {
            true => Ok(()),
            false => files::remove(&*self.os, &mark_of(&base)),
        }
    }

    /// The server has closed its binlog, or goes on without the plugin.
    pub fn stop(&self) -> Result<()> {
        if self.base().is_none() {
            return Ok(());
        }
        self.detach()?;
        self.inner.lock().wanted = false;
        self.remove_mark()?;
        *self.base.lock() = None;
        Ok(())
    }
}

fn mark_of(base: &Path) -> PathBuf {
    beside(base, ".sluice")
}
