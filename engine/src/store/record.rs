//! A page image as it lies in the pages file, and its compression.
//!
//! ```text
//! byte 0       kind: 0 padding to the next block, 1 image, 2 encrypted image (others are left for deltas)
//! byte 1       codec: 0 raw, 1 LZ4 block, 2 zstd frame
//! byte 2..4    payload bytes
//! byte 4..8    CRC-32C of all other bytes of the record, seeded with the store's identity
//! byte 8..16   page id
//! byte 16..24  page LSN
//! byte 24..28  tree id
//! byte 28..    payload; of kind 2 an envelope (`cipher`) and the encrypted payload
//! ```
//! Records are packed without alignment; all integers are little-endian.

use super::entry::{MapEntry, HEADER_BYTES, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX};
use super::{Compression, PageWrite};
use crate::base::checksum::checksum;
use crate::base::codec::Reader;
use crate::base::compress::{compress, decompress, CODEC_LZ4, CODEC_RAW, CODEC_ZSTD};
use crate::base::{Error, Lsn, PageId, Result, TreeId, PAGE_BYTES};
use crate::cipher::{self, Cipher, KeyName, ENVELOPE_BYTES};
use crate::os::planted::{self, Bug};
use std::borrow::Cow;

pub const KIND_IMAGE: u8 = 1;
const KIND_ENCRYPTED: u8 = 2;

/// A compressed form must save at least this much, else reading it costs more than it saves.
const SAVING_BYTES_MIN: usize = PAGE_BYTES / 16;

// The map entry and the header both hold the length in 16 bits.
const _: () = assert!(RECORD_BYTES_MAX <= u16::MAX as usize);

/// A record ready to be packed.
pub struct Packed {
    pub page: PageId,
    pub tree: TreeId,
    pub lsn: Lsn,
    pub bytes: Vec<u8>,
}

impl Packed {
    /// The map entry of this record once it lies at `place`.
    pub fn entry_at(&self, place: u64) -> MapEntry {
        let check = &self.bytes[4..8];
        let check = u32::from_le_bytes([check[0], check[1], check[2], check[3]]);
        MapEntry::new(place, self.bytes.len(), self.lsn, self.tree, check)
    }

    /// The key that it is encrypted under.
    pub fn key(&self) -> Option<KeyName> {
        key_of(&self.bytes)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Header {
    is_encrypted: bool,
    codec: u8,
    pub checksum: u32,
    pub page: PageId,
    pub lsn: Lsn,
    pub tree: TreeId,
    pub record_bytes: usize,
}

/// Why a verified record gives no page.
#[derive(Debug)]
pub enum NoPage {
    Damaged(&'static str),
    /// It is encrypted, and its key is not there.
    Locked(Error),
}

impl From<&'static str> for NoPage {
    fn from(why: &'static str) -> NoPage {
        NoPage::Damaged(why)
    }
}

/// Compresses, encrypts and frames one page; no lock is needed.
pub fn pack(seed: u32, write: &PageWrite<'_>, cipher: Option<&Cipher>) -> Result<Packed> {
    assert_eq!(write.bytes.len(), PAGE_BYTES);
    let forgets = planted::is(Bug::ImageNotEncrypted);
    let encrypting = cipher.filter(|cipher| cipher.encrypts() && !forgets);
    let mut bytes = vec![0; HEADER_BYTES + encrypting.map_or(0, |_| ENVELOPE_BYTES)];
    let codec = pack_page(write.compression, write.bytes, &mut bytes)?;
    let payload_bytes = bytes.len() - HEADER_BYTES;
    assert!(payload_bytes > 0 && payload_bytes <= PAYLOAD_BYTES_MAX);
    bytes[0] = if encrypting.is_some() { KIND_ENCRYPTED } else { KIND_IMAGE };
    bytes[1] = codec;
    bytes[2..4].copy_from_slice(&(payload_bytes as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&write.page.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&write.lsn.0.to_le_bytes());
    bytes[24..28].copy_from_slice(&write.tree.0.to_le_bytes());
    if let Some(cipher) = encrypting {
        cipher.encrypt(&context_of(&bytes), &mut bytes[HEADER_BYTES..])?;
    }
    let check = check_of(seed, &bytes);
    bytes[4..8].copy_from_slice(&check.to_le_bytes());
    Ok(Packed { page: write.page, tree: write.tree, lsn: write.lsn, bytes })
}

fn check_of(seed: u32, record: &[u8]) -> u32 {
    checksum(checksum(seed, &record[..4]), &record[8..])
}

/// The header without its check, which is over the encrypted bytes.
fn context_of(record: &[u8]) -> [u8; HEADER_BYTES - 4] {
    let mut context = [0; HEADER_BYTES - 4];
    context[..4].copy_from_slice(&record[..4]);
    context[4..].copy_from_slice(&record[8..HEADER_BYTES]);
    context
}

/// Reads a header at the front of `bytes`; `Err` says why it cannot be one.
pub fn header(bytes: &[u8]) -> std::result::Result<Header, &'static str> {
    let fail = |_| "record header is cut off";
    let mut reader = Reader::new(bytes, "record header");
    let kind = reader.u8().map_err(fail)?;
    if kind != KIND_IMAGE && kind != KIND_ENCRYPTED {
        return Err("record kind is unknown");
    }
    let codec = reader.u8().map_err(fail)?;
    let payload_bytes = usize::from(reader.u16().map_err(fail)?);
    if payload_bytes == 0 || payload_bytes > PAYLOAD_BYTES_MAX {
        return Err("record length is out of range");
    }
    Ok(Header {
        is_encrypted: kind == KIND_ENCRYPTED,
        codec,
        checksum: reader.u32().map_err(fail)?,
        page: PageId(reader.u64().map_err(fail)?),
        lsn: Lsn(reader.u64().map_err(fail)?),
        tree: TreeId(reader.u32().map_err(fail)?),
        record_bytes: HEADER_BYTES + payload_bytes,
    })
}

/// Checks that `bytes` begins with a whole, undamaged record.
pub fn verify(seed: u32, bytes: &[u8]) -> std::result::Result<Header, &'static str> {
    let head = header(bytes)?;
    let Some(record) = bytes.get(..head.record_bytes) else {
        return Err("record is cut off");
    };
    if check_of(seed, record) != head.checksum {
        return Err("record checksum is wrong");
    }
    Ok(head)
}

/// Restores the page of the verified record `bytes` into `out`. An encrypted record is opened where it is.
pub fn unpack(
    head: &Header,
    bytes: &mut [u8],
    out: &mut [u8],
    cipher: Option<&Cipher>,
) -> std::result::Result<(), NoPage> {
    assert_eq!(out.len(), PAGE_BYTES);
    if bytes.len() < head.record_bytes {
        return Err("record is cut off".into());
    }
    let context = context_of(bytes);
    let payload = &mut bytes[HEADER_BYTES..head.record_bytes];
    let payload = match head.is_encrypted {
        true => cipher::decrypt_in_place(cipher, &context, payload).map_err(NoPage::Locked)?,
        false => &*payload,
    };
    let done = match head.codec {
        CODEC_RAW if payload.len() == PAGE_BYTES => {
            out.copy_from_slice(payload);
            Some(PAGE_BYTES)
        }
        CODEC_LZ4 | CODEC_ZSTD => decompress(head.codec, payload, out),
        _ => return Err("record codec is unknown".into()),
    };
    if done == Some(PAGE_BYTES) {
        Ok(())
    } else {
        Err("page does not decompress".into())
    }
}

/// The key that a whole record is encrypted under; `None`: it is plain.
pub fn key_of(record: &[u8]) -> Option<KeyName> {
    let (head, payload) = record.split_at_checked(HEADER_BYTES)?;
    let envelope = payload.first_chunk()?;
    (head[0] == KIND_ENCRYPTED).then(|| cipher::name_of(envelope))
}

/// A verified record as it is to be: under the newest key, or plain; `None` if it is so already.
pub fn renewed(
    seed: u32,
    record: &[u8],
    cipher: &Cipher,
    encrypts: bool,
) -> Result<Option<Vec<u8>>> {
    let key = key_of(record);
    if key == cipher.newest().filter(|_| encrypts) {
        return Ok(None);
    }
    let (head, payload) = record.split_at(HEADER_BYTES);
    let payload = match key {
        Some(_) => Cow::from(cipher.decrypt(&context_of(record), payload)?),
        None => Cow::from(payload),
    };
    let mut bytes = head.to_vec();
    bytes.resize(HEADER_BYTES + if encrypts { ENVELOPE_BYTES } else { 0 }, 0);
    bytes.extend_from_slice(&payload);
    bytes[0] = if encrypts { KIND_ENCRYPTED } else { KIND_IMAGE };
    let payload_bytes = (bytes.len() - HEADER_BYTES) as u16;
    bytes[2..4].copy_from_slice(&payload_bytes.to_le_bytes());
    if encrypts {
        cipher.encrypt(&context_of(&bytes), &mut bytes[HEADER_BYTES..])?;
    }
    let check = check_of(seed, &bytes);
    bytes[4..8].copy_from_slice(&check.to_le_bytes());
    Ok(Some(bytes))
}

/// Appends the payload to `bytes` and answers its codec.
fn pack_page(how: Compression, page: &[u8], bytes: &mut Vec<u8>) -> Result<u8> {
    let codec = compress(how, page, PAGE_BYTES - SAVING_BYTES_MIN, bytes)?;
    if codec == CODEC_RAW {
        bytes.extend_from_slice(page);
    }
    Ok(codec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::FixedKeys;
    use std::sync::atomic::Ordering;
    use std::sync::Arc;

    fn write(bytes: &[u8], compression: Compression) -> PageWrite<'_> {
        PageWrite { page: PageId(7), tree: TreeId(3), lsn: Lsn(99), bytes, compression }
    }

    #[test]
    fn every_codec_restores_the_page() {
        let soft: Vec<u8> = (0..PAGE_BYTES).map(|i| (i / 64) as u8).collect();
        let mut rng = crate::os::sim::SimRng::new(5);
        let hard: Vec<u8> = (0..PAGE_BYTES).map(|_| rng.next_u64() as u8).collect();
        for page in [&soft, &hard] {
            for how in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
                let packed = pack(1, &write(page, how), None).unwrap();
                let mut out = vec![0; PAGE_BYTES];
                let head = verify(1, &packed.bytes).unwrap();
                unpack(&head, &mut packed.bytes.clone(), &mut out, None).unwrap();
                assert_eq!(&out, page);
                assert_eq!((head.page, head.tree, head.lsn), (PageId(7), TreeId(3), Lsn(99)));
                assert!(verify(2, &packed.bytes).is_err(), "another store's record");
                assert!(page != &soft || how == Compression::None || head.record_bytes < 2000);
            }
        }
    }

    #[test]
    fn an_encrypted_page_has_its_check_without_a_key_and_opens_with_it() {
        let keys = FixedKeys::new(1);
        let os = crate::os::sim::SimOs::new(1);
        let cipher = Cipher::new(&*os, Arc::clone(&keys) as _, Some(1)).unwrap();
        let soft: Vec<u8> = (0..PAGE_BYTES).map(|i| (i / 64) as u8).collect();
        let mut rng = crate::os::sim::SimRng::new(5);
        let hard: Vec<u8> = (0..PAGE_BYTES).map(|_| rng.next_u64() as u8).collect();
        for page in [&soft, &hard] {
            for how in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
                let plain = pack(1, &write(page, how), None).unwrap();
                let packed = pack(1, &write(page, how), Some(&cipher)).unwrap();
                assert_eq!(packed.bytes.len(), plain.bytes.len() + ENVELOPE_BYTES);
                assert!(packed.bytes.len() <= RECORD_BYTES_MAX);
                let head = verify(1, &packed.bytes).unwrap();
                assert_eq!((head.page, head.tree, head.lsn), (PageId(7), TreeId(3), Lsn(99)));
                let mut out = vec![0; PAGE_BYTES];
                let locked = unpack(&head, &mut packed.bytes.clone(), &mut out, None);
                assert!(matches!(locked, Err(NoPage::Locked(Error::Refused(_)))));
                unpack(&head, &mut packed.bytes.clone(), &mut out, Some(&cipher)).unwrap();
                assert_eq!(&out, page);
                let part = &page[..64];
                assert!(!packed.bytes.windows(64).any(|w| w == part), "it is to be read");
                keys.newest.store(2, Ordering::Relaxed);
                cipher.refresh();
                for old in [&plain, &packed] {
                    let new = renewed(1, &old.bytes, &cipher, true).unwrap().unwrap();
                    assert_eq!(new.len(), packed.bytes.len());
                    let envelope = new[HEADER_BYTES..].first_chunk().unwrap();
                    assert_eq!(cipher::name_of(envelope).version, 2);
                    let head = verify(1, &new).unwrap();
                    assert_eq!((head.page, head.lsn), (PageId(7), Lsn(99)));
                    unpack(&head, &mut new.clone(), &mut out, Some(&cipher)).unwrap();
                    assert_eq!(&out, page);
                    assert_eq!(renewed(1, &new, &cipher, true).unwrap(), None);
                    let opened = renewed(1, &new, &cipher, false).unwrap().unwrap();
                    assert_eq!(opened, plain.bytes, "a tree that is plain");
                    assert_eq!(renewed(1, &opened, &cipher, false).unwrap(), None);
                }
                keys.newest.store(1, Ordering::Relaxed);
                cipher.refresh();
            }
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut rng = crate::os::sim::SimRng::new(9);
        let mut out = vec![0; PAGE_BYTES];
        for _ in 0..300 {
            let page = vec![1; PAGE_BYTES];
            let how = if rng.chance(50) { Compression::Lz4 } else { Compression::Zstd(1) };
            let mut bytes = pack(1, &write(&page, how), None).unwrap().bytes;
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            assert!(verify(1, &bytes).is_err());
            if let Ok(head) = header(&bytes) {
                let _ = unpack(&head, &mut bytes, &mut out, None);
            }
        }
    }
}
