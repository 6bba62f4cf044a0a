//! The journal ids of all transactions that the binlog files hold. Every writing transaction of
//! the workload puts a row with a unique id into `journal`, so the binlog and the engine hold the
//! same transactions exactly when they hold the same ids.

use sluice_rig::server::Prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Default)]
pub struct BinlogRecord {
    /// Ids in committed event groups of the files read so far.
    pub committed: BTreeSet<i64>,
    /// Files that the server has left for good, with their size. They must not change any more.
    closed: BTreeMap<PathBuf, u64>,
    /// Files that end inside an event group.
    pub cut_short: u64,
}

/// What one binlog file holds.
#[derive(Default, Debug, PartialEq)]
pub struct Contents {
    pub committed: Vec<i64>,
    pub open_group: bool,
}

impl BinlogRecord {
    /// Reads every file that was not closed at the last call. To be called after a restart: the
    /// last file of the index is the one that the restarted server has opened.
    pub fn read(&mut self, prefix: &Prefix, data: &Path) -> Result<(), Vec<String>> {
        let files = files_of_index(data).map_err(|e| vec![format!("binlog index: {e}")])?;
        let mut problems = Vec::new();
        for (position, file) in files.iter().enumerate() {
            let last = position + 1 == files.len();
            if let Err(problem) = self.read_file(prefix, file, last) {
                problems.push(format!("binlog {}: {problem}", file.display()));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }

    fn read_file(&mut self, prefix: &Prefix, file: &Path, active: bool) -> Result<(), String> {
        let size = fs::metadata(file).map_err(|e| e.to_string())?.len();
        if let Some(&before) = self.closed.get(file) {
            return match before == size {
                true => Ok(()),
                false => Err(format!("was closed with {before} bytes and now has {size}")),
            };
        }
        let contents = decode(prefix, file, None).map_err(|e| e.to_string())?;
        let mut seen_in_file = BTreeSet::new();
        for id in &contents.committed {
            if !seen_in_file.insert(*id) || self.committed.contains(id) {
                return Err(format!("transaction {id} is there twice"));
            }
        }
        if active {
            // It will be read again when it is closed, so it does not count yet.
            return match contents.committed.is_empty() {
                true => Ok(()),
                false => Err("the file opened at restart holds transactions".into()),
            };
        }
        self.committed.extend(seen_in_file);
        self.cut_short += u64::from(contents.open_group);
        self.closed.insert(file.to_path_buf(), size);
        Ok(())
    }
}

fn files_of_index(data: &Path) -> io::Result<Vec<PathBuf>> {
    let index = fs::read_to_string(data.join("binlog.index"))?;
    Ok(index.lines().map(|line| data.join(line.trim_start_matches("./"))).collect())
}

/// The ids of all transactions before a position of a file of the binlog.
pub fn ids_before(
    prefix: &Prefix,
    data: &Path,
    name: &str,
    position: u64,
) -> io::Result<BTreeSet<i64>> {
    let mut ids = BTreeSet::new();
    for file in files_of_index(data)? {
        let is_last = file.ends_with(name);
        let contents = decode(prefix, &file, is_last.then_some(position))?;
        if contents.open_group && is_last {
            return Err(io::Error::other(format!("{name} {position} is inside of a transaction")));
        }
        ids.extend(contents.committed);
        if is_last {
            return Ok(ids);
        }
    }
    Err(io::Error::other(format!("no file {name}")))
}

/// Whether some binlog file has the GTID; files that end in half an event count up to there.
pub fn has_gtid(prefix: &Prefix, data: &Path, domain: u64, number: u64) -> bool {
    let gtid = format!("GTID {domain}-1-{number} ");
    let is_binlog = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("binlog.0")
    };
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_binlog).any(|path| {
        let said =
            Command::new(prefix.program("mariadb-binlog")).arg("--no-defaults").arg(path).output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(&gtid))
    })
}

/// Of the whole file, or of what is before a position.
fn decode(prefix: &Prefix, file: &Path, before: Option<u64>) -> io::Result<Contents> {
    let stop = before.map(|position| format!("--stop-position={position}"));
    let mut child = Command::new(prefix.program("mariadb-binlog"))
        .args(["--no-defaults", "--verify-binlog-checksum", "--base64-output=decode-rows", "-v"])
        .args(["--database=k9", "--table=journal"])
        .args(stop)
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let mut contents = parse(BufReader::new(out))?;
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // A server that does not write its log as one unit leaves half an event at the end.
        if !complaint.contains("read error") && !complaint.contains("truncated") {
            return Err(io::Error::other(format!("mariadb-binlog: {complaint}")));
        }
        contents.open_group = true;
    }
    Ok(contents)
}

/// Parses the pseudo-SQL of mariadb-binlog. An id counts when its event group is complete.
fn parse(text: impl BufRead) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let (mut group, mut in_journal) = (Vec::new(), false);
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line == "START TRANSACTION" || line == "BEGIN" {
            group.clear();
            contents.open_group = true;
        } else if line.starts_with("COMMIT") {
            contents.committed.append(&mut group);
            contents.open_group = false;
        } else if line.starts_with("ROLLBACK /* added by") {
            group.clear();
        } else if let Some(rest) = line.strip_prefix("### ") {
            in_journal = match rest.strip_prefix("INSERT INTO ") {
                Some(table) => table == "`k9`.`journal`",
                None => in_journal && (rest.starts_with("  @") || rest == "SET"),
            };
            if let Some(id) = rest.strip_prefix("  @1=").filter(|_| in_journal) {
                let id = id.split(' ').next().unwrap_or_default();
                group.push(id.parse().map_err(|_| io::Error::other(format!("id {id:?}")))?);
            }
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "START TRANSACTION\n/*!*/;\n### INSERT INTO `k9`.`journal`\n### SET\n\
         ###   @1=77\n###   @2=1\n### INSERT INTO `k9`.`main_rows`\n### SET\n###   @1=5\n";

    #[test]
    fn an_id_counts_when_its_group_is_complete() {
        let whole = parse(format!("{GROUP}COMMIT/*!*/;\n").as_bytes()).unwrap();
        assert_eq!(whole, Contents { committed: vec![77], open_group: false });
        let cut = parse(GROUP.as_bytes()).unwrap();
        assert_eq!(cut, Contents { committed: vec![], open_group: true });
    }
}
