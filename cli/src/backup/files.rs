//! The small files of the server around the engine: definitions of tables, views and triggers, and the
//! server's own tables in plain files.

use super::manifest::{Listed, Piece};
use super::server::{Foreign, SYSTEM};
use super::stream::Stream;
use crate::Result;
use sluice_engine::base::checksum::checksum;
use sluice_engine::base::Error;
use sluice_engine::os::OPEN_FILES;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Nobody but the owner may read a backup.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const BUFFER_BYTES: usize = 256 << 10;

/// Of tables that are copied, and of views and triggers.
const DEFINITIONS: [&str; 4] = ["frm", "par", "TRG", "TRN"];

/// An error of the engine about files in `path`. One about room has no path in it, and is that of the disk: here
/// log and page store have no other bound that they could meet.
pub fn shown(path: &Path, error: Error) -> String {
    match error {
        Error::Full { what } if what != OPEN_FILES => format!(
            "{}: the {what} is full (No space left on device, or a quota or limit of file sizes)",
            path.display()
        ),
        other => other.to_string(),
    }
}

pub fn make_dir(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir);
    made.map_err(|e| format!("cannot make the directory {}: {e}", dir.display()))
}

/// Makes `dir`, or takes it if it is empty.
pub fn take_empty_dir(dir: &Path) -> Result<()> {
    make_dir(dir)?;
    for entry in list(dir)? {
        if entry.file_name().is_some_and(|name| name != "lost+found") {
            return Err(format!("{} is not empty: {} is there", dir.display(), entry.display()));
        }
    }
    Ok(())
}

pub fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut found = read().map_err(|e| format!("cannot list {}: {e}", dir.display()))?;
    found.sort();
    Ok(found)
}

pub fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|e| format!("cannot sync {}: {e}", path.display()))
}

pub fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    file.map_err(|e| format!("cannot create {}: {e}", path.display()))
}

/// Where the files of a backup go: below a directory, or into a stream.
pub enum Sink {
    Dir(PathBuf),
    Stream(Stream),
}

/// Takes bytes of a file, which follow those before, and their offset.
type Put<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl Sink {
    /// Makes a file, and answers how its bytes are written in turn.
    fn create(&self, name: &Path) -> Result<Box<Put<'_>>> {
        match self {
            Sink::Dir(dir) => {
                let target = dir.join(name);
                if let Some(parent) = target.parent() {
                    make_dir(parent)?;
                }
                let mut file = create(&target)?;
                Ok(Box::new(move |_, bytes| {
                    let written = file.write_all(bytes);
                    written.map_err(|e| format!("cannot write {}: {e}", target.display()))
                }))
            }
            Sink::Stream(stream) => {
                stream.file(name, 0)?;
                let name = name.to_owned();
                Ok(Box::new(move |offset, bytes| stream.piece(&name, offset, bytes)))
            }
        }
    }
}

/// Copies files below one directory, and lists them.
pub struct Files<'a> {
    pub from: &'a Path,
    pub to: &'a Sink,
    pub listed: Vec<Listed>,
}

impl Files<'_> {
    /// Definitions of what is in databases of users: nobody changes them now.
    pub fn copy_databases(&mut self, databases: &[String], foreign: &[Foreign]) -> Result<()> {
        for database in databases.iter().filter(|name| !SYSTEM.contains(&name.as_str())) {
            let is_wanted = |path: &Path| {
                let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
                path.file_name().is_some_and(|name| name == "db.opt") || DEFINITIONS.contains(&end)
            };
            self.copy_database(database, foreign, &is_wanted)?;
        }
        Ok(())
    }

    /// The server's own tables, of engines that keep each in plain files: nobody writes to them now.
    pub fn copy_system(&mut self, foreign: &[Foreign]) -> Result<()> {
        for database in SYSTEM {
            self.copy_database(database, foreign, &|_| true)?;
        }
        Ok(())
    }

    /// The log of Aria, by which its tables are recovered, after these.
    pub fn copy_aria_log(&mut self, dir: &Path) -> Result<()> {
        for path in list(dir)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name == "aria_log_control" || name.starts_with("aria_log.") {
                let name = PathBuf::from(name);
                self.copy(&path, name)?;
            }
        }
        Ok(())
    }

    fn copy_database(
        &mut self,
        database: &str,
        foreign: &[Foreign],
        is_wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<()> {
        let dir = self.from.join(database);
        if !dir.is_dir() {
            return Ok(());
        }
        for path in list(&dir)? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.starts_with("#sql") || path.is_dir() || !is_wanted(&path) {
                continue;
            }
            if !is_foreign(&path, name, database, foreign)? {
                self.copy(&path, Path::new(database).join(name))?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, path: &Path, name: PathBuf) -> Result<()> {
        let failed = |e| format!("cannot read {}: {e}", path.display());
        let mut source = File::open(path).map_err(failed)?;
        let mut put = self.to.create(&name)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut bytes, mut check) = (0, 0);
        loop {
            let n = source.read(&mut buffer).map_err(failed)?;
            if n == 0 {
                break;
            }
            check = checksum(check, &buffer[..n]);
            put(bytes, &buffer[..n])?;
            bytes += n as u64;
        }
        drop(put);
        let pieces = if bytes > 0 { vec![Piece { offset: 0, bytes, check }] } else { Vec::new() };
        self.listed.push(Listed { name, bytes, pieces });
        Ok(())
    }

    /// Makes all that was copied to a directory durable.
    pub fn sync(&self) -> Result<()> {
        let Sink::Dir(dir) = self.to else { return Ok(()) };
        for file in &self.listed {
            sync(&dir.join(&file.name))?;
        }
        for path in list(dir)?.into_iter().filter(|path| path.is_dir()) {
            sync(&path)?;
        }
        sync(dir)
    }
}

/// Does the file belong to a table that is not copied?
fn is_foreign(path: &Path, name: &str, database: &str, foreign: &[Foreign]) -> Result<bool> {
    let mut of_database = foreign.iter().filter(|table| table.schema_file == database).peekable();
    if of_database.peek().is_none() {
        return Ok(false);
    }
    let (base, end) = name.split_once('.').unwrap_or((name, ""));
    if end != "TRN" {
        let table = base.split('#').next().unwrap_or(base);
        return Ok(of_database.any(|foreign| foreign.table_file == table));
    }
    // Its name is that of a trigger; inside it says of which table.
    let text = fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let table = text.lines().find_map(|line| line.strip_prefix("trigger_table="));
    Ok(of_database.any(|foreign| Some(foreign.table.as_str()) == table))
}
