//! The packed form of a batch: its records compressed, where that takes fewer blocks of the file. In
//! memory, and for every LSN, the batch stays as it is: the blocks that it saves are skipped.

use super::format::{block_up, BatchHeader, Packed, BATCH_HEADER_BYTES, BLOCK};
use super::ring::{Leading, Sealed};
use crate::base::compress::{compress, Compression, CODEC_RAW};
use crate::os::AlignedBuf;

/// Memory of the flush leader for packing, and how it packs.
pub(super) struct Packer {
    pub how: Compression,
    batch: Vec<u8>,
    form: Vec<u8>,
}

impl Packer {
    pub fn new(how: Compression) -> Packer {
        Packer { how, batch: Vec::new(), form: Vec::new() }
    }

    /// The header of a finished batch, and its packed form with zeros up to the end of a block; none if
    /// that saves no block, or cannot be made. A batch that crosses a segment's boundary stays plain, so no
    /// packed batch crosses one.
    pub fn pack(
        &mut self,
        leading: &Leading<'_>,
        batch: &Sealed,
    ) -> (BatchHeader, Option<AlignedBuf>) {
        let pieces = leading.pieces(batch.start, batch.next());
        let header = pieces.first().and_then(|p| BatchHeader::decode(p.bytes(), batch.start));
        let Some(header) = header else { unreachable!("the batch is finished") };
        let blocks_bytes = batch.next() - batch.start;
        if self.how == Compression::None || blocks_bytes == BLOCK || leading.crosses_segment(batch)
        {
            return (header, None);
        }
        self.batch.clear();
        pieces.iter().for_each(|piece| self.batch.extend_from_slice(piece.bytes()));
        let records = &self.batch[BATCH_HEADER_BYTES as usize..header.length as usize];
        let limit = blocks_bytes - BLOCK - BATCH_HEADER_BYTES;
        self.form.clear();
        // An error is one of making a compressor, for want of memory: the batch goes as it is.
        let codec =
            compress(self.how, records, limit as usize, &mut self.form).unwrap_or(CODEC_RAW);
        if codec == CODEC_RAW {
            return (header, None);
        }
        let bytes = BATCH_HEADER_BYTES + self.form.len() as u64;
        let header = BatchHeader { packed: Some(Packed { codec, bytes }), ..header };
        let head = header.encode(std::iter::once(&self.form[..]));
        let mut out = AlignedBuf::new(block_up(bytes) as usize);
        out[..head.len()].copy_from_slice(&head);
        out[head.len()..bytes as usize].copy_from_slice(&self.form);
        (header, Some(out))
    }
}
