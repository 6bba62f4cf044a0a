//! The part of a binlog file after the position up to which the log holds it.
//!
//! The hook makes each commit group durable in the log before the server can write the next one:
//! after a crash at most one group lies there. More means that the log is an older copy. The
//! server tells groups apart in its GTID events: transactions of one group have one commit id, a
//! transaction alone has none.

use super::events::{u32_at, u64_at, EVENT_BYTES_MIN, GTID, ROTATE, STOP, XID};
use crate::base::Result;
use crate::os::File;

const HEADER_BYTES: usize = 19;
/// A GTID event: header, sequence number, domain, flags, commit id.
const GTID_BYTES: usize = HEADER_BYTES + 8 + 4 + 1 + 8;
const FLAGS_AT: usize = HEADER_BYTES + 12;
const HAS_COMMIT_ID: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    pub bytes: u64,
    /// Commit groups that begin there; 0 if the file is encrypted.
    pub groups: u64,
    pub xids: Vec<u64>,
    /// The server went on in another file, or was shut down.
    pub is_closed: bool,
}

impl Behind {
    /// Follows the events until one is not whole.
    pub fn read(file: &dyn File, end: u64, is_encrypted: bool) -> Result<Behind> {
        let length = file.len()?;
        let mut found = Behind { bytes: length.saturating_sub(end), ..Behind::default() };
        let (mut at, mut last_id) = (end, None);
        while !is_encrypted && at + HEADER_BYTES as u64 <= length {
            let mut head = [0; GTID_BYTES];
            let have = GTID_BYTES.min((length - at) as usize);
            file.read_at(&mut head[..have], at)?;
            let bytes = u64::from(u32_at(&head, 9));
            if bytes < u64::from(EVENT_BYTES_MIN) || at + bytes > length {
                break;
            }
            match head[4] {
                GTID => {
                    let has_id = head[FLAGS_AT] & HAS_COMMIT_ID != 0;
                    let id = has_id.then(|| u64_at(&head, FLAGS_AT + 1));
                    found.groups += u64::from(id.is_none() || id != last_id);
                    last_id = id;
                }
                XID => found.xids.push(u64_at(&head, HEADER_BYTES)),
                STOP | ROTATE => found.is_closed = true,
                _ => {}
            }
            at += bytes;
        }
        Ok(found)
    }
}
