//! Files that are read in whole blocks.

use crate::base::{Error, Result, BLOCK_BYTES};
use crate::os::{AlignedBuf, File};

/// These bytes of the file; a file that ends before them is damaged.
pub(super) fn read_range(file: &dyn File, at: u64, len: u64) -> Result<Vec<u8>> {
    let have = file.len()?;
    let Some(end) = at.checked_add(len).filter(|&end| end <= have) else {
        return Err(Error::corrupt("file is too short", file.path().display().to_string()));
    };
    let block = BLOCK_BYTES as u64;
    let from = at / block * block;
    let mut buffer = AlignedBuf::new((end - from) as usize);
    let whole = (end.next_multiple_of(block) - from) as usize;
    file.read_at(&mut buffer[..whole], from)?;
    Ok(buffer[(at - from) as usize..(end - from) as usize].to_vec())
}
