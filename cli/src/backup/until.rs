//! The place in the binary logs up to which a restore applies them. It lies between two transactions.

use super::binlogs::{Chain, Item, Transaction};
use super::gtid::{Gtid, State};
use super::manifest::Manifest;
use crate::host::calls;
use crate::Result;
use std::path::{Path, PathBuf};

/// mariadb-binlog counts positions to here.
const POSITION_MAX: u64 = u32::MAX as u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// All that the files have.
    End,
    /// All before the first transaction of this second, or of a later one.
    Time { seconds: i64, shown: String },
    /// These are the last, each of its domain.
    Gtids(Vec<Gtid>),
    /// All before this one.
    Before(Gtid),
    /// All before this place in a file.
    Position(String, u64),
}

impl Until {
    pub fn position(text: &str) -> Result<Until> {
        let parts = text.rsplit_once(':').and_then(|(file, at)| Some((file, at.parse().ok()?)));
        let (file, at) = parts.ok_or_else(|| {
            format!("'{text}' is no place in a binary log: it has the form FILE:POSITION")
        })?;
        Ok(Until::Position(file.to_owned(), at))
    }

    pub fn gtids(text: &str) -> Result<Until> {
        match Gtid::parse_list(text)? {
            none if none.is_empty() => Err("--to-gtid names no GTID".into()),
            gtids => Ok(Until::Gtids(gtids)),
        }
    }

    /// `YYYY-MM-DD HH:MM:SS`, in the time zone of this host, or in UTC with a `Z` at the end.
    pub fn time(text: &str) -> Result<Until> {
        let wrong = || {
            format!("'{text}' is no time: it has the form 'YYYY-MM-DD HH:MM:SS', with Z at the end for UTC")
        };
        let (plain, is_utc) = match text.strip_suffix('Z') {
            Some(plain) => (plain.trim_end(), true),
            None => (text, false),
        };
        let fields = time_fields(plain).ok_or_else(wrong)?;
        let seconds = match is_utc {
            true => utc_seconds(fields),
            false => calls::local_seconds(fields).ok_or_else(wrong)?,
        };
        Ok(Until::Time { seconds, shown: text.to_owned() })
    }
}

/// Year, month, day, hour, minute, second.
pub type Fields = [i32; 6];

fn time_fields(text: &str) -> Option<Fields> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let number =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
    let three = |text: &str, by: char| -> Option<[i32; 3]> {
        let parts: Option<Vec<i32>> = text.split(by).map(number).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (three(date, '-')?, three(time, ':')?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_date = (1970..=2106).contains(&year) && (1..=12).contains(&month);
    let is_day = is_date && (1..=days[month as usize - 1]).contains(&day);
    (is_day && hour < 24 && minute < 60 && second < 60)
        .then_some([year, month, day, hour, minute, second])
}

fn utc_seconds([year, month, day, hour, minute, second]: Fields) -> i64 {
    // Years begin in March, so that the leap day is the last.
    let (y, m) = (i64::from(year) - i64::from(month <= 2), i64::from((month + 9) % 12));
    let days =
        365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + i64::from(day) - 1 - 719_468;
    ((days * 24 + i64::from(hour)) * 60 + i64::from(minute)) * 60 + i64::from(second)
}

/// What is to be applied, and what is then there.
#[derive(Debug)]
pub struct Replay {
    pub files: Vec<PathBuf>,
    /// In the first file.
    pub start: u64,
    /// In the last file.
    pub stop: u64,
    pub transactions: u64,
    pub last: Option<Transaction>,
    /// The first that is left out.
    pub next: Option<Transaction>,
    pub state: State,
    /// The name of the last file.
    pub stop_file: String,
}

/// Finds the end. Fails if the files are not those of the backup's server, or do not have the end.
pub fn find(manifest: &Manifest, dir: &Path, until: &Until) -> Result<Replay> {
    let fact = |name: &str| manifest.fact(name).unwrap_or_default();
    let chain = Chain::find(dir, fact("binlog_file"))?;
    let start: u64 = fact("binlog_position")
        .parse()
        .map_err(|_| "the backup has no binlog_position".to_owned())?;
    let backup = State::of(Gtid::parse_list(fact("gtid_binlog_state"))?);
    if let Until::Time { seconds, shown } = until {
        let made: i64 = fact("made_at_unix_time").parse().unwrap_or(i64::MIN);
        if *seconds < made {
            return Err(format!("the backup was made after {shown}: take an older one"));
        }
    }
    let mut search = Search::new(until, &chain, start, backup)?;
    for file in 0..chain.files.len() {
        search.file = file;
        let is_found = file > 0 && search.is_over;
        let read = chain.read(file, &mut |item| search.see(item));
        if !is_found {
            read?;
            search.file_ends()?;
        }
        // Where the end is the end of a file, the next one only names the first that is left out.
        if search.next.is_some() {
            break;
        }
    }
    search.finish()
}

struct Search<'a> {
    until: &'a Until,
    chain: &'a Chain,
    start: u64,
    backup: State,
    is_started: bool,
    is_over: bool,
    file: usize,
    state: State,
    transactions: u64,
    last: Option<Transaction>,
    /// Where it ends: the file's number, and the position in it.
    stop: (usize, u64),
    next: Option<Transaction>,
    /// GTIDs that were not met.
    missing: Vec<Gtid>,
}

impl<'a> Search<'a> {
    fn new(until: &'a Until, chain: &'a Chain, start: u64, backup: State) -> Result<Search<'a>> {
        let mut missing = Vec::new();
        match until {
            Until::Gtids(gtids) => missing = not_in(&backup, gtids)?,
            Until::Before(gtid)
                if backup
                    .newest(gtid.domain)
                    .is_some_and(|newest| newest.sequence >= gtid.sequence) =>
            {
                return Err(is_before_backup(gtid, &backup));
            }
            Until::Position(file, at) if *file == chain.name(0) && *at < start => {
                return Err(format!(
                    "{file}:{at} is before the backup, which stands at {start}: take an older backup"
                ));
            }
            Until::Position(file, _) if !(0..chain.files.len()).any(|n| chain.name(n) == *file) => {
                return Err(format!("{file} is none of the binary logs from {} on", chain.name(0)));
            }
            _ => {}
        }
        let is_over = matches!(until, Until::Gtids(_)) && missing.is_empty();
        let (state, stop) = (State::default(), (0, start));
        Ok(Search {
            until,
            chain,
            start,
            backup,
            is_started: false,
            is_over,
            file: 0,
            state,
            transactions: 0,
            last: None,
            stop,
            next: None,
            missing,
        })
    }

    /// False when the end is found.
    fn see(&mut self, item: Item) -> Result<bool> {
        match item {
            Item::Before(state) => self.begin_file(state).map(|()| true),
            Item::Transaction(transaction) if self.file == 0 && transaction.start < self.start => {
                self.in_backup(transaction).map(|()| true)
            }
            Item::Transaction(transaction) => {
                self.begin_replay()?;
                self.transaction(transaction)
            }
        }
    }

    /// Of each file but the first, the one before says what it must say.
    fn begin_file(&mut self, state: State) -> Result<()> {
        if self.file > 0 && !state.is_part_of(&self.state) {
            return Err(format!(
                "{} does not go on where {} ends: {} is not {}",
                self.chain.name(self.file),
                self.chain.name(self.file - 1),
                state.text(),
                self.state.text()
            ));
        }
        if self.file == 0 || !self.is_over {
            self.state = state;
        }
        Ok(())
    }

    fn in_backup(&mut self, transaction: Transaction) -> Result<()> {
        if transaction.end > self.start {
            return Err(self.other_server());
        }
        match self.until {
            Until::Time { seconds, shown } if i64::from(transaction.time) >= *seconds => {
                Err(format!(
                    "the backup has {}, which is not before {shown}: take an older one",
                    transaction.gtid
                ))
            }
            _ => {
                self.state.add(transaction.gtid);
                Ok(())
            }
        }
    }

    /// At the backup's position: the state must be that of the backup.
    fn begin_replay(&mut self) -> Result<()> {
        if !self.is_started && !self.state.is_same(&self.backup) {
            return Err(self.other_server());
        }
        self.is_started = true;
        Ok(())
    }

    fn other_server(&self) -> String {
        format!(
            "{} is not that of the backup's server: at {} it has '{}', the backup '{}'",
            self.chain.name(0),
            self.start,
            self.state.text(),
            self.backup.text()
        )
    }

    fn transaction(&mut self, transaction: Transaction) -> Result<bool> {
        let is_enough = self.is_over
            || match self.until {
                Until::Time { seconds, .. } => i64::from(transaction.time) >= *seconds,
                Until::Before(gtid) => transaction.gtid == *gtid,
                Until::Position(file, at) => {
                    *file == self.chain.name(self.file) && transaction.end > *at
                }
                Until::End | Until::Gtids(_) => false,
            };
        if is_enough {
            if let Until::Position(file, at) = self.until {
                if transaction.start < *at {
                    return Err(format!(
                        "{file}:{at} is inside of transaction {}, which goes from {} to {}: choose one of these",
                        transaction.gtid, transaction.start, transaction.end
                    ));
                }
            }
            (self.next, self.is_over) = (Some(transaction), true);
            return Ok(false);
        }
        if let Until::Gtids(gtids) = self.until {
            self.missing.retain(|gtid| *gtid != transaction.gtid);
            let other = gtids.iter().find(|g| {
                g.domain == transaction.gtid.domain && g.sequence < transaction.gtid.sequence
            });
            if let Some(gtid) = other {
                return Err(self.passed(gtid, &transaction.gtid));
            }
            // One more is read: it names the first that is left out.
            self.is_over = self.missing.is_empty();
        }
        self.stop = (self.file, transaction.end);
        self.state.add(transaction.gtid);
        self.transactions += 1;
        self.last = Some(transaction);
        Ok(true)
    }

    fn passed(&self, wanted: &Gtid, found: &Gtid) -> String {
        match self.missing.contains(wanted) {
            true => format!("the binary logs do not have {wanted}: {found} comes first"),
            false => format!(
                "no place in the binary logs has exactly these transactions: {found} comes before {}",
                self.missing.first().unwrap_or(wanted)
            ),
        }
    }

    fn file_ends(&mut self) -> Result<()> {
        if self.file == 0 {
            if self.file_bytes()? < self.start {
                return Err(format!(
                    "{} ends before the backup, which stands at {}",
                    self.chain.name(0),
                    self.start
                ));
            }
            self.begin_replay()?;
        }
        match self.until {
            Until::Position(file, at) if *file == self.chain.name(self.file) => {
                self.is_over = true;
                match self.file_bytes()? < *at {
                    true => Err(format!("{file} ends before {at}")),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn file_bytes(&self) -> Result<u64> {
        let path = &self.chain.files[self.file];
        let looked = std::fs::metadata(path);
        Ok(looked.map_err(|e| format!("cannot look at {}: {e}", path.display()))?.len())
    }

    fn finish(self) -> Result<Replay> {
        if let (Some(gtid), Until::Gtids(_)) = (self.missing.first(), self.until) {
            return Err(self.lacks(gtid));
        }
        if let (None, Until::Before(gtid)) = (&self.next, self.until) {
            return Err(self.lacks(gtid));
        }
        if self.stop.1 > POSITION_MAX || self.start > POSITION_MAX {
            return Err("a place beyond 4 GiB in a file: mariadb-binlog cannot go there".into());
        }
        Ok(Replay {
            files: self.chain.files[..=self.stop.0].to_vec(),
            start: self.start,
            stop: self.stop.1,
            stop_file: self.chain.name(self.stop.0),
            transactions: self.transactions,
            last: self.last,
            next: self.next,
            state: self.state,
        })
    }

    fn lacks(&self, gtid: &Gtid) -> String {
        let newest =
            self.state.newest(gtid.domain).map_or("none".into(), |newest| newest.to_string());
        format!("the binary logs do not have {gtid}: their last one of its domain is {newest}")
    }
}

/// Those that the backup does not end with. Fails for one that lies before its end.
fn not_in(backup: &State, gtids: &[Gtid]) -> Result<Vec<Gtid>> {
    let mut missing = Vec::new();
    for gtid in gtids {
        match backup.newest(gtid.domain) {
            Some(newest) if newest == *gtid => {}
            Some(newest) if newest.sequence >= gtid.sequence => {
                return Err(is_before_backup(gtid, backup))
            }
            _ => missing.push(*gtid),
        }
    }
    Ok(missing)
}

fn is_before_backup(gtid: &Gtid, backup: &State) -> String {
    format!(
        "{gtid} is before the backup, which stands at {}: take an older backup",
        backup.position()
    )
}

#[cfg(test)]
mod tests;
