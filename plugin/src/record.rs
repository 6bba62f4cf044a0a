//! Reading the server's record buffer.
//!
//! Safety argument for the one `unsafe` block here: a BLOB column of a record holds a length and
//! an address. The server keeps that address valid for as long as it hands us the record
//! (handler API), and [`Record`] lives no longer than the call that was given the record. A
//! `Record` can only be made by `unsafe fn new`, whose caller vouches for that.

use crate::shape::{Column, Kind};

#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// # Safety
    /// Every non-null BLOB column in `bytes` must hold an address of as many readable bytes as
    /// its length says, for all of `'a`.
    pub unsafe fn new(bytes: &'a [u8]) -> Self {
        Record { bytes }
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_null(&self, column: &Column) -> bool {
        column.null.is_some_and(|(at, bit)| self.bytes[at] & bit != 0)
    }

    /// Are the bytes in the record the same? A BLOB's value is not looked at.
    pub fn has_same_bytes(&self, other: &Record<'_>, column: &Column) -> bool {
        let place = column.place();
        self.is_null(column) == other.is_null(column)
            && self.bytes[place.clone()] == other.bytes[place]
    }

    /// The value without padding-independent framing: fixed columns as they stand, variable
    /// ones without their length.
    pub fn value(&self, column: &Column) -> &'a [u8] {
        let at = column.offset;
        match column.kind {
            Kind::Varchar => {
                let start = at + column.length_bytes;
                let n = length_at(self.bytes, at, column.length_bytes).min(column.length);
                &self.bytes[start..start + n]
            }
            Kind::Blob => self.blob(column),
            _ => &self.bytes[at..at + column.length],
        }
    }

    fn blob(&self, column: &Column) -> &'a [u8] {
        let n = length_at(self.bytes, column.offset, column.length_bytes);
        let at = column.offset + column.length_bytes;
        let address = usize::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"));
        if n == 0 || address == 0 {
            return &[];
        }
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts(address as *const u8, n) }
    }
}

/// A little-endian length of 1 to 4 bytes.
pub fn length_at(bytes: &[u8], at: usize, n: usize) -> usize {
    bytes[at..at + n].iter().rev().fold(0, |v, &b| v << 8 | usize::from(b))
}

/// As many bytes of it as `to` has.
pub fn put_length(n: usize, to: &mut [u8]) {
    to.copy_from_slice(&n.to_le_bytes()[..to.len()]);
}

/// Puts a variable value in its place. A BLOB gets the address of `value`, which the caller
/// keeps alive as long as the server may look at the record.
pub fn put_variable(column: &Column, value: &[u8], record: &mut [u8]) {
    let at = column.offset + column.length_bytes;
    put_length(value.len(), &mut record[column.offset..at]);
    if column.kind == Kind::Blob {
        record[at..at + 8].copy_from_slice(&(value.as_ptr() as usize).to_le_bytes());
    } else {
        record[at..at + value.len()].copy_from_slice(value);
    }
}
