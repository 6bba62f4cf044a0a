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

/// Appends a form of `bytes` with at most `limit` bytes to `out` and answers its codec; appends
/// nothing and answers `CODEC_RAW` if there is no such form.
pub fn compress(how: Compression, bytes: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<u8> {
    let front = out.len();
    let (codec, done) = match how {
        Compression::None => (CODEC_RAW, None),
        Compression::Lz4 => {
            out.resize(front + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
            (CODEC_LZ4, lz4_flex::block::compress_into(bytes, &mut out[front..]).ok())
        }
        Compression::Zstd(level) => {
            out.resize(front + zstd::zstd_safe::compress_bound(bytes.len()), 0);
            (CODEC_ZSTD, zstd_compress(level, bytes, &mut out[front..])?)
        }
    };
    let done = done.filter(|&n| n <= limit);
    out.truncate(front + done.unwrap_or(0));
    Ok(done.map_or(CODEC_RAW, |_| codec))
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

struct ZstdContexts {
    compressor: Option<(i32, zstd::bulk::Compressor<'static>)>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

thread_local! {
    /// Contexts are large and slow to make, so each thread keeps its own.
    static ZSTD: RefCell<ZstdContexts> =
        const { RefCell::new(ZstdContexts { compressor: None, decompressor: None }) };
}

fn zstd_compress(level: i32, bytes: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
    ZSTD.with_borrow_mut(|contexts| {
        if contexts.compressor.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            let made = zstd::bulk::Compressor::new(level)
                .map_err(|e| Error::io("set up zstd for", "compression", e))?;
            contexts.compressor = Some((level, made));
        }
        let Some((_, compressor)) = &mut contexts.compressor else { return Ok(None) };
        Ok(compressor.compress_to_buffer(bytes, out).ok())
    })
}

fn zstd_decompress(form: &[u8], out: &mut [u8]) -> Option<usize> {
    ZSTD.with_borrow_mut(|contexts| {
        if contexts.decompressor.is_none() {
            contexts.decompressor = zstd::bulk::Decompressor::new().ok();
        }
        contexts.decompressor.as_mut()?.decompress_to_buffer(form, out).ok()
    })
}
