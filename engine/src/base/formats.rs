//! The formats of everything on disk: which versions each release writes, and which are read.
//!
//! A format is a set of versions. docs/format.md has the promise about them; testing/formats keeps a data
//! directory of each.
//!
//! Invariants:
//! 1. A release looks at the version of the superblock and at that of the log's control file before it
//!    takes anything from files. Each format raises both, whatever else it changes: so nothing inside is
//!    of a version that the release does not know (rules M20).
//! 2. A start writes the control file, in the newest format, before it appends to the log; the
//!    superblock follows with the first checkpoint. From then on older releases refuse the files.
//! 3. A directory is of [`ENCRYPTED`] from the moment on when something in it may be encrypted, and of
//!    [`ENCRYPTED_TABLES`] from before a table is made that must be, until none is left. That format raises
//!    the superblock only, so what older releases do not know comes after a checkpoint.
//! 4. The entry of a release never changes. A new format is a new entry, and the readers of the
//!    entries from [`OLDEST_READ`] on stay.

use super::error::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;

/// Three numbers of a release of Sluice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u8, pub u8, pub u8);

impl Release {
    pub const fn to_u32(self) -> u32 {
        (self.0 as u32) << 16 | (self.1 as u32) << 8 | self.2 as u32
    }

    /// `None` for 0: the file does not say it.
    fn from_u32(number: u32) -> Option<Release> {
        let [_, major, minor, patch] = number.to_be_bytes();
        (number != 0).then_some(Release(major, minor, patch))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The versions that a release writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The first release that writes it and that can read it.
    pub since: Release,
    /// Of the superblock, the page map and the records in `pages`.
    pub store: u32,
    /// Of the log's control file and segments, batches and records.
    pub log: u32,
    pub checkpoint_note: u8,
    pub binlog_state: u8,
    pub catalog: u8,
    pub statistics: u8,
    pub node: u8,
    /// The highest form of a payload in an index of a table.
    pub payload: u8,
    pub row: u8,
    /// Of the columns and keys of a table.
    pub definition: u8,
}

/// The formats of directories without encryption: format n has place n - 1.
pub const FORMATS: [Format; 2] = [
    Format {
        since: Release(0, 1, 0),
        store: 2,
        log: 1,
        checkpoint_note: 3,
        binlog_state: 3,
        catalog: 2,
        statistics: 1,
        node: 1,
        payload: 1,
        row: 1,
        definition: 2,
    },
    // Parts of a long row in the leaf. Deltas in the log, batches without gaps, and how far the purge is.
    Format {
        since: Release(0, 2, 0),
        store: 3,
        log: 8,
        checkpoint_note: 3,
        binlog_state: 3,
        catalog: 2,
        statistics: 1,
        node: 1,
        payload: 2,
        row: 1,
        definition: 2,
    },
];

/// Format 3: that of directories which are encrypted, or were once. All else is as in [`CURRENT`].
pub const ENCRYPTED: Format = Format { store: 4, log: 9, ..CURRENT };
/// Versions of the log of an encrypted directory from before release 0.2.0 was made. Those of others were 2, 4 and 6.
const ENCRYPTED_BEFORE: [u32; 3] = [3, 5, 7];

/// Format 4: that of directories in which a table was made to be encrypted. The version of the log stays: before
/// anything tells of such a table, a checkpoint has written this superblock.
pub const ENCRYPTED_TABLES: Format = Format { store: 5, catalog: 3, ..ENCRYPTED };

/// Place of the oldest format that is read.
const OLDEST_READ: usize = 0;

/// The format that this release writes without encryption.
pub const CURRENT: Format = FORMATS[FORMATS.len() - 1];
/// Versions of the superblock that are read.
pub const STORES: RangeInclusive<u32> = FORMATS[OLDEST_READ].store..=ENCRYPTED_TABLES.store;
/// Versions of the log's files that are read.
pub const LOGS: RangeInclusive<u32> = FORMATS[OLDEST_READ].log..=ENCRYPTED_TABLES.log;

/// Whether a log with this version in its control file is of an encrypted directory.
pub fn is_encrypted_log(version: u32) -> bool {
    version == ENCRYPTED.log || ENCRYPTED_BEFORE.contains(&version)
}

/// Number and first release of the format whose superblocks have this version.
pub fn of_store(version: u32) -> Option<(usize, Release)> {
    let mut all = FORMATS.iter().chain([&ENCRYPTED, &ENCRYPTED_TABLES]).zip(1..);
    all.find(|(format, _)| format.store == version).map(|(format, number)| (number, format.since))
}

/// Number and first release of the format that this release writes.
pub fn newest() -> (usize, Release) {
    (FORMATS.len(), CURRENT.since)
}

/// Refuses a sound file of a version that is not read. `since` is what such a file says of its format.
pub fn check(what: &str, version: u32, since: u32, read: &RangeInclusive<u32>) -> Result<()> {
    if read.contains(&version) {
        return Ok(());
    }
    let this = env!("CARGO_PKG_VERSION");
    let (oldest, newest) = (read.start(), read.end());
    let why = if version > *newest {
        let needed = Release::from_u32(since);
        let needed = needed.map_or("the release that made it".into(), |r| format!("release {r}"));
        format!(
            "{what} was made by a newer Sluice: format version {version}, and {this} reads up to \
             {newest}. Start {needed} or a later one"
        )
    } else {
        format!(
            "{what} was made by an older Sluice: format version {version}, and {this} reads from \
             {oldest} on. Start an older release that still reads it, then this one"
        )
    };
    Err(Error::Refused(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a list of formats.
    fn faults(formats: &[Format]) -> Vec<String> {
        let pairs = formats.iter().zip(formats.iter().skip(1));
        let raises = |old: &Format, new: &Format| {
            old.since < new.since && old.store < new.store && old.log < new.log
        };
        let bad = pairs.filter(|(old, new)| !raises(old, new));
        bad.map(|(_, new)| format!("{} does not raise both outer versions", new.since)).collect()
    }

    #[test]
    fn each_format_raises_the_superblock_and_the_log() {
        assert_eq!(faults(&FORMATS), Vec::<String>::new());
        const { assert!(ENCRYPTED.store > CURRENT.store && ENCRYPTED.log > CURRENT.log) };
        const { assert!(ENCRYPTED_TABLES.store > ENCRYPTED.store) };
        let next = Format { since: Release(0, 3, 0), row: CURRENT.row + 1, ..CURRENT };
        assert_eq!(faults(&[CURRENT, next]).len(), 1);
        let store = Format { store: CURRENT.store + 1, ..next };
        assert_eq!(faults(&[CURRENT, store]).len(), 1);
        assert_eq!(faults(&[CURRENT, Format { log: CURRENT.log + 1, ..store }]).len(), 0);
    }

    #[test]
    fn a_superblock_names_its_format() {
        assert_eq!(of_store(CURRENT.store), Some(newest()));
        assert_eq!(of_store(2), Some((1, Release(0, 1, 0))));
        assert_eq!(of_store(ENCRYPTED.store), Some((FORMATS.len() + 1, CURRENT.since)));
        let last = (FORMATS.len() + 2, CURRENT.since);
        assert_eq!(of_store(ENCRYPTED_TABLES.store), Some(last));
        assert_eq!(of_store(ENCRYPTED_TABLES.store + 1), None);
    }

    #[test]
    fn no_release_writes_a_format_of_a_later_one() {
        let this = env!("CARGO_PKG_VERSION").split('.').map(|n| n.parse::<u8>().unwrap());
        let this: Vec<u8> = this.collect();
        assert!(CURRENT.since <= Release(this[0], this[1], this[2]));
    }

    #[test]
    fn a_refusal_says_which_release_is_needed() {
        let why = |version, since| check("file", version, since, &(3..=5)).unwrap_err().to_string();
        for version in 3..=5 {
            check("file", version, 0, &(3..=5)).unwrap();
        }
        let since = Release(1, 20, 3);
        assert_eq!(Release::from_u32(since.to_u32()), Some(since));
        let newer = why(6, since.to_u32());
        assert!(newer.starts_with("file was made by a newer Sluice: format version 6"), "{newer}");
        assert!(newer.ends_with("Start release 1.20.3 or a later one"), "{newer}");
        assert!(why(6, 0).ends_with("Start the release that made it or a later one"));
        assert!(why(2, 0).contains("made by an older Sluice: format version 2"));
    }
}
