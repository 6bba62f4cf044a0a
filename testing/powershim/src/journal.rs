//! The journal that the shim writes and the harness reads: what the server did to its files and
//! what it synced, in order. Both sides compile this file.
//!
//! A header of `HEADER_BYTES` with words of 8 bytes (native order; the file never leaves the
//! machine), then entries. An entry is `ENTRY_WORDS` words and a payload, padded to 8 bytes.
//! `WORD_END` moves over an entry when it is complete, and before what it describes is done: a
//! process that is killed at any moment leaves a journal of whole entries, of which the last ones
//! may describe something that has not happened.

pub const MAGIC: u64 = 0x3170_6d68_7372_7770;
pub const HEADER_BYTES: u64 = 4096;
/// Sparse; a server that writes more than this between two cuts is killed with a complaint.
pub const MAX_BYTES: u64 = 16 << 30;

/// Words of the header.
pub const WORD_MAGIC: usize = 0;
/// Where the next entry goes.
pub const WORD_END: usize = 1;
/// Calls seen since the server started.
pub const WORD_CALLS: usize = 2;
/// The call that the process shall not survive; 0 is none. Written by the harness.
pub const WORD_CUT_AT: usize = 3;
/// Where in that call: one of the `PHASE_` values.
pub const WORD_CUT_PHASE: usize = 4;

/// Before anything is done; noted and not done; done (a sync: and not yet noted as done); at the
/// return to the caller.
pub const PHASE_BEFORE: u64 = 0;
pub const PHASE_NOTED: u64 = 1;
pub const PHASE_DONE: u64 = 2;
pub const PHASE_RETURN: u64 = 3;

pub const ENTRY_WORDS: usize = 8;
pub const ENTRY_BYTES: u64 = 8 * ENTRY_WORDS as u64;

/// Bytes of a file, its length, or both: `payload` is what `offset..offset + len` held before
/// (zeros where it is shorter); the length goes from `old_len` to `new_len`.
pub const KIND_CHANGE: u64 = 1;
/// All changes of `offset..offset + len` noted before `mark`, and the length, are durable.
/// `old_len` is 1 when the file's metadata is as well (fsync).
pub const KIND_SYNCED: u64 = 2;
/// Everything noted before `mark` is durable (sync, syncfs).
pub const KIND_SYNCED_ALL: u64 = 3;
/// Names. The payload is a path, or two with a NUL between them.
pub const KIND_CREATE: u64 = 10;
pub const KIND_UNLINK: u64 = 11;
/// `offset` is the file that had the new name before, or 0; `len` the inode that is renamed.
pub const KIND_RENAME: u64 = 12;
pub const KIND_LINK: u64 = 13;
pub const KIND_MKDIR: u64 = 14;
pub const KIND_RMDIR: u64 = 15;
/// All names in the directory noted before `mark` are durable.
pub const KIND_DIR_SYNCED: u64 = 16;

/// The first words of an entry, in their order; the last word is the payload's length.
#[derive(Clone, Copy, Default, Debug)]
pub struct Entry {
    pub kind: u64,
    pub file: u64,
    pub offset: u64,
    pub len: u64,
    pub old_len: u64,
    pub new_len: u64,
    pub mark: u64,
    pub payload_bytes: u64,
}

impl Entry {
    pub fn words(&self) -> [u64; ENTRY_WORDS] {
        [
            self.kind,
            self.file,
            self.offset,
            self.len,
            self.old_len,
            self.new_len,
            self.mark,
            self.payload_bytes,
        ]
    }

    /// With the payload and its padding.
    pub fn total_bytes(&self) -> u64 {
        ENTRY_BYTES + self.payload_bytes.next_multiple_of(8)
    }
}
