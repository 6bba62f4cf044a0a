//! Every byte of the log on disk.
//!
//! ```text
//! control file: two equal blocks   magic u32, check u32, version u32, release u32,
//!                                  segment_bytes u64, incarnation u64, start u64
//! segment file: one header block   magic u32, check u32, version u32, release u32,
//!                                  number u64, segment_bytes u64
//!               then segment_bytes of the stream
//! batch:  magic u32, check u32, lsn u64, incarnation u64, durable_before u64, length u32,
//!         packed u24, codec u8 (+ 0x80 if encrypted), place u64;
//!         plain (packed and codec 0): records up to length; packed: compressed records up to packed;
//!         encrypted: an envelope (`cipher`), then as packed, the records compressed or not;
//!         zeros up to the block's end, where the next batch begins
//!         up to version 5 of the log, with another magic: no place, which is its LSN; after a packed batch the
//!         blocks up to that of length keep what they had
//! record: kind u8, payload length varint, check 3 bytes, payload
//! ```
//! Integers are little-endian. The check of a batch covers everything after it up to `length`, or up
//! to `packed`, and is seeded by the incarnation. That of a record covers kind, length, payload and its LSN.

use super::RECORD_KINDS;
use crate::base::checksum::checksum;
use crate::base::codec::{put_u32, put_u64, Reader};
use crate::base::compress::{decompress, CODEC_RAW};
use crate::base::limits::RECORD_BYTES_MAX;
use crate::base::{formats, Error, Lsn, Result, BLOCK_BYTES};
use crate::cipher::{self, Cipher, ENVELOPE_BYTES};
use crate::os::planted::{self, Bug};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
/// The stream starts after one unused block, so that no position in it is [`Lsn::ZERO`].
pub(super) const STREAM_START: u64 = BLOCK;
pub(super) const BATCH_HEADER_BYTES: u64 = 48;
/// Of a batch that stands at its LSN.
const OLD_HEADER_BYTES: u64 = 40;
/// The part of a header after magic and check.
const TAIL_BYTES: usize = BATCH_HEADER_BYTES as usize - 8;
/// In front of the records of an encrypted batch: header and envelope.
pub(super) const ENCRYPTED_HEAD_BYTES: u64 = BATCH_HEADER_BYTES + ENVELOPE_BYTES as u64;
/// An open batch of this size is sealed by the next append: it bounds what a scan holds in
/// memory, and sealed batches can be written before anyone waits for them.
pub(super) const BATCH_TARGET_BYTES: u64 = 256 << 10;
/// No batch is longer; bounds what a length read from disk can make us allocate.
pub(super) const BATCH_BYTES_MAX: u64 = 2 << 20;
pub(super) const SEGMENT_BYTES_MIN: u64 = 4 * BLOCK;
/// Bounds what opening reads after the end, and positions computed from file names.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// kind, three bytes of varint, three of check.
pub(super) const FRAME_HEAD_BYTES_MAX: usize = 7;

const _: () = assert!(
    BATCH_TARGET_BYTES + ENCRYPTED_HEAD_BYTES + (FRAME_HEAD_BYTES_MAX + RECORD_BYTES_MAX) as u64
        <= BATCH_BYTES_MAX
);
const _: () = assert!(RECORD_BYTES_MAX < 1 << 21, "three bytes of varint");
const _: () = assert!(ENCRYPTED_HEAD_BYTES < BLOCK);

/// Of the header's word for packed batches: its length; the codec is above.
const PACKED_BITS: u32 = 24;
const PACKED_MASK: u32 = (1 << PACKED_BITS) - 1;
const _: () = assert!(BATCH_BYTES_MAX <= PACKED_MASK as u64);

/// Of the codec: the batch is encrypted.
const ENCRYPTED: u8 = 0x80;

const CONTROL_MAGIC: u32 = 0x4c57_4331;
const SEGMENT_MAGIC: u32 = 0x4c57_5331;
const OLD_BATCH_MAGIC: u32 = 0x4c57_4231;
const BATCH_MAGIC: u32 = 0x4c57_4232;

/// The first block boundary at or above `lsn`.
pub(super) fn block_up(lsn: u64) -> u64 {
    lsn.next_multiple_of(BLOCK)
}

pub(super) fn block_down(lsn: u64) -> u64 {
    lsn - lsn % BLOCK
}

/// Damage at a position of the log.
pub(super) fn corrupt(what: &str, lsn: u64) -> Error {
    Error::corrupt(what, format!("log position {lsn}"))
}

/// What the checkpoint remembers of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalAnchor {
    /// Recovery visits records from here: a record's start or a value of `Wal::end`.
    pub scan_from: Lsn,
    /// `Wal::durable` when the checkpoint was written; a shorter log is corrupt.
    pub durable: Lsn,
}

impl WalAnchor {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.scan_from.0);
        put_u64(out, self.durable.0);
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<WalAnchor> {
        let anchor = WalAnchor { scan_from: Lsn(reader.u64()?), durable: Lsn(reader.u64()?) };
        if anchor.scan_from > anchor.durable || anchor.scan_from.0 < STREAM_START {
            return Err(reader.fail("log anchor out of order"));
        }
        Ok(anchor)
    }
}

/// The newest incarnation and where it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub segment_bytes: u64,
    pub incarnation: u64,
    pub start: u64,
    /// There may be encrypted batches.
    pub encrypted: bool,
}

/// Puts a magic, a check over `body`, and `body` at the front of `block`.
fn seal_block(block: &mut [u8], magic: u32, body: &[u8]) {
    block.fill(0);
    block[..4].copy_from_slice(&magic.to_le_bytes());
    block[4..8].copy_from_slice(&checksum(magic, body).to_le_bytes());
    block[8..8 + body.len()].copy_from_slice(body);
}

/// The version and the rest of the body of a block made by [`seal_block`], if it is intact and of a
/// version that is read.
fn open_block<'a>(
    block: &'a [u8],
    magic: u32,
    body_bytes: usize,
    what: &'static str,
) -> Result<(u32, &'a [u8])> {
    let mut reader = Reader::new(block, what);
    let (found, check) = (reader.u32()?, reader.u32()?);
    let body = reader.take(body_bytes)?;
    if found != magic {
        return Err(reader.fail("wrong magic"));
    }
    if check != checksum(magic, body) {
        return Err(reader.fail("wrong check"));
    }
    let mut head = Reader::new(body, what);
    let (version, since) = (head.u32()?, head.u32()?);
    formats::check(what, version, since, &formats::LOGS)?;
    Ok((version, &body[8..]))
}

/// The version, and the first release that reads it: in this place in every version.
fn put_version(body: &mut Vec<u8>, format: &formats::Format) {
    put_u32(body, format.log);
    put_u32(body, format.since.to_u32());
}

const CONTROL_BODY_BYTES: usize = 32;
const SEGMENT_BODY_BYTES: usize = 24;

impl Control {
    pub fn encode(&self, block: &mut [u8]) {
        let mut body = Vec::with_capacity(CONTROL_BODY_BYTES);
        let format = if self.encrypted { formats::ENCRYPTED } else { formats::CURRENT };
        put_version(&mut body, &format);
        put_u64(&mut body, self.segment_bytes);
        put_u64(&mut body, self.incarnation);
        put_u64(&mut body, self.start);
        assert_eq!(body.len(), CONTROL_BODY_BYTES);
        seal_block(block, CONTROL_MAGIC, &body);
    }

    pub fn decode(block: &[u8]) -> Result<Control> {
        let what = "log control file";
        let (version, body) = open_block(block, CONTROL_MAGIC, CONTROL_BODY_BYTES, what)?;
        let mut r = Reader::new(body, what);
        let control = Control {
            segment_bytes: r.u64()?,
            incarnation: r.u64()?,
            start: r.u64()?,
            encrypted: formats::is_encrypted_log(version),
        };
        let whole_blocks = control.segment_bytes % BLOCK == 0 && control.start % BLOCK == 0;
        let size_fits = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&control.segment_bytes);
        if !whole_blocks || !size_fits || control.start < STREAM_START {
            return Err(r.fail("impossible geometry"));
        }
        Ok(control)
    }
}

pub(super) fn encode_segment_header(block: &mut [u8], number: u64, segment_bytes: u64) {
    let mut body = Vec::with_capacity(SEGMENT_BODY_BYTES);
    // The control file decides who reads the log: this version stays.
    put_version(&mut body, &formats::CURRENT);
    put_u64(&mut body, number);
    put_u64(&mut body, segment_bytes);
    assert_eq!(body.len(), SEGMENT_BODY_BYTES);
    seal_block(block, SEGMENT_MAGIC, &body);
}

/// Number and size of the segment whose first block this is.
pub(super) fn decode_segment_header(block: &[u8]) -> Result<(u64, u64)> {
    let (_, body) = open_block(block, SEGMENT_MAGIC, SEGMENT_BODY_BYTES, "log segment")?;
    let mut r = Reader::new(body, "log segment");
    Ok((r.u64()?, r.u64()?))
}

/// How the records of a packed or encrypted batch stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Raw only if it is encrypted.
    pub codec: u8,
    pub is_encrypted: bool,
    /// Header, envelope and records, without padding.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub lsn: u64,
    /// In the files.
    pub place: u64,
    /// The next batch begins where its bytes end. An older batch stands at its LSN, and so does the next.
    pub is_dense: bool,
    pub incarnation: u64,
    pub durable_before: u64,
    /// Header and records, without padding.
    pub length: u64,
    pub packed: Option<Packed>,
}

impl BatchHeader {
    /// End of the last record.
    pub fn end(&self) -> u64 {
        self.lsn + self.length
    }

    /// Where the next batch starts.
    pub fn next(&self) -> u64 {
        block_up(self.end())
    }

    /// Place of the next batch.
    pub fn next_place(&self) -> u64 {
        match self.is_dense {
            true => block_up(self.place + self.stored_bytes()),
            false => self.next(),
        }
    }

    pub fn header_bytes(&self) -> u64 {
        header_bytes(self.is_dense)
    }

    /// Bytes in the file, without padding: what the check covers.
    pub fn stored_bytes(&self) -> u64 {
        self.packed.map_or(self.length, |packed| packed.bytes)
    }

    /// Where the first record stands in the batch as it is in memory.
    pub fn body_at(&self) -> u64 {
        match self.packed {
            Some(Packed { is_encrypted: true, .. }) => self.header_bytes() + ENVELOPE_BYTES as u64,
            _ => self.header_bytes(),
        }
    }

    fn seed(&self) -> u32 {
        (self.incarnation as u32) ^ ((self.incarnation >> 32) as u32).rotate_left(16)
    }

    /// All but magic and check; what an encrypted batch is opened with.
    pub fn tail(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TAIL_BYTES);
        put_u64(&mut out, self.lsn);
        put_u64(&mut out, self.incarnation);
        put_u64(&mut out, self.durable_before);
        put_u32(&mut out, self.length as u32);
        let word = self.packed.map_or(0, |Packed { codec, is_encrypted, bytes }| {
            let codec = if is_encrypted { codec | ENCRYPTED } else { codec };
            bytes as u32 | u32::from(codec) << PACKED_BITS
        });
        put_u32(&mut out, word);
        if self.is_dense {
            put_u64(&mut out, self.place);
        }
        out
    }

    /// The header's bytes, given the pieces of the body, as it stands in the file, in order.
    pub fn encode<'a>(
        &self,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> [u8; BATCH_HEADER_BYTES as usize] {
        assert!(self.lsn % BLOCK == 0);
        assert!(self.place % BLOCK == 0);
        assert!(self.is_dense, "older batches are read only");
        assert!(self.durable_before <= self.lsn);
        assert!(self.length >= BATCH_HEADER_BYTES);
        assert!(self.length <= BATCH_BYTES_MAX);
        assert!(self.is_possible());
        let tail = self.tail();
        let mut bytes = 0;
        let check = body.fold(checksum(self.seed(), &tail), |check, piece| {
            bytes += piece.len() as u64;
            checksum(check, piece)
        });
        assert_eq!(bytes + BATCH_HEADER_BYTES, self.stored_bytes());
        let mut out = [0; BATCH_HEADER_BYTES as usize];
        out[..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&check.to_le_bytes());
        out[8..].copy_from_slice(&tail);
        out
    }

    /// A header that claims to start a batch at `place`; its check is still to be verified.
    pub fn decode(bytes: &[u8], place: u64) -> Option<BatchHeader> {
        let mut r = Reader::new(bytes, "log batch");
        let is_dense = match r.u32().ok()? {
            BATCH_MAGIC => true,
            OLD_BATCH_MAGIC => false,
            _ => return None,
        };
        let _check = r.u32().ok()?;
        let mut header = BatchHeader {
            lsn: r.u64().ok()?,
            place,
            is_dense,
            incarnation: r.u64().ok()?,
            durable_before: r.u64().ok()?,
            length: u64::from(r.u32().ok()?),
            packed: packed_of(r.u32().ok()?),
        };
        header.place = if is_dense { r.u64().ok()? } else { header.lsn };
        let is_here = header.place == place || planted::is(Bug::BatchOfEarlierLifeTaken);
        (is_here && header.is_possible()).then_some(BatchHeader { place, ..header })
    }

    /// Numbers that a batch can have.
    fn is_possible(&self) -> bool {
        let head = self.header_bytes();
        self.lsn % BLOCK == 0
            // So sums do not overflow.
            && self.lsn <= u64::MAX / 2
            && self.durable_before <= self.lsn
            && (head..=BATCH_BYTES_MAX).contains(&self.length)
            && self.packed.is_none_or(|packed| packed.fits(self.length, head))
    }

    /// Whether `bytes`, the whole batch as it stands in the file, without padding, is what was
    /// written.
    pub fn verify(&self, bytes: &[u8]) -> bool {
        assert_eq!(bytes.len() as u64, self.stored_bytes());
        let check = checksum(self.seed(), &bytes[8..]);
        bytes[4..8] == check.to_le_bytes()
    }
}

impl Packed {
    /// Whether a batch of this length, with such a header, can stand so in the file.
    fn fits(&self, length: u64, head: u64) -> bool {
        let encrypted_head = head + ENVELOPE_BYTES as u64;
        match (self.is_encrypted, self.codec) {
            (true, CODEC_RAW) => self.bytes == length && length >= encrypted_head,
            (true, _) => (encrypted_head..length).contains(&self.bytes),
            (false, codec) => (head..length).contains(&self.bytes) && codec != CODEC_RAW,
        }
    }
}

fn header_bytes(is_dense: bool) -> u64 {
    if is_dense {
        BATCH_HEADER_BYTES
    } else {
        OLD_HEADER_BYTES
    }
}

/// The word of a header that tells how its batch is packed.
fn packed_of(word: u32) -> Option<Packed> {
    let codec = (word >> PACKED_BITS) as u8;
    let packed = Packed {
        codec: codec & !ENCRYPTED,
        is_encrypted: codec & ENCRYPTED != 0,
        bytes: u64::from(word & PACKED_MASK),
    };
    (word != 0).then_some(packed)
}

/// Adds to `out` the verified packed or encrypted batch `bytes` as it was in memory, after room for its header
/// and envelope, which nobody looks at: so records have the places that their LSNs tell.
pub(super) fn unpack(
    header: &BatchHeader,
    packed: Packed,
    bytes: &[u8],
    cipher: Option<&Cipher>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let begin = out.len();
    out.resize(begin + header.length as usize, 0);
    let body = &mut out[begin + header.body_at() as usize..];
    let form = bytes.get(header.header_bytes() as usize..packed.bytes as usize).unwrap_or_default();
    let opened = match packed.is_encrypted {
        true => Some(cipher::decrypt_with(cipher, &header.tail(), form)?),
        false => None,
    };
    let form = opened.as_deref().unwrap_or(form);
    let unpacked = match packed.codec {
        CODEC_RAW if form.len() == body.len() => {
            body.copy_from_slice(form);
            Some(form.len())
        }
        codec => decompress(codec, form, body),
    };
    match unpacked {
        Some(n) if n == body.len() => Ok(()),
        _ => Err(corrupt("a batch does not decompress", header.lsn)),
    }
}

/// What a record with such a payload takes in the log.
pub(super) fn record_bytes(payload_bytes: usize) -> u64 {
    let varint = match payload_bytes {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    };
    (1 + varint + 3 + payload_bytes) as u64
}

/// The front of a record, complete but for its check, which needs the record's LSN.
pub(super) struct FrameHead {
    bytes: [u8; FRAME_HEAD_BYTES_MAX],
    len: usize,
    check: u32,
}

impl FrameHead {
    pub fn new(kind: u8, parts: &[&[u8]]) -> (FrameHead, usize) {
        assert!((kind as usize) < RECORD_KINDS);
        let payload_bytes: usize = parts.iter().map(|p| p.len()).sum();
        assert!(payload_bytes <= RECORD_BYTES_MAX, "the caller must split its payload");
        let mut bytes = [0; FRAME_HEAD_BYTES_MAX];
        bytes[0] = kind;
        let (mut len, mut rest) = (1, payload_bytes);
        while rest >= 0x80 {
            bytes[len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        bytes[len] = rest as u8;
        len += 1;
        let check = parts.iter().fold(checksum(0, &bytes[..len]), |c, p| checksum(c, p));
        (FrameHead { bytes, len: len + 3, check }, payload_bytes)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn finish(&mut self, lsn: u64) -> &[u8] {
        let check = record_check(self.check, lsn);
        self.bytes[self.len - 3..self.len].copy_from_slice(&check);
        &self.bytes[..self.len]
    }
}

fn record_check(check: u32, lsn: u64) -> [u8; 3] {
    let c = checksum(check, &lsn.to_le_bytes());
    let folded = (c ^ (c >> 24)).to_le_bytes();
    [folded[0], folded[1], folded[2]]
}

/// A decoded front of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: u8,
    pub head_bytes: usize,
    pub payload_bytes: usize,
    body_check: u32,
    check: [u8; 3],
}

impl Frame {
    /// Decodes from the front of `bytes`, which may end anywhere after the frame's head.
    pub fn decode(bytes: &[u8], lsn: u64) -> Result<Frame> {
        let named = |_| Error::corrupt("no record", format!("log position {lsn}"));
        Frame::decode_head(bytes).map_err(named)
    }

    fn decode_head(bytes: &[u8]) -> Result<Frame> {
        let mut r = Reader::new(bytes, "log record");
        let kind = r.u8()?;
        let length = r.varint()?;
        if kind as usize >= RECORD_KINDS || length > RECORD_BYTES_MAX as u64 {
            return Err(r.fail("impossible kind or length"));
        }
        let head = bytes.len() - r.rest().len();
        let check = r.take(3)?;
        Ok(Frame {
            kind,
            head_bytes: head + 3,
            payload_bytes: length as usize,
            body_check: checksum(0, &bytes[..head]),
            check: [check[0], check[1], check[2]],
        })
    }

    pub fn bytes(&self) -> usize {
        self.head_bytes + self.payload_bytes
    }

    pub fn verify(&self, payload: &[u8], lsn: u64) -> bool {
        record_check(checksum(self.body_check, payload), lsn) == self.check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_round_trip_and_refuse_damage() {
        let control =
            Control { segment_bytes: 65536, incarnation: 7, start: 8192, encrypted: false };
        let mut block = vec![0; BLOCK_BYTES];
        control.encode(&mut block);
        assert_eq!(Control::decode(&block).unwrap(), control);
        for at in 0..40 {
            let mut bad = block.clone();
            bad[at] ^= 4;
            assert!(Control::decode(&bad).is_err(), "byte {at}");
        }
        encode_segment_header(&mut block, 9, 65536);
        assert_eq!(decode_segment_header(&block).unwrap(), (9, 65536));
        assert!(Control::decode(&block).is_err());
        assert!(decode_segment_header(&block[..20]).is_err());
    }

    #[test]
    fn a_batch_of_another_incarnation_or_place_does_not_verify() {
        let header = BatchHeader {
            lsn: 12_288,
            place: 8192,
            is_dense: true,
            incarnation: 3,
            durable_before: 4096,
            length: 53,
            packed: None,
        };
        let mut bytes = header.encode([&b"ab"[..], b"cde"].into_iter()).to_vec();
        bytes.extend_from_slice(b"abcde");
        assert_eq!(BatchHeader::decode(&bytes, 8192), Some(header));
        assert!(header.verify(&bytes));
        assert!(BatchHeader::decode(&bytes, 4096).is_none());
        let other = BatchHeader { incarnation: 4, ..header };
        assert!(!other.verify(&bytes));
        bytes[52] ^= 1;
        assert!(!header.verify(&bytes));
    }

    #[test]
    fn a_record_is_bound_to_its_lsn() {
        for payload in [0usize, 1, 127, 128, 20_000, RECORD_BYTES_MAX] {
            let payload = vec![5; payload];
            let (mut head, len) = FrameHead::new(31, &[&payload]);
            let front = head.finish(4136).to_vec();
            let frame = Frame::decode(&front, 4136).unwrap();
            assert_eq!((frame.kind, frame.payload_bytes), (31, len));
            assert_eq!(frame.bytes(), head.len() + len);
            assert!(frame.verify(&payload, 4136));
            assert!(!frame.verify(&payload, 4137));
        }
        assert!(Frame::decode(&[255; 20], 0).is_err());
        assert!(Frame::decode(&[1], 0).is_err());
    }

    #[test]
    fn anchor_round_trip() {
        let anchor = WalAnchor { scan_from: Lsn(4096), durable: Lsn(9000) };
        let mut out = Vec::new();
        anchor.encode(&mut out);
        assert_eq!(WalAnchor::decode(&mut Reader::new(&out, "t")).unwrap(), anchor);
        assert!(WalAnchor::decode(&mut Reader::new(&out[1..], "t")).is_err());
    }
}
