//! The server's index of its binlog: the name of a file in each line.
//!
//! The server appends a name, and then syncs. A loss of power between the two can leave zeros in
//! place of the name, or of a part of it. The server goes on with them: it writes the next name
//! after them, and does not find that name any more. The file of the lost name holds no event yet,
//! so nothing is lost with it.
//!
//! The server has opened the file before the plugin starts, so it is changed in its place.

use super::files;
use crate::base::{Error, Result};
use crate::os::{OpenMode, Os};
use std::path::{Path, PathBuf};

/// The index as it was read.
#[derive(Clone, Debug, Default)]
pub struct Index {
    pub path: PathBuf,
    pub is_there: bool,
    /// The server will not read it, and may have it elsewhere: files that are there count as named.
    pub is_guess: bool,
    pub names: Vec<String>,
}

impl Index {
    pub fn read(os: &dyn Os, path: &Path, is_guess: bool) -> Result<Index> {
        let bytes = files::read(os, path)?;
        let text = String::from_utf8(bytes.clone().unwrap_or_default())
            .map_err(|_| Error::Refused(format!("{} is not UTF-8", path.display())))?;
        let names = text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect();
        let is_guess = is_guess && bytes.is_none();
        Ok(Index { path: path.to_owned(), is_there: bytes.is_some(), is_guess, names })
    }

    /// Takes names out, durably.
    pub fn forget(&mut self, os: &dyn Os, gone: &[String]) -> Result<()> {
        self.names.retain(|name| !gone.contains(name));
        let text: String = self.names.iter().map(|name| format!("{name}\n")).collect();
        overwrite(os, &self.path, text.as_bytes())
    }
}

/// The removed part is zeros first: a loss of power on the way leaves these, and [`mend`] takes
/// them out.
fn overwrite(os: &dyn Os, path: &Path, new: &[u8]) -> Result<()> {
    let old = files::read(os, path)?.unwrap_or_default();
    let file = os.open(path, OpenMode::default())?;
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    if same < new.len() {
        let mut padded = new.to_vec();
        padded.resize(old.len().max(new.len()), 0);
        file.write_at(&padded[same..], same as u64)?;
        file.sync()?;
    }
    file.set_len(new.len() as u64)?;
    file.sync()
}

/// Takes zeros out, and what is left of a name around them unless a file is called so. Answers how many
/// bytes are gone. Only before the server reads its index, or writes to it.
pub fn mend(os: &dyn Os, path: &Path) -> Result<usize> {
    let Some(bytes) = files::read(os, path)? else { return Ok(0) };
    let exists = |name: &str| os.exists(Path::new(name)).unwrap_or(true);
    let Some(mended) = mended(&bytes, exists) else { return Ok(0) };
    overwrite(os, path, &mended)?;
    Ok(bytes.len() - mended.len())
}

/// What is to stand in the index. `None`: there is no zero.
fn mended(bytes: &[u8], exists: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    let zero = bytes.iter().position(|b| *b == 0)?;
    let from = bytes[..zero].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let mut out = bytes[..from].to_vec();
    for line in bytes[from..].split_inclusive(|b| *b == b'\n') {
        let rest: Vec<u8> = line.iter().copied().filter(|b| *b != 0).collect();
        let name = std::str::from_utf8(&rest).unwrap_or_default().trim_end_matches('\n');
        if rest.len() == line.len() || (!name.is_empty() && exists(name)) {
            out.extend(rest);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sim::SimOs;

    fn text(bytes: &[u8]) -> Option<String> {
        let exists = |name: &str| ["./b.1", "./b.2", "./b.3"].contains(&name);
        mended(bytes, exists).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn zeros_go_and_names_stay() {
        assert_eq!(text(b"./b.1\n./b.2\n"), None);
        assert_eq!(text(b""), None);
        for lost in [
            &b"./b.1\n./b.2\n\0\0\0\0\0\0"[..],
            b"./b.1\n./b.2\n./b\0\0\0",
            b"./b.1\n./b.2\n\0\0\0.3\n",
        ] {
            assert_eq!(text(lost).as_deref(), Some("./b.1\n./b.2\n"), "{lost:?}");
        }
        // As the server leaves them: the next name stands after the zeros.
        assert_eq!(text(b"./b.1\n\0\0\0./b.2\n./b.3\n").as_deref(), Some("./b.1\n./b.2\n./b.3\n"));
        assert_eq!(text(b"\0\0\0").as_deref(), Some(""));
        assert_eq!(text(b"\0\xff\n./b.1\n").as_deref(), Some("./b.1\n"));
    }

    #[test]
    fn a_file_is_mended_once() {
        let os = SimOs::new(1);
        let path = Path::new("/b.index");
        assert_eq!(mend(&*os, path).unwrap(), 0);
        assert!(!Index::read(&*os, path, false).unwrap().is_there);
        let file = os.open(path, OpenMode { create: true, direct: false }).unwrap();
        file.write_at(b"/no-such-file.1\n\0\0\0\0", 0).unwrap();
        assert_eq!(mend(&*os, path).unwrap(), 4);
        assert_eq!(mend(&*os, path).unwrap(), 0);
        let mut index = Index::read(&*os, path, false).unwrap();
        assert_eq!(index.names, ["/no-such-file.1"]);
        index.forget(&*os, &["/no-such-file.1".to_owned()]).unwrap();
        assert!(Index::read(&*os, path, false).unwrap().names.is_empty());
    }
}
