//! Compression of blocks: the codecs of page images and of batches of the log.

use super::{Error, Result};
use std::cell::RefCell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    /// With zstd's level.
    Zstd(i32),
}

// On disk: a number keeps its meaning for ever.
pub const CODEC_RAW: u8 = 0;
pub const CODEC_LZ4: u8 = 1;
pub const CODEC_ZSTD: u8 = 2;

/// Compresses again and again. A zstd context is large (about 200 KiB) and slow to make, and cold where
/// many are used in turn: one in one place of work is enough.
#[derive(Default)]
pub struct Compressor {
    zstd: Option<(i32, zstd::bulk::Compressor<'static>)>,
}

impl Compressor {
    pub const fn new() -> Compressor {
        Compressor { zstd: None }
    }

    /// Appends a form of `bytes` with at most `limit` bytes to `out` and answers its codec; appends
    /// nothing and answers `CODEC_RAW` if there is no such form.
    pub fn compress(
        &mut self,
        how: Compression,
        bytes: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<u8> {
        let front = out.len();
        let (codec, done) = match how {
            Compression::None => (CODEC_RAW, None),
            Compression::Lz4 => {
                out.resize(front + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
                (CODEC_LZ4, lz4_flex::block::compress_into(bytes, &mut out[front..]).ok())
            }
            Compression::Zstd(level) => {
                out.resize(front + zstd::zstd_safe::compress_bound(bytes.len()), 0);
                let zstd = self.zstd(level)?;
                (CODEC_ZSTD, zstd.compress_to_buffer(bytes, &mut out[front..]).ok())
            }
        };
        let done = done.filter(|&n| n <= limit);
        out.truncate(front + done.unwrap_or(0));
        Ok(done.map_or(CODEC_RAW, |_| codec))
    }

    fn zstd(&mut self, level: i32) -> Result<&mut zstd::bulk::Compressor<'static>> {
        let made = match self.zstd.take() {
            Some((made_for, made)) if made_for == level => made,
            _ => zstd::bulk::Compressor::new(level)
                .map_err(|e| Error::io("set up zstd for", "compression", e))?,
        };
        Ok(&mut self.zstd.insert((level, made)).1)
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = const { RefCell::new(Compressor::new()) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        const { RefCell::new(None) };
}

/// [`Compressor::compress`] by the one of this thread: for threads that are few.
pub fn compress(how: Compression, bytes: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<u8> {
    COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(how, bytes, limit, out))
}

/// Restores a compressed form into `out`; answers how many bytes it has. `None`: it is not a form
/// of that codec, or has more bytes than `out`.
pub fn decompress(codec: u8, form: &[u8], out: &mut [u8]) -> Option<usize> {
    match codec {
        CODEC_LZ4 => lz4_flex::block::decompress_into(form, out).ok(),
        CODEC_ZSTD => zstd_decompress(form, out),
        _ => None,
    }
}

/// By the context of this thread, of which about 30 KiB are ever touched.
fn zstd_decompress(form: &[u8], out: &mut [u8]) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|made| {
        if made.is_none() {
            *made = zstd::bulk::Decompressor::new().ok();
        }
        made.as_mut()?.decompress_to_buffer(form, out).ok()
    })
}
