//! The list of a backup: its place in the binary log, and each of its files with checksums. The list is
//! written last, so a directory without it is no backup.
//!
//! That of an increment begins with another line: a release that does not know increments refuses it.

use crate::Result;
use sluice_engine::base::checksum::checksum;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub const FILE: &str = "sluice_backup_info";
/// The files of the backup lie below this directory, as in a data directory.
pub const DATA: &str = "data";
/// The name of facts that are options of the server.
pub const SETTING: &str = "server_option";
const POSITIONS: [&str; 4] =
    ["binlog_file", "binlog_position", "gtid_binlog_pos", "gtid_slave_pos"];
/// The first lines begin so.
const KIND: &str = "sluice backup, format ";
const HEAD: &str = "sluice backup, format 1";
const INCREMENT: &str = "sluice backup, format 2";
/// Facts: the name of the backup, and of an increment that of the one it rests on.
pub const ID: &str = "backup_id";
pub const BASE: &str = "base_id";

/// A piece of a file, and its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub bytes: u64,
    pub check: u32,
}

/// A file of the backup, and its length when it is restored. Bytes outside of all pieces are zeros, or of
/// no use, or in an increment those of what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: PathBuf,
    pub bytes: u64,
    pub pieces: Vec<Piece>,
}

impl Listed {
    pub fn piece_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Its length in a backup that has the pieces one after the other, or each at its offset.
    pub fn stored_bytes(&self, is_packed: bool) -> u64 {
        match is_packed {
            true => self.piece_bytes(),
            false => self.bytes,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Names and values, in order: versions, positions, tables that were left out.
    pub facts: Vec<(String, String)>,
    pub files: Vec<Listed>,
}

impl Manifest {
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.as_str())
    }

    pub fn facts_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.facts.iter().filter(move |fact| fact.0 == name).map(|fact| fact.1.as_str())
    }

    pub fn id(&self) -> Option<&str> {
        self.fact(ID)
    }

    /// The name of the backup that this one is an increment on.
    pub fn base(&self) -> Option<&str> {
        self.fact(BASE)
    }

    fn head(&self) -> &'static str {
        match self.base() {
            Some(_) => INCREMENT,
            None => HEAD,
        }
    }

    /// Where the server stood, names and values; `-` where it has none.
    pub fn positions(&self) -> impl Iterator<Item = (&str, &str)> {
        let value = |name| self.fact(name).filter(|value| !value.is_empty()).unwrap_or("-");
        POSITIONS.iter().map(move |&name| (name, value(name)))
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(Listed::piece_bytes).sum()
    }

    pub fn encode(&self) -> Result<String> {
        let mut text = format!("{}\n", self.head());
        for (name, value) in &self.facts {
            let _ = writeln!(text, "{name} {}", value.replace('\n', " "));
        }
        for file in &self.files {
            let name = file.name.to_str().filter(|name| !name.contains('\n'));
            let name = name.ok_or_else(|| format!("{} has no plain name", file.name.display()))?;
            let _ = writeln!(text, "file {} {name}", file.bytes);
            for Piece { offset, bytes, check } in &file.pieces {
                let _ = writeln!(text, "piece {offset} {bytes} {check:08x}");
            }
        }
        let _ = writeln!(text, "end {:08x}", checksum(0, text.as_bytes()));
        Ok(text)
    }

    fn decode(text: &str) -> Option<Manifest> {
        let (body, end) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let body = format!("{body}\n");
        let check = u32::from_str_radix(end.strip_prefix("end ")?, 16).ok()?;
        if check != checksum(0, body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        let head = lines.next()?;
        let mut found = Manifest::default();
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "file" => {
                    let (bytes, name) = rest.split_once(' ')?;
                    let (name, bytes) = (PathBuf::from(name), bytes.parse().ok()?);
                    found.files.push(Listed { name, bytes, pieces: Vec::new() });
                }
                "piece" => {
                    let mut words = rest.split(' ');
                    let offset = words.next()?.parse().ok()?;
                    let bytes = words.next()?.parse().ok()?;
                    let check = u32::from_str_radix(words.next()?, 16).ok()?;
                    found.files.last_mut()?.pieces.push(Piece { offset, bytes, check });
                }
                _ => found.facts.push((word.to_owned(), rest.to_owned())),
            }
        }
        (found.head() == head).then_some(found)
    }

    /// Durable when it returns.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let (part, whole) = (dir.join(format!("{FILE}.tmp")), dir.join(FILE));
        let _ = fs::remove_file(&part);
        let mut file = super::files::create(&part)?;
        let written = file
            .write_all(self.encode()?.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&part, &whole))
            .and_then(|()| fs::File::open(dir)?.sync_all());
        written.map_err(|e| {
            // Otherwise the directory is not empty, and a second backup to it is refused.
            let _ = fs::remove_file(&part);
            let _ = fs::remove_file(&whole);
            format!("cannot write {}: {e}", whole.display())
        })
    }

    pub fn read(dir: &Path) -> Result<Manifest> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{} is no backup, or one that was not finished: no {FILE}", dir.display())
            }
            _ => format!("cannot read {}: {e}", path.display()),
        })?;
        Manifest::parse(&text, &path.display().to_string())
    }

    /// The list that errors call `shown`.
    pub fn parse(text: &str, shown: &str) -> Result<Manifest> {
        let first = text.lines().next().unwrap_or_default();
        if first.starts_with(KIND) && ![HEAD, INCREMENT].contains(&first) {
            return Err(format!(
                "{shown} is of another release ({first}): restore it with the sluice of that release"
            ));
        }
        let damaged = || format!("{shown} is damaged: the backup cannot be used");
        let found = Manifest::decode(text).ok_or_else(damaged)?;
        // No file may be written elsewhere.
        let is_inside = |name: &Path| {
            name.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        match found.files.iter().all(|file| is_inside(&file.name)) {
            true => Ok(found),
            false => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Manifest {
        let piece = |offset, check| Piece { offset, bytes: 4096, check };
        let name = PathBuf::from("db/name with blanks.frm");
        Manifest {
            facts: vec![
                ("gtid".into(), "0-1-5,1-2-3".into()),
                ("gtid_slave_pos".into(), String::new()),
            ],
            files: vec![
                Listed { name, bytes: 9000, pieces: vec![piece(0, 7), piece(8192, u32::MAX)] },
                Listed { name: "empty".into(), bytes: 0, pieces: Vec::new() },
            ],
        }
    }

    #[test]
    fn a_list_comes_back_as_it_was() {
        let text = one().encode().unwrap();
        assert_eq!(Manifest::decode(&text), Some(one()));
        assert_eq!(one().bytes(), 8192);
        assert_eq!(one().fact("gtid"), Some("0-1-5,1-2-3"));
    }

    /// A release that reads format 1 only does not take it for all there is.
    #[test]
    fn an_increment_has_a_format_of_its_own() {
        let mut increment = one();
        increment.facts.extend([(ID.into(), "b".into()), (BASE.into(), "a".into())]);
        let text = increment.encode().unwrap();
        assert!(text.starts_with("sluice backup, format 2\n"));
        assert_eq!(Manifest::decode(&text), Some(increment.clone()));
        assert_eq!((increment.id(), increment.base()), (Some("b"), Some("a")));
        let file = &increment.files[0];
        assert_eq!((file.stored_bytes(true), file.stored_bytes(false)), (8192, 9000));
        assert_eq!(one().base(), None);
        let later = one().encode().unwrap().replace("format 1", "format 3");
        assert!(Manifest::parse(&later, "it").unwrap_err().contains("of another release"));
    }

    /// Also where the user has made the directory, and whatever lies there.
    #[test]
    fn others_cannot_read_the_list_and_a_link_is_not_followed() {
        use std::os::unix::fs::{symlink, MetadataExt};
        let dir = std::env::temp_dir().join(format!("sluice-manifest-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let precious = dir.join("precious");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, dir.join(format!("{FILE}.tmp"))).unwrap();
        one().write(&dir).unwrap();
        assert_eq!(fs::metadata(dir.join(FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(Manifest::read(&dir).unwrap(), one());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn each_cut_and_each_changed_byte_is_found() {
        let text = one().encode().unwrap();
        for at in 0..text.len() {
            assert_eq!(Manifest::decode(&text[..at]), None, "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let other = String::from_utf8(bytes).unwrap();
            assert_ne!(Manifest::decode(&other), Some(one()), "byte {at}");
        }
    }
}
