//! Names by which an increment finds what it rests on: each backup has one, and so has each directory that
//! was restored.

use super::files;
use super::manifest::{Manifest, ID};
use crate::Result;
use sluice_engine::os::RealOs;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

/// In a restored data directory: a server in it goes on another way than the one that was backed up, though
/// all numbers are the same.
const FILE: &str = "sluice_restore_info";
/// Also a fact of each backup of such a directory.
pub const RESTORE_ID: &str = "restore_id";

/// 128 random bits in hexadecimal digits.
pub fn draw() -> Result<String> {
    let mut bytes = [0; 16];
    RealOs::new().random(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// The name of the restore that has made a data directory, if one has.
pub fn of_directory(data_dir: &Path) -> Result<Option<String>> {
    let path = data_dir.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let id = text.lines().find_map(|line| line.strip_prefix(RESTORE_ID)?.strip_prefix(' '));
    match id.filter(|id| !id.is_empty()) {
        Some(id) => Ok(Some(id.to_owned())),
        None => Err(format!("{} is damaged: it has no {RESTORE_ID}", path.display())),
    }
}

/// Gives a directory that is being restored its name.
pub fn mark(stage: &Path, manifest: &Manifest) -> Result<()> {
    let path = stage.join(FILE);
    let mut text = format!("{RESTORE_ID} {}\n", draw()?);
    if let Some(id) = manifest.id() {
        let _ = writeln!(text, "{ID} {id}");
    }
    let mut file = files::create(&path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_the_name_of_its_restore() {
        let dir = std::env::temp_dir().join(format!("sluice-identity-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        assert_eq!(of_directory(&dir), Ok(None));
        let facts = vec![("backup_id".to_owned(), "1".to_owned())];
        mark(&dir, &Manifest { facts, files: Vec::new() }).unwrap();
        let id = of_directory(&dir).unwrap().expect("an id");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_ne!(draw().unwrap(), id);
        fs::write(dir.join(FILE), "restore_id \n").unwrap();
        assert!(of_directory(&dir).unwrap_err().contains("is damaged"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
