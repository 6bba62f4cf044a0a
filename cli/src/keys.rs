//! The keys of an encrypted directory, from a file as the plugin file_key_management reads it, or with a
//! version beside each key, for those of other plugins.

use crate::Result;
use clap::Args;
use sluice_engine::db::Keys;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args)]
pub struct KeyArgs {
    /// Keys of an encrypted directory: a file of lines ID;KEY with KEY in hexadecimal digits, as
    /// file_key_management_filename names it (not itself encrypted), or ID;VERSION;KEY for keys of another plugin
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
}

impl KeyArgs {
    pub fn read(&self) -> Result<Option<Arc<dyn Keys>>> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Some(Arc::new(KeyFile::parse(path, &text)?)))
    }
}

/// By id and version.
struct KeyFile(BTreeMap<(u32, u32), Vec<u8>>);

/// That of a line without one: file_key_management has no other.
const VERSION: u32 = 1;

impl KeyFile {
    fn parse(path: &Path, text: &str) -> Result<KeyFile> {
        let mut keys = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let place = || format!("{} line {}", path.display(), number + 1);
            let Some((name, key)) = entry(line) else {
                return Err(format!(
                    "{}: a key is ID;KEY or ID;VERSION;KEY, with 32, 48 or 64 hexadecimal digits",
                    place()
                ));
            };
            if keys.insert(name, key).is_some() {
                let (id, version) = name;
                return Err(format!("{}: key {id} version {version} is there twice", place()));
            }
        }
        Ok(KeyFile(keys))
    }
}

/// Id, version and key.
fn entry(line: &str) -> Option<((u32, u32), Vec<u8>)> {
    let parts: Vec<&str> = line.split(';').map(str::trim).collect();
    let (id, version, key) = match parts[..] {
        [id, key] => (id, VERSION, key),
        [id, version, key] => (id, version.parse().ok()?, key),
        _ => return None,
    };
    Some(((id.parse().ok()?, version), bytes(key)?))
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || ![32, 48, 64].contains(&digits.len()) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

impl Keys for KeyFile {
    fn newest(&self, id: u32) -> Option<u32> {
        self.0.range((id, 0)..=(id, u32::MAX)).next_back().map(|((_, version), _)| *version)
    }

    fn key(&self, id: u32, version: u32) -> Option<Vec<u8>> {
        self.0.get(&(id, version)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_that_of_file_key_management() {
        let parse = |text: &str| KeyFile::parse(Path::new("keys"), text);
        let long = "00112233445566778899aabbccddeeff";
        let keys = parse(&format!("# keys\n\n1;{long}\n100; {long}{long} # newer\n"));
        let keys = keys.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(keys.newest(1), Some(1));
        assert_eq!(keys.newest(2), None);
        assert_eq!(keys.key(1, 1).map(|key| (key.len(), key[15])), Some((16, 0xff)));
        assert_eq!(keys.key(100, 1).map(|key| key.len()), Some(32));
        assert_eq!(keys.key(100, 2), None);
        let bad_version = format!("1;x;{long}");
        let bad_parts = format!("1;2;3;{long}");
        for bad in [
            "1",
            "x;00",
            "1;0011",
            "1;zz112233445566778899aabbccddeeff",
            "1;é",
            "1;2",
            &bad_version,
            &bad_parts,
        ] {
            let why = parse(&format!("\n{bad}")).err().unwrap_or_default();
            assert!(why.contains("keys line 2"), "{bad}: {why}");
        }
    }
    #[test]
    fn a_key_may_have_versions() {
        let parse = |text: &str| KeyFile::parse(Path::new("keys"), text);
        let (one, other) = ("00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100");
        let keys = parse(&format!("1;7;{other}\n1; 3 ;{one}\n2;{one}\n"));
        let keys = keys.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((keys.newest(1), keys.newest(2), keys.newest(3)), (Some(7), Some(1), None));
        let first = |id, version| keys.key(id, version).map(|key| key[0]);
        assert_eq!((first(1, 7), first(1, 3), first(2, 1)), (Some(0xff), Some(0), Some(0)));
        assert_eq!((first(1, 1), first(2, 2)), (None, None));
        let twice = parse(&format!("1;{one}\n1;1;{other}")).err().unwrap_or_default();
        assert_eq!(twice, "keys line 2: key 1 version 1 is there twice");
    }
}
