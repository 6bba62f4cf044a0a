use super::format::*;
use super::read::visit_records;
use crate::base::BLOCK_BYTES;
use crate::os::fuzz::fuzz;

#[test]
fn fuzz_log_headers() {
    let mut control = vec![0; BLOCK_BYTES];
    let (segment_bytes, incarnation) = (65536, 7 << 32 | 3);
    Control { segment_bytes, incarnation, start: 8192, encrypted: false }.encode(&mut control);
    let mut segment = vec![0; BLOCK_BYTES];
    encode_segment_header(&mut segment, 9, 65536);
    let corpus = [control[..64].to_vec(), segment[..64].to_vec()];
    fuzz("log headers", &corpus, &mut |bytes| {
        let _ = Control::decode(bytes);
        let _ = decode_segment_header(bytes);
        // And with a check that fits.
        let mut sealed = bytes.to_vec();
        sealed.resize(64, 0);
        let magic = u32::from_le_bytes([sealed[0], sealed[1], sealed[2], sealed[3]]);
        for body_bytes in [24, 32] {
            let check = crate::base::checksum::checksum(magic, &sealed[8..8 + body_bytes]);
            sealed[4..8].copy_from_slice(&check.to_le_bytes());
            let _ = Control::decode(&sealed);
            let _ = decode_segment_header(&sealed);
        }
    });
}

#[test]
fn fuzz_log_batches() {
    let mut body = Vec::new();
    let at = 8192u64;
    for (kind, payload) in [(1u8, &b"tree record"[..]), (2, &[5]), (6, &[1, 200, 1])] {
        let (mut head, _) = FrameHead::new(kind, &[payload]);
        let lsn = at + BATCH_HEADER_BYTES + body.len() as u64;
        body.extend_from_slice(head.finish(lsn));
        body.extend_from_slice(payload);
    }
    let length = BATCH_HEADER_BYTES + body.len() as u64;
    let (incarnation, durable_before) = (3, 4096);
    let header = BatchHeader {
        lsn: at,
        place: at,
        is_dense: true,
        incarnation,
        durable_before,
        length,
        packed: None,
    };
    let mut batch = header.encode([&body[..]].into_iter()).to_vec();
    batch.extend_from_slice(&body);
    fuzz("log batches", &[batch], &mut |bytes| {
        if let Some(header) = BatchHeader::decode(bytes, at) {
            if let Some(whole) = bytes.get(..header.length as usize) {
                header.verify(whole);
            }
        }
        // Records as if the batch's check had held.
        let header = BatchHeader { length: bytes.len() as u64, ..header };
        let _ = visit_records(&header, bytes, at, u64::MAX, &mut |_, _| Ok(()));
    });
}
