//! CRC-32C, seeded, so that bytes of another file, place or incarnation never verify.

/// Checksum of `bytes` under `seed`.
pub fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}
