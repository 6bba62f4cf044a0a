//! `sluice inspect DIR summary`: a stopped directory in a few lines.

use super::json::Json;
use super::pages_disk_bytes;
use crate::host::free_bytes;
use sluice_engine::base::formats::{self, Release};
use sluice_engine::base::Error;
use sluice_engine::db::inspect::{Directory, Outlook};
use std::fs;
use std::path::{Path, PathBuf};

pub struct Summary {
    outlook: Outlook,
    format: usize,
    since: Release,
    /// As mariadb-upgrade noted it in the server's data directory.
    server: Option<String>,
    /// Files that say: the end of a binary log may be in the engine's log.
    marks: Vec<PathBuf>,
    disk_bytes: u64,
    free_bytes: Option<u64>,
}

impl Summary {
    pub fn of(dir: &Directory, engine_dir: &Path) -> Result<Summary, Error> {
        let outlook = dir.outlook()?;
        let (format, since) = formats::of_store(outlook.header.version)
            .ok_or_else(|| Error::Refused("the superblock's version is of no format".into()))?;
        // It may have been named by a link.
        let engine = fs::canonicalize(engine_dir).unwrap_or_else(|_| engine_dir.to_owned());
        let server_dir = engine.parent().unwrap_or(&engine).to_owned();
        Ok(Summary {
            format,
            since,
            server: server_version(&server_dir),
            marks: marks(&server_dir, &outlook.binlog_files),
            disk_bytes: pages_disk_bytes(engine_dir),
            free_bytes: free_bytes(engine_dir),
            outlook,
        })
    }

    pub fn text(&self) -> String {
        let found = &self.outlook;
        let (newest, newest_since) = formats::newest();
        let mut lines = vec![
            format!("program      sluice {}, writes format {newest}", env!("CARGO_PKG_VERSION")),
            format!("files        format {}, of release {}", self.format, self.since),
            format!("server       {}", self.server.as_deref().unwrap_or("not noted")),
        ];
        if self.format < newest {
            lines[1] += &format!(": the next start writes format {newest}, of {newest_since}");
        }
        lines.push(match found.was_clean() {
            true => "last stop    clean".to_owned(),
            false => "last stop    not clean: the next start has work".to_owned(),
        });
        lines.push(format!(
            "log          {} records to apply, from {} to {}",
            found.records, found.log_from, found.log_end
        ));
        lines
            .push(format!("transactions {} to roll back, {} prepared", found.open, found.prepared));
        lines.extend(self.binlog_lines());
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let free = self.free_bytes.map_or("unknown".to_owned(), mib);
        lines.push(format!(
            "space        pages {} on the disk, {} of them in use; log {}; free on the disk {free}",
            mib(self.disk_bytes),
            mib(found.live_bytes),
            mib(found.log_bytes),
        ));
        lines.join("\n")
    }

    fn binlog_lines(&self) -> Vec<String> {
        let files = self.outlook.binlog_files.iter();
        let mut lines: Vec<String> =
            files.map(|file| format!("binary log   the next start completes {file}")).collect();
        let marks = self.marks.iter().map(|mark| {
            format!(
                "binary log   {}: start the server with the plugin before all else",
                mark.display()
            )
        });
        lines.extend(marks);
        if lines.is_empty() {
            lines.push("binary log   nothing to complete".to_owned());
        }
        lines
    }

    pub fn json(&self) -> Json {
        let found = &self.outlook;
        let marks: Vec<_> = self.marks.iter().map(|mark| mark.display().to_string()).collect();
        Json::Object(vec![
            ("program", env!("CARGO_PKG_VERSION").into()),
            ("format", self.format.into()),
            ("format_since", self.since.to_string().into()),
            ("server", self.server.clone().into()),
            ("clean", Json::Bool(found.was_clean())),
            ("log_from", found.log_from.0.into()),
            ("log_end", found.log_end.0.into()),
            ("records", found.records.into()),
            ("open_transactions", found.open.into()),
            ("prepared_transactions", found.prepared.into()),
            ("binlog_files", found.binlog_files.clone().into()),
            ("binlog_marks", marks.into()),
            ("pages_bytes", found.pages_bytes.into()),
            ("pages_disk_bytes", self.disk_bytes.into()),
            ("pages_live_bytes", found.live_bytes.into()),
            ("log_bytes", found.log_bytes.into()),
            ("free_bytes", self.free_bytes.into()),
        ])
    }
}

fn server_version(server_dir: &Path) -> Option<String> {
    let names = ["mariadb_upgrade_info", "mysql_upgrade_info"];
    let text = names.iter().find_map(|name| fs::read_to_string(server_dir.join(name)).ok())?;
    Some(text.trim_matches(['\0', '\n', ' ']).to_owned())
}

/// In the server's directory, and beside the binary log as far as the log names it.
fn marks(server_dir: &Path, binlog_files: &[String]) -> Vec<PathBuf> {
    let beside = binlog_files.iter().map(|file| server_dir.join(file).with_extension("sluice"));
    let inside = fs::read_dir(server_dir).into_iter().flatten().flatten().map(|e| e.path());
    let is_mark = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "sluice");
    let mut found: Vec<_> =
        inside.filter(is_mark).chain(beside).filter(|path| path.is_file()).collect();
    // A path of the log may lead through a link or `.`.
    for path in &mut found {
        *path = fs::canonicalize(&*path).unwrap_or_else(|_| path.clone());
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_beside_the_binlog_and_once() {
        let dir = std::env::temp_dir().join(format!("sluice-marks-{}", std::process::id()));
        let (server, logs) = (dir.join("data"), dir.join("logs"));
        fs::create_dir_all(server.join("x.sluice")).unwrap();
        fs::create_dir_all(&logs).unwrap();
        assert_eq!(marks(&server, &[]), Vec::<PathBuf>::new());
        fs::write(server.join("bin.sluice"), "").unwrap();
        fs::write(logs.join("other.sluice"), "").unwrap();
        let files = ["./bin.000001".to_owned(), logs.join("other.000007").display().to_string()];
        let found = marks(&server, &files);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["bin.sluice", "other.sluice"]);
        assert_eq!(server_version(&server), None);
        fs::write(server.join("mariadb_upgrade_info"), "10.11.18-MariaDB\n").unwrap();
        assert_eq!(server_version(&server).as_deref(), Some("10.11.18-MariaDB"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
