//! The keys that a restore will need: the backup says so while they can still be had.

use crate::db::{Client, Counters, Dsn};
use crate::Result;
use sluice_engine::db::Keys;

/// The only version of keys of file_key_management.
const PLAIN: u64 = 1;

/// Tells the user if the server's key has another version than those of file_key_management, and `keys` lack it.
pub fn warn_of_version(dsn: &Dsn, keys: Option<&dyn Keys>) -> Result<()> {
    let mut client = Client::connect(dsn)?;
    let version = number(&client.status()?, "sluice_encryption_key_version");
    let id = number(&client.variables()?, "sluice_encryption_key_id");
    let has = |keys: &dyn Keys| {
        let name = u32::try_from(id).ok().zip(u32::try_from(version).ok());
        name.is_some_and(|(id, version)| keys.key(id, version).is_some())
    };
    if version > PLAIN && !keys.is_some_and(has) {
        eprintln!(
            "sluice: warning: the server's key has id {id} and version {version}. To verify and to restore this \
             backup, --key-file must have a line {id};{version};KEY, and one for each older version that is in \
             use still: keep them with the backup's other keys"
        );
    }
    Ok(())
}

/// 0 where the server has none: encryption is off, or it has no Sluice.
fn number(counters: &Counters, name: &str) -> u64 {
    counters.text(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}
