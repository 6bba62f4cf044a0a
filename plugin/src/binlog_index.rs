//! The server's index of its binlog: the name of a file in each line.
//!
//! The server appends a name, and then syncs. A loss of power between the two can leave zeros where the name, or
//! a part of it, would be. The server goes on with them: it writes the next name behind, and does not find it any
//! more. The file that was to be named holds no event yet, so nothing is lost with its name.

use sluice_engine::base::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::io(op, path, error)
}

/// The names, in order; none without an index.
pub fn names(path: &Path) -> Result<Vec<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Takes zeros out, and what is left of a name around them unless a file is called so. Answers how many
/// bytes are gone. Only before the server reads its index, or writes to it.
pub fn mend(path: &Path) -> Result<usize> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.map_err(failed("read", path))?,
    };
    let Some((from, tail)) = mended(&bytes, |name| Path::new(name).exists()) else { return Ok(0) };
    let file = File::options().write(true).open(path).map_err(failed("open", path))?;
    file.write_all_at(&tail, from as u64)
        .and_then(|()| file.set_len((from + tail.len()) as u64))
        .and_then(|()| file.sync_all())
        .map_err(failed("write", path))?;
    Ok(bytes.len() - from - tail.len())
}

/// Where the first line with zeros begins, and what is to stand from there on. None: there is no zero.
fn mended(bytes: &[u8], exists: impl Fn(&str) -> bool) -> Option<(usize, Vec<u8>)> {
    let zero = bytes.iter().position(|b| *b == 0)?;
    let from = bytes[..zero].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let mut tail = Vec::new();
    for line in bytes[from..].split_inclusive(|b| *b == b'\n') {
        let rest: Vec<u8> = line.iter().copied().filter(|b| *b != 0).collect();
        let name = std::str::from_utf8(&rest).unwrap_or_default().trim_end_matches('\n');
        if rest.len() == line.len() || (!name.is_empty() && exists(name)) {
            tail.extend(rest);
        }
    }
    Some((from, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Option<String> {
        let exists = |name: &str| ["./b.1", "./b.2", "./b.3"].contains(&name);
        let (from, tail) = mended(bytes, exists)?;
        Some(String::from_utf8([&bytes[..from], &tail].concat()).unwrap())
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
        // As the server leaves them: the next name stands behind the zeros.
        assert_eq!(text(b"./b.1\n\0\0\0./b.2\n./b.3\n").as_deref(), Some("./b.1\n./b.2\n./b.3\n"));
        assert_eq!(text(b"\0\0\0").as_deref(), Some(""));
        assert_eq!(text(b"\0\xff\n./b.1\n").as_deref(), Some("./b.1\n"));
    }

    #[test]
    fn a_file_is_mended_once() {
        let path = std::env::temp_dir().join(format!("sluice-index-{}", std::process::id()));
        fs::write(&path, b"./no-such-file.1\n\0\0\0\0").unwrap();
        assert_eq!(mend(&path).unwrap(), 4);
        assert_eq!(mend(&path).unwrap(), 0);
        assert_eq!(names(&path).unwrap(), ["./no-such-file.1"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(mend(&path).unwrap(), 0);
        assert!(names(&path).unwrap().is_empty());
    }
}
