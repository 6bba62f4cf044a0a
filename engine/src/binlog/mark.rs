//! The file beside the binlog that says whose log holds its end, and how far that log had come.

use super::files;
use crate::base::Result;
use crate::os::Os;
use std::path::Path;

const TEXT: &str =
    "The end of this binary log is in the log of the Sluice engine: start the server \
                    with the plugin ha_sluice, which completes it.\n";

/// The first line: `sluice`, the identity of the log in hexadecimal, the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub identity: u64,
    /// The number of the log's state record that was durable when the mark was written. A log that
    /// ends below is an older copy.
    pub sequence: u64,
}

impl Mark {
    /// `None`: there is none. A crash while it was first written leaves less than a line, and
    /// nothing depended on it yet.
    pub fn read(os: &dyn Os, path: &Path) -> Result<Option<Mark>> {
        let bytes = files::read(os, path)?;
        Ok(bytes.and_then(|bytes| Mark::parse(&String::from_utf8_lossy(&bytes))))
    }

    fn parse(text: &str) -> Option<Mark> {
        let (line, _) = text.split_once('\n')?;
        let (identity, sequence) = line.strip_prefix("sluice ")?.split_at_checked(16)?;
        let identity = u64::from_str_radix(identity, 16).ok()?;
        // Without a number: of an older version.
        let sequence = if sequence.is_empty() { "0" } else { sequence.strip_prefix(' ')? };
        Some(Mark { identity, sequence: sequence.parse().ok()? })
    }

    pub fn write(self, os: &dyn Os, path: &Path) -> Result<()> {
        let line = format!("sluice {:016x} {}\n", self.identity, self.sequence);
        files::replace(os, path, (line + TEXT).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sim::SimOs;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let os = SimOs::new(1);
        let path = Path::new("/bin.sluice");
        assert_eq!(Mark::read(&*os, path).unwrap(), None);
        let mark = Mark { identity: 1 << 63 | 5, sequence: 12 };
        mark.write(&*os, path).unwrap();
        assert_eq!(Mark::read(&*os, path).unwrap(), Some(mark));
        let whole = format!("sluice {:016x} 12\n", mark.identity);
        for cut in 0..whole.len() {
            assert_eq!(Mark::parse(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(Mark::parse("sluice 00000000000000ff\n").map(|m| m.sequence), Some(0));
        assert_eq!(Mark::parse("sluice 00000000000000ff-1\n"), None);
    }
}
