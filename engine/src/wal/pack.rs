//! The packed form of a batch: its records compressed, where that takes fewer blocks of the file, and
//! encrypted if encryption is on. In memory, and for every LSN, the batch stays as it is; the next one follows
//! it in the files.

use super::format::{
    block_up, BatchHeader, Packed, BATCH_HEADER_BYTES, BLOCK, ENCRYPTED_HEAD_BYTES,
};
use super::ring::{Leading, Sealed};
use crate::base::compress::{Compression, Compressor, CODEC_RAW};
use crate::base::Result;
use crate::cipher::Cipher;
use crate::os::AlignedBuf;
use std::sync::Arc;

/// Memory of the flush leader for packing, and how it packs.
pub(super) struct Packer {
    pub how: Compression,
    /// If batches are encrypted.
    cipher: Option<Arc<Cipher>>,
    /// Any session may lead a flush: theirs would be as many as there are connections.
    compressor: Compressor,
    batch: Vec<u8>,
    form: Vec<u8>,
}

impl Packer {
    pub fn new(how: Compression, cipher: Option<Arc<Cipher>>) -> Packer {
        let compressor = Compressor::new();
        Packer { how, cipher, compressor, batch: Vec::new(), form: Vec::new() }
    }

    /// The header of a finished batch at `place`, and its packed form with zeros up to the end of a block;
    /// none if that saves no block, or cannot be made, and the batch is not to be encrypted.
    pub fn pack(
        &mut self,
        leading: &Leading<'_>,
        batch: &Sealed,
        place: u64,
    ) -> Result<(BatchHeader, Option<AlignedBuf>)> {
        let pieces = leading.pieces(batch.start, batch.next());
        let header = pieces.first().and_then(|p| BatchHeader::decode(p.bytes(), place));
        let Some(header) = header else { unreachable!("the batch is finished") };
        let blocks_bytes = batch.next() - batch.start;
        let stays = self.how == Compression::None || blocks_bytes == BLOCK;
        let is_encrypted = self.cipher.is_some();
        if stays && !is_encrypted {
            return Ok((header, None));
        }
        self.batch.clear();
        pieces.iter().for_each(|piece| self.batch.extend_from_slice(piece.bytes()));
        let head_bytes = if is_encrypted { ENCRYPTED_HEAD_BYTES } else { BATCH_HEADER_BYTES };
        let records = &self.batch[head_bytes as usize..header.length as usize];
        self.form.clear();
        let mut codec = CODEC_RAW;
        if !stays {
            let limit = blocks_bytes - BLOCK - head_bytes;
            let packed =
                self.compressor.compress(self.how, records, limit as usize, &mut self.form);
            // An error is one of making a compressor, for want of memory: the batch goes as it is.
            codec = packed.unwrap_or(CODEC_RAW);
        }
        if codec == CODEC_RAW && !is_encrypted {
            return Ok((header, None));
        }
        let form = if codec == CODEC_RAW { records } else { &self.form };
        let bytes = head_bytes + form.len() as u64;
        let header = BatchHeader { packed: Some(Packed { codec, is_encrypted, bytes }), ..header };
        let mut out = AlignedBuf::new(block_up(bytes) as usize);
        out[head_bytes as usize..bytes as usize].copy_from_slice(form);
        let (head, body) = out[..bytes as usize].split_at_mut(BATCH_HEADER_BYTES as usize);
        if let Some(cipher) = &self.cipher {
            cipher.encrypt(&header.tail(), body)?;
        }
        head.copy_from_slice(&header.encode(std::iter::once(&*body)));
        Ok((header, Some(out)))
    }
}
