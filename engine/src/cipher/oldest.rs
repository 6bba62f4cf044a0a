//! Which key is the oldest that is needed, as an engine sees it that writes under one of them.

use super::KeyName;

/// Of some units together; a greater one is newer, and the least of several is that of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oldest {
    /// Nobody has looked at all of them.
    Unknown,
    /// One is not as this engine writes: plain and not encrypted, or encrypted and not plain, or under
    /// another key.
    Foreign,
    /// All are as this engine writes: under this version of its key or a newer one; 0 if it writes plain.
    Version(u32),
    /// There are none.
    #[default]
    None,
}

impl Oldest {
    /// Of one unit, under a key or plain, for an engine that writes under the key `under` or plain.
    pub fn of(unit: Option<KeyName>, under: Option<u32>) -> Oldest {
        match (unit, under) {
            (None, None) => Oldest::Version(0),
            (Some(name), Some(id)) if name.id == id => Oldest::Version(name.version),
            _ => Oldest::Foreign,
        }
    }

    /// The least that stays as it is if units are rewritten that are `age` or more versions behind `newest`.
    pub fn bearable(newest: u32, age: u32) -> Oldest {
        Oldest::Version(newest.saturating_sub(age.saturating_sub(1)))
    }

    /// The version; 0 if there is none to be named.
    pub fn version(self) -> u32 {
        match self {
            Oldest::Version(version) => version,
            _ => 0,
        }
    }
}
