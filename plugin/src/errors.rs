//! From the engine's errors to the server's numbers.

use sluice_engine::base::Error;

pub const HA_ERR_KEY_NOT_FOUND: i32 = 120;
pub const HA_ERR_FOUND_DUPP_KEY: i32 = 121;
pub const HA_ERR_INTERNAL_ERROR: i32 = 122;
pub const HA_ERR_CRASHED: i32 = 126;
pub const HA_ERR_WRONG_COMMAND: i32 = 131;
pub const HA_ERR_RECORD_FILE_FULL: i32 = 135;
pub const HA_ERR_END_OF_FILE: i32 = 137;
pub const HA_ERR_TO_BIG_ROW: i32 = 139;
pub const HA_ERR_LOCK_WAIT_TIMEOUT: i32 = 146;
pub const HA_ERR_LOCK_DEADLOCK: i32 = 149;
pub const HA_ERR_NO_SUCH_TABLE: i32 = 155;
pub const HA_ERR_TABLE_EXIST: i32 = 156;
pub const HA_ERR_TABLE_DEF_CHANGED: i32 = 159;
pub const HA_ERR_RECORD_IS_THE_SAME: i32 = 169;
pub const HA_ERR_ABORTED_BY_USER: i32 = 188;
pub const HA_ERR_DISK_FULL: i32 = 189;
pub const XAER_NOTA: i32 = -4;

pub fn code(error: &Error) -> i32 {
    match error {
        Error::Duplicate => HA_ERR_FOUND_DUPP_KEY,
        Error::LockTimeout | Error::WouldWait => HA_ERR_LOCK_WAIT_TIMEOUT,
        Error::Deadlock => HA_ERR_LOCK_DEADLOCK,
        Error::Interrupted => HA_ERR_ABORTED_BY_USER,
        Error::Full { what: "disk" } => HA_ERR_DISK_FULL,
        Error::Full { .. } => HA_ERR_RECORD_FILE_FULL,
        Error::Corrupt { .. } => HA_ERR_CRASHED,
        Error::TooLarge { .. } => HA_ERR_TO_BIG_ROW,
        Error::TableChanged => HA_ERR_TABLE_DEF_CHANGED,
        Error::NotFound => HA_ERR_NO_SUCH_TABLE,
        Error::Exists => HA_ERR_TABLE_EXIST,
        _ => HA_ERR_INTERNAL_ERROR,
    }
}

/// Does the text say more than the server's own message for the number?
pub fn has_detail(error: &Error) -> bool {
    !matches!(
        error,
        Error::Duplicate
            | Error::LockTimeout
            | Error::WouldWait
            | Error::Deadlock
            | Error::Interrupted
            | Error::NotFound
            | Error::Exists
            | Error::TableChanged
    )
}
