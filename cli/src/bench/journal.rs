//! `results.jsonl`: what has been measured, one JSON object a line.

use crate::Result;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const FILE_NAME: &str = "results.jsonl";
/// Raised when lines change their meaning.
pub const FORMAT: u64 = 1;

pub struct Journal {
    file: File,
    path: PathBuf,
    done: BTreeSet<String>,
    /// The settings that a target got; not failed.
    pub advice: Option<Value>,
    pub run_id: String,
    /// There are results of an earlier attempt.
    pub goes_on: bool,
}

impl Journal {
    /// Begins a journal, or goes on with the one of the same configuration.
    pub fn open(dir: &Path, plan: &Value, environment: &Value) -> Result<Journal> {
        fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
        let path = dir.join(FILE_NAME);
        let lines = if path.exists() { read(&path)? } else { Vec::new() };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| format!("cannot open {}: {e}", path.display()))?;
        let done = BTreeSet::new();
        let run_id = String::new();
        let mut journal = Journal { file, path, done, advice: None, run_id, goes_on: false };
        let Some(first) = lines.first() else {
            // Half a first line of an earlier attempt holds nothing.
            journal.file.set_len(0).map_err(|e| format!("cannot empty the results: {e}"))?;
            journal.run_id = new_run_id();
            journal.write(&json!({
                "kind": "config", "format": FORMAT, "run": journal.run_id, "plan": plan,
                "environment": environment,
            }))?;
            return Ok(journal);
        };
        if first["format"] != json!(FORMAT) || first["plan"] != *plan {
            return Err(format!(
                "{} holds results of another configuration: choose another --out, or remove it",
                journal.path.display()
            ));
        }
        journal.cut_half_line()?;
        journal.goes_on = true;
        journal.run_id = first["run"].as_str().unwrap_or_default().to_string();
        let whole = |l: &&Value| l["kind"] == "advice" && l["failure"].is_null();
        journal.advice = lines.iter().rfind(whole).cloned();
        let keys = lines.iter().filter(|l| l["failure"].is_null());
        journal.done = keys.filter_map(|l| Some(l["key"].as_str()?.to_string())).collect();
        Ok(journal)
    }

    pub fn is_done(&self, key: &str) -> bool {
        self.done.contains(key)
    }

    pub fn write(&mut self, line: &Value) -> Result<()> {
        let text = format!("{line}\n");
        let failed = |e| format!("cannot write {}: {e}", self.path.display());
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(failed)?;
        if let Some(key) = line["key"].as_str() {
            self.done.insert(key.to_string());
        }
        Ok(())
    }

    /// A run that was killed may have left half a line.
    fn cut_half_line(&self) -> Result<()> {
        let failed = |e| format!("cannot repair {}: {e}", self.path.display());
        let bytes = fs::read(&self.path).map_err(failed)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.file.set_len(whole as u64).map_err(failed)
    }
}

/// All whole lines.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text =
        fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let mut lines = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if !line.ends_with('\n') {
            break;
        }
        let value = serde_json::from_str(line)
            .map_err(|e| format!("{}, line {}: {e}", path.display(), number + 1))?;
        lines.push(value);
    }
    Ok(lines)
}

fn new_run_id() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("{:x}-{:x}", now.map_or(0, |d| d.as_millis()), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("sluice-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn goes_on_where_it_was_and_drops_half_a_line() {
        let dir = scratch("resume");
        let plan = json!({"seconds": 1});
        let mut journal = Journal::open(&dir, &plan, &json!({})).unwrap();
        journal.write(&json!({"kind": "point", "key": "a"})).unwrap();
        journal.write(&json!({"kind": "point", "key": "b", "failure": "x"})).unwrap();
        let id = journal.run_id.clone();
        drop(journal);
        let path = dir.join(FILE_NAME);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\": \"poi").unwrap();
        let mut journal = Journal::open(&dir, &plan, &json!({})).unwrap();
        assert_eq!(journal.run_id, id);
        assert!(journal.is_done("a"));
        assert!(!journal.is_done("b"), "what failed is tried again");
        journal.write(&json!({"kind": "point", "key": "c"})).unwrap();
        assert_eq!(read(&path).unwrap().len(), 4);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn another_configuration_is_refused() {
        let dir = scratch("other");
        Journal::open(&dir, &json!({"seconds": 1}), &json!({})).unwrap();
        let reason = Journal::open(&dir, &json!({"seconds": 2}), &json!({})).err().unwrap();
        assert!(reason.contains("another configuration"), "{reason}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_bad_line_is_named() {
        let dir = scratch("bad");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(FILE_NAME), "{}\nnot json\n").unwrap();
        assert!(read(&dir.join(FILE_NAME)).unwrap_err().contains("line 2"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
