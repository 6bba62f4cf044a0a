//! A finished backup, restored, beside the side record: exactly the transactions up to its place in the binlog.

use crate::binlog;
use crate::ddl::{DdlRecord, Tables};
use crate::kill9::{one, Checked};
use crate::record::{Session, SLOTS};
use crate::verify::{read_everything, Record};
use crate::workload::{domain, ANSWER_LIMIT};
use sluice_rig::client::{Client, Fault, Reply};
use sluice_rig::server::Prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How many transactions of each GTID domain are at or before a place in the binlog.
pub type Place = BTreeMap<u64, u64>;

/// Of the session of DDL; the others have 1 to [`SLOTS`].
pub const DDL_DOMAIN: u64 = SLOTS as u64 + 1;
/// Of the statements that made the tables; and of DDL statements that a restarted server has completed.
pub const SETUP_DOMAIN: u64 = 0;

const TABLES: [&str; 7] =
    ["accounts_a", "accounts_b", "auto_rows", "journal", "main_rows", "other_rows", "wide"];

/// Where a backup says that it stands.
pub struct Facts {
    pub place: Place,
    pub file: String,
    pub position: u64,
}

impl Facts {
    /// From the list of a backup.
    pub fn read(list: &Path) -> Checked<Facts> {
        Facts::of(&fs::read_to_string(list).map_err(one("the list of a backup"))?)
    }

    /// From a list, or from the words of a restore.
    pub fn of(text: &str) -> Checked<Facts> {
        Facts::parse(text).ok_or_else(|| vec!["a backup says not where it stands".into()])
    }

    fn parse(text: &str) -> Option<Facts> {
        let fact =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(Facts {
            place: parse_place(fact("gtid_binlog_pos")?)?,
            file: fact("binlog_file")?.to_owned(),
            position: fact("binlog_position")?.parse().ok()?,
        })
    }
}

/// `domain-server-number` of each domain, separated by commas.
pub fn parse_place(gtids: &str) -> Option<Place> {
    let one = |gtid: &str| {
        let mut parts = gtid.split('-').map(|part| part.parse().ok());
        Some((parts.next()??, parts.nth(1)??))
    };
    gtids.split(',').filter(|gtid| !gtid.is_empty()).map(one).collect()
}

/// What the record says of a place.
pub struct Expected {
    pub record: Record,
    place: Place,
}

impl Expected {
    /// Fails if the record has no such place: then the backup holds a transaction that the primary does not.
    /// `setup` transactions made the tables.
    pub fn at(record: &Record, place: &Place, setup: u64) -> Checked<Expected> {
        let mut expected = Record::new(false);
        let count = |domain| place.get(&domain).copied().unwrap_or(0);
        for (session, copy) in record.sessions.iter().zip(&mut expected.sessions) {
            let wanted = count(domain(session.slot));
            let known = session.history.as_ref().and_then(|history| history.at(wanted));
            copy.committed = known.ok_or_else(|| vec![unknown(session, wanted)])?;
        }
        let wanted = ddl_count(place, setup);
        let tables = tables_after(&record.ddl, wanted).ok_or_else(|| {
            vec![format!("phantom DDL statement {wanted} of {}", record.ddl.steps.len())]
        })?;
        expected.ddl.tables = tables;
        expected.ddl.doubtful = record.ddl.unnumbered.get(&wanted).cloned();
        Ok(Expected { record: expected, place: place.clone() })
    }

    /// Ids of all transactions.
    pub fn journal(&self) -> BTreeSet<i64> {
        let sessions = self.record.sessions.iter();
        sessions.flat_map(|session| session.committed.journal.iter().copied()).collect()
    }

    pub fn transactions(&self) -> u64 {
        self.place.values().sum()
    }

    /// What differs in a server on the restored copy, and how many rows were compared.
    pub fn compare(&mut self, socket: &Path, prefix: &Prefix, data: &Path) -> Checked<u64> {
        let connected = Client::connect_with_limit(socket, "k9", ANSWER_LIMIT);
        let mut client =
            connected.map_err(|fault| vec![format!("the restored server: {fault}")])?;
        let mut problems = Vec::new();
        let mut rows = 0;
        match self.record.verify(&mut client, prefix, data) {
            Ok(outcome) => rows = outcome.rows,
            Err(found) => problems.extend(found),
        }
        let others = self.other_tables(&mut client).and_then(|mut found| {
            found.extend(faulty_tables(&mut client)?);
            Ok(found)
        });
        problems.extend(others.unwrap_or_else(|fault| vec![format!("tables: {fault}")]));
        match problems.is_empty() {
            true => Ok(rows),
            false => Err(problems),
        }
    }

    /// Tables that are there and should not be, and the other way round.
    fn other_tables(&self, client: &mut Client) -> Reply<Vec<String>> {
        let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'k9'";
        let found: BTreeSet<String> = client.rows(sql)?.into_iter().collect();
        let fixed = TABLES.iter().map(|name| name.to_string());
        let wanted: BTreeSet<String> =
            fixed.chain(self.record.ddl.tables.keys().cloned()).collect();
        let lost = wanted.difference(&found).map(|name| format!("lost table {name}"));
        let phantom = found.difference(&wanted).map(|name| format!("phantom table {name}"));
        Ok(lost.chain(phantom).collect())
    }

    /// Shows that the comparison can fail: records with one transaction too few and with one too many must
    /// differ from the copy. How many were tried.
    pub fn notices(&self, record: &Record, socket: &Path) -> Checked<u64> {
        let read = || -> Result<_, Fault> {
            read_everything(&mut Client::connect_with_limit(socket, "k9", ANSWER_LIMIT)?)
        };
        let actual = read().map_err(|fault| vec![format!("the restored server: {fault}")])?;
        let mut tried = 0;
        for session in &record.sessions {
            let count = self.place.get(&domain(session.slot)).copied().unwrap_or(0);
            for wrong in [count.checked_sub(1), Some(count + 1)].into_iter().flatten() {
                let state = session.history.as_ref().and_then(|history| history.at(wrong));
                let Some(state) = state else { continue };
                if state.differences(&actual[session.slot]).is_empty() {
                    let slot = session.slot;
                    return Err(vec![format!("session {slot}: {wrong} transactions pass, too")]);
                }
                tried += 1;
            }
        }
        Ok(tried)
    }
}

/// Statements of the DDL session: those that it has sent, and those that a restart has completed.
pub fn ddl_count(place: &Place, setup: u64) -> u64 {
    let count = |domain| place.get(&domain).copied().unwrap_or(0);
    (count(DDL_DOMAIN) + count(SETUP_DOMAIN)).saturating_sub(setup)
}

fn unknown(session: &Session, wanted: u64) -> String {
    let count = session.history.as_ref().map_or(0, |history| history.count());
    format!("session {}: phantom transaction {wanted} of {count}", session.slot)
}

pub fn tables_after(record: &DdlRecord, count: u64) -> Option<Tables> {
    match usize::try_from(count).ok()? {
        0 => Some(Tables::new()),
        count => record.steps.get(count - 1).cloned(),
    }
}

/// Nothing that was acknowledged before is missing at `place`.
pub fn missing(before: &Place, place: &Place) -> Vec<String> {
    let is_lost = |(domain, count): (&u64, &u64)| {
        let found = place.get(domain).copied().unwrap_or(0);
        (found < *count).then(|| {
            format!("lost transactions of domain {domain}: {found}, acknowledged before {count}")
        })
    };
    before.iter().filter_map(is_lost).collect()
}

/// The binlog up to the position has exactly the transactions that are at or before the GTIDs.
pub fn check_position(
    expected: &Expected,
    facts: &Facts,
    prefix: &Prefix,
    data: &Path,
) -> Checked<()> {
    let ids = binlog::ids_before(prefix, data, &facts.file, facts.position);
    let found = ids.map_err(one("the binlog up to the backup"))?;
    let wanted = expected.journal();
    let lost: Vec<_> = wanted.difference(&found).take(10).collect();
    let phantom: Vec<_> = found.difference(&wanted).take(10).collect();
    match lost.is_empty() && phantom.is_empty() {
        true => Ok(()),
        false => Err(vec![format!(
            "{} {} is not the place of the GTIDs: only before these {lost:?}, only before it {phantom:?}",
            facts.file, facts.position
        )]),
    }
}

/// CHECK TABLE of all, those of the server itself as well, which were copied as files.
fn faulty_tables(client: &mut Client) -> Reply<Vec<String>> {
    let names: Vec<String> = client.rows(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
         WHERE table_schema IN ('k9', 'mysql', 'sys') AND engine IN ('Sluice', 'Aria', 'MyISAM')",
    )?;
    let sql = format!("CHECK TABLE {}", names.join(", "));
    let said = client.rows::<(String, String, String, String)>(&sql)?;
    let faulty = said.into_iter().filter(|line| line.2 != "note" && line.3 != "OK");
    Ok(faulty
        .map(|(table, _, kind, text)| format!("CHECK TABLE {table}: {kind}: {text}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::record::{Actual, RowChange, State};

    fn place(counts: &[(u64, u64)]) -> Place {
        counts.iter().copied().collect()
    }

    /// The first session has three transactions since the beginning of its history at one.
    fn record() -> Record {
        let mut record = Record::new(false);
        for session in &mut record.sessions {
            session.begin_history();
        }
        let mut first = State::default();
        first.apply(&[RowChange::Journal(1)]);
        let mut history = History::new(first, 1);
        (2..=4).for_each(|id| history.push(vec![RowChange::Journal(id)]));
        record.sessions[0].history = Some(history);
        record.ddl.step(Tables::from([("ddl_1".into(), Default::default())]));
        record
    }

    #[test]
    fn the_facts_of_a_backup_say_where_it_stands() {
        let text = "sluice backup, format 1\nbinlog_file binlog.000002\nbinlog_position 77\n\
                    gtid_binlog_pos 0-1-9,3-1-12\nfile 9 k9/journal.frm\n";
        let facts = Facts::parse(text).unwrap();
        assert_eq!((facts.file.as_str(), facts.position), ("binlog.000002", 77));
        assert_eq!(facts.place, place(&[(0, 9), (3, 12)]));
        assert!(parse_place("0-1").is_none() && parse_place("").unwrap().is_empty());
    }

    #[test]
    fn a_truncate_that_a_kill_has_cut_off_has_no_number() {
        let mut record = record();
        let tables = |name: &str| Tables::from([(name.into(), Default::default())]);
        for (sent, is_known) in [("DROP TABLE ddl_1", false), ("TRUNCATE TABLE ddl_1", true)] {
            record.ddl.step(tables("ddl_2"));
            record.ddl.sent = sent.into();
            assert_eq!(record.ddl.has_no_number(), is_known);
        }
        assert_eq!(record.ddl.count.load(std::sync::atomic::Ordering::SeqCst), 2);
        let doubtful =
            |n| Expected::at(&record, &place(&[(1, 1), (DDL_DOMAIN, n)]), 0).ok().unwrap();
        assert_eq!(doubtful(1).record.ddl.doubtful, None);
        assert_eq!(doubtful(2).record.ddl.doubtful, Some(tables("ddl_2")), "before it or after it");
    }

    #[test]
    fn the_record_knows_each_place() {
        let expected = Expected::at(&record(), &place(&[(0, 9), (1, 3)]), 9).ok().unwrap();
        assert_eq!(expected.journal(), BTreeSet::from([1, 2, 3]));
        assert!(expected.record.ddl.tables.is_empty());
        let expected =
            Expected::at(&record(), &place(&[(0, 9), (1, 2), (DDL_DOMAIN, 1)]), 9).ok().unwrap();
        assert_eq!(expected.record.ddl.tables.len(), 1);
        assert_eq!(expected.transactions(), 12);
        let completed = place(&[(0, 10), (1, 2)]);
        let expected = Expected::at(&record(), &completed, 9).ok().unwrap();
        assert_eq!(expected.record.ddl.tables.len(), 1, "a restart has completed the statement");
        assert!(expected.record.ddl.doubtful.is_none());
        for wrong in [place(&[(1, 5)]), place(&[(1, 4), (2, 1)]), place(&[(1, 4), (DDL_DOMAIN, 2)])]
        {
            assert!(Expected::at(&record(), &wrong, 0).is_err(), "{wrong:?} never was");
        }
    }

    #[test]
    fn one_transaction_too_few_or_too_many_is_reported() {
        let actual = Actual { journal: BTreeSet::from([1, 2, 3]), ..Actual::default() };
        let found = |count| {
            let mut expected = Expected::at(&record(), &place(&[(1, count)]), 0).ok().unwrap();
            expected.record.sessions[0].resolve(&actual).err().unwrap_or_default()
        };
        assert!(found(3).is_empty());
        assert_eq!(found(2), ["phantom row journal(3)"]);
        assert_eq!(found(4), ["lost row journal(4)"]);
    }

    #[test]
    fn a_place_before_an_acknowledged_transaction_is_a_loss() {
        let before = place(&[(1, 2), (2, 1)]);
        assert!(missing(&before, &place(&[(1, 2), (2, 5), (3, 1)])).is_empty());
        assert_eq!(missing(&before, &place(&[(1, 2)])).len(), 1);
        assert_eq!(missing(&before, &place(&[(1, 1), (2, 0)])).len(), 2);
    }
}
