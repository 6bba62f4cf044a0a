//! The keys of an encrypted directory, from a file as the plugin file_key_management reads it.

use crate::Result;
use clap::Args;
use sluice_engine::db::Keys;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args)]
pub struct KeyArgs {
    /// Keys of an encrypted directory: a file of lines ID;KEY with KEY in hexadecimal digits, as
    /// file_key_management_filename names it (not itself encrypted)
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

/// Its keys have one version, as in file_key_management.
struct KeyFile(HashMap<u32, Vec<u8>>);

const VERSION: u32 = 1;

impl KeyFile {
    fn parse(path: &Path, text: &str) -> Result<KeyFile> {
        let mut keys = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parts = line.split_once(';');
            let key =
                parts.and_then(|(id, key)| Some((id.trim().parse().ok()?, bytes(key.trim())?)));
            let Some((id, key)) = key else {
                let place = format!("{} line {}", path.display(), number + 1);
                return Err(format!(
                    "{place}: a key is ID;KEY with 32, 48 or 64 hexadecimal digits"
                ));
            };
            keys.insert(id, key);
        }
        Ok(KeyFile(keys))
    }
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
        self.0.contains_key(&id).then_some(VERSION)
    }

    fn key(&self, id: u32, version: u32) -> Option<Vec<u8>> {
        self.0.get(&id).filter(|_| version == VERSION).cloned()
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
        for bad in ["1", "x;00", "1;0011", "1;zz112233445566778899aabbccddeeff", "1;é"] {
            let why = parse(&format!("\n{bad}")).err().unwrap_or_default();
            assert!(why.contains("keys line 2"), "{bad}: {why}");
        }
    }
}
