//! The superblock: two slots of one block each, that hold the same content between checkpoints.
//!
//! A checkpoint writes the slot that is not known to be the newest, then the other. So one slot
//! is valid at every moment, and after a checkpoint no slot needs what an older one named.
//!
//! The slots lie far apart: a device that loses power in the middle of a write may damage the whole unit
//! that it writes at once, 4 to 64 KiB ("Understanding the Robustness of SSDs under Power Fault", Zheng et
//! al., FAST 2013: shorn writes).

use crate::base::checksum::checksum;
use crate::base::codec::{put_u32, put_u64, Reader};
use crate::base::{formats, Error, Lsn, Result, BLOCK_BYTES};
use crate::cipher::{Oldest, Scope, ENVELOPE_BYTES};
use crate::os::planted::{self, Bug};
use crate::os::{AlignedBuf, File};

const MAGIC: u64 = u64::from_le_bytes(*b"SluiceSB");
pub const SLOTS: usize = 2;
const SLOTS_AT: [u64; SLOTS] = [0, 64 << 10];
/// Slot 1 of a file from before the slots lay apart: it counts until the new place is written.
const NEIGHBOUR_AT: u64 = BLOCK_BYTES as u64;
const FILE_BYTES: usize = (64 << 10) + BLOCK_BYTES;
/// Magic, version, checksum, and the first release that reads this version: in these places in every
/// version. (0: it is not said.)
const CHECK_AT: usize = 12;
const BODY_AT: usize = 16;
const SINCE_AT: usize = BLOCK_BYTES - 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Grows with every checkpoint.
    pub generation: u64,
    /// Drawn when the store is created; seeds the checksums of everything in it.
    pub seed: u32,
    pub segment_bytes: u64,
    /// High-water mark of page ids.
    pub max_page: u64,
    /// Names the files `map-<generation>` and `mapchanges-<generation>`.
    pub map_generation: u64,
    /// The directory of the map snapshot: offset, length, checksum.
    pub directory_at: u64,
    pub directory_bytes: u64,
    pub directory_checksum: u32,
    /// The change log ends exactly here, and this is the checksum chained over all of it.
    pub changes_end: u64,
    pub changes_chain: u32,
    /// The last batch of the change log, which holds the checkpoint note.
    pub last_batch_at: u64,
    /// Shows whether keys are the right ones, and that the directory may hold encrypted bytes.
    pub proof: Option<[u8; ENVELOPE_BYTES]>,
    pub claim: KeyClaim,
    /// Some table was made to be encrypted: nothing of it may be written plain.
    pub promises: bool,
}

/// Which versions of a key are enough for all that the superblock names. A thing that is not claimed is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyClaim {
    /// The id of the key; 0: plain bytes.
    pub key: u32,
    /// No record that the map names is under an older version, another key, or otherwise than `key` says.
    pub pages: Option<u32>,
    /// With [`Scope::NamedTables`] `pages` says nothing of plain records of tables that were not made to be
    /// encrypted.
    pub scope: Scope,
    /// The same of the log from this position on, as it was then.
    pub log: Option<(u32, Lsn)>,
}

const CLAIMS_PAGES: u8 = 1;
const CLAIMS_LOG: u8 = 2;
/// Instead of [`CLAIMS_PAGES`]: for a build that does not know it nothing is claimed.
const CLAIMS_PAGES_OF_NAMED: u8 = 4;
const PROMISES: u8 = 8;

impl KeyClaim {
    /// Of a directory that was never encrypted.
    const PLAIN: KeyClaim =
        KeyClaim { key: 0, pages: Some(0), scope: Scope::AllTables, log: Some((0, Lsn(0))) };

    /// Nothing is needed to read pages, and the log from the position on that is named.
    pub fn needs_no_key(&self) -> bool {
        self.key == 0 && self.pages.is_some() && self.log.is_some()
    }

    /// Of the pages, for an engine that writes those of `scope` under the key `under`, or plain.
    pub fn oldest_of_pages(&self, under: Option<u32>, scope: Scope) -> Oldest {
        let is_enough = self.scope == Scope::AllTables || scope == Scope::NamedTables;
        let believed = is_enough || planted::is(Bug::NamedTakenForAll);
        self.oldest(self.pages.filter(|_| believed), under)
    }

    /// Of the log, and from where on.
    pub fn oldest_of_log(&self, under: Option<u32>) -> Option<(Oldest, Lsn)> {
        let (version, from) = self.log?;
        Some((self.oldest(Some(version), under), from))
    }

    fn oldest(&self, version: Option<u32>, under: Option<u32>) -> Oldest {
        match version {
            None => Oldest::Unknown,
            Some(version) if self.key == under.unwrap_or(0) => Oldest::Version(version),
            Some(_) => Oldest::Foreign,
        }
    }

    fn encode(&self, promises: bool, out: &mut Vec<u8>) {
        let pages = match (self.pages, self.scope) {
            (None, _) => 0,
            (Some(_), Scope::AllTables) => CLAIMS_PAGES,
            (Some(_), Scope::NamedTables) => CLAIMS_PAGES_OF_NAMED,
        };
        let log = if self.log.is_some() { CLAIMS_LOG } else { 0 };
        let promises = if promises { PROMISES } else { 0 };
        let (log_version, log_from) = self.log.unwrap_or_default();
        out.push(pages | log | promises);
        put_u32(out, self.key);
        put_u32(out, self.pages.unwrap_or(0));
        put_u32(out, log_version);
        put_u64(out, log_from.0);
    }

    /// The claim, and whether something was promised.
    fn decode(r: &mut Reader<'_>) -> Result<(KeyClaim, bool)> {
        let flags = r.u8()?;
        let (key, pages, log) = (r.u32()?, r.u32()?, (r.u32()?, Lsn(r.u64()?)));
        let is_of_named = flags & CLAIMS_PAGES_OF_NAMED != 0;
        let claim = KeyClaim {
            key,
            pages: (is_of_named || flags & CLAIMS_PAGES != 0).then_some(pages),
            scope: if is_of_named { Scope::NamedTables } else { Scope::AllTables },
            log: (flags & CLAIMS_LOG != 0).then_some(log),
        };
        Ok((claim, flags & PROMISES != 0))
    }
}

impl Superblock {
    pub(super) fn encode(&self) -> AlignedBuf {
        let mut body = Vec::new();
        put_u64(&mut body, self.generation);
        put_u32(&mut body, self.seed);
        put_u64(&mut body, self.segment_bytes);
        put_u64(&mut body, self.max_page);
        put_u64(&mut body, self.map_generation);
        put_u64(&mut body, self.directory_at);
        put_u64(&mut body, self.directory_bytes);
        put_u32(&mut body, self.directory_checksum);
        put_u64(&mut body, self.changes_end);
        put_u32(&mut body, self.changes_chain);
        put_u64(&mut body, self.last_batch_at);
        let format = match &self.proof {
            Some(proof) => {
                body.extend_from_slice(proof);
                self.claim.encode(self.promises, &mut body);
                match self.promises {
                    true => formats::ENCRYPTED_TABLES,
                    false => formats::ENCRYPTED,
                }
            }
            None => formats::CURRENT,
        };
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        block[..8].copy_from_slice(&MAGIC.to_le_bytes());
        block[8..CHECK_AT].copy_from_slice(&format.store.to_le_bytes());
        block[BODY_AT..BODY_AT + body.len()].copy_from_slice(&body);
        block[SINCE_AT..].copy_from_slice(&format.since.to_u32().to_le_bytes());
        let check = check_of(&block);
        block[CHECK_AT..BODY_AT].copy_from_slice(&check.to_le_bytes());
        block
    }

    fn decode(version: u32, body: &[u8]) -> Result<Superblock> {
        let mut r = Reader::new(body, "superblock");
        let mut sb = Superblock {
            generation: r.u64()?,
            seed: r.u32()?,
            segment_bytes: r.u64()?,
            max_page: r.u64()?,
            map_generation: r.u64()?,
            directory_at: r.u64()?,
            directory_bytes: r.u64()?,
            directory_checksum: r.u32()?,
            changes_end: r.u64()?,
            changes_chain: r.u32()?,
            last_batch_at: r.u64()?,
            proof: None,
            claim: KeyClaim::PLAIN,
            promises: false,
        };
        if version >= formats::ENCRYPTED.store {
            sb.proof = r.take(ENVELOPE_BYTES)?.first_chunk().copied();
            (sb.claim, sb.promises) = KeyClaim::decode(&mut r)?;
        }
        Ok(sb)
    }

    pub fn write(&self, file: &dyn File, slot: usize) -> Result<()> {
        assert!(slot < SLOTS);
        assert!(self.generation > 0);
        let at = SLOTS_AT[slot];
        if planted::is(Bug::SuperblockNotSynced) {
            return file.write_at(&self.encode(), at);
        }
        file.write_durable(&self.encode(), at)
    }
}

/// The seed of the checksums in the files of one map generation.
pub(super) fn seed_of(seed: u32, generation: u64) -> u32 {
    checksum(seed, &generation.to_le_bytes())
}

pub(super) fn check_of(block: &[u8]) -> u32 {
    checksum(checksum(0, &block[..CHECK_AT]), &block[BODY_AT..])
}

fn version_of(block: &[u8]) -> Result<u32> {
    let mut r = Reader::new(block, "superblock");
    r.u64()?;
    r.u32()
}

/// One slot: `Ok(None)` if it is damaged or was never written.
pub(super) fn parse(block: &[u8], place: &str) -> Result<Option<Superblock>> {
    let mut r = Reader::new(block, "superblock");
    let (magic, version, check) = (r.u64()?, r.u32()?, r.u32()?);
    if magic != MAGIC || check != check_of(block) {
        return Ok(None);
    }
    let since = Reader::new(block.get(SINCE_AT..).unwrap_or_default(), "superblock").u32()?;
    formats::check(place, version, since, &formats::STORES)?;
    Superblock::decode(version, r.rest()).map(Some)
}

/// What a superblock file holds.
pub struct Slots {
    /// The newest valid slot.
    pub newest: Option<(usize, Superblock)>,
    /// Both slots hold the newest content.
    pub same: bool,
    /// The creation of the store never came to its end: the first slot is not whole, the last one untouched.
    pub unfinished: bool,
    /// Which slots hold nothing valid.
    pub damaged: [bool; SLOTS],
    /// The format's version in the newest slot; 0 if there is none.
    pub version: u32,
}

impl Slots {
    /// The newest slot of a store that was created; `file` is theirs.
    pub fn newest_of(&self, file: &dyn File) -> Result<(usize, Superblock)> {
        self.newest.ok_or_else(|| {
            let place = file.path().display().to_string();
            Error::corrupt("both slots of the superblock are damaged", place)
        })
    }
}

pub fn read(file: &dyn File) -> Result<Slots> {
    let mut bytes = AlignedBuf::new(FILE_BYTES);
    let length = file.len()?.min(FILE_BYTES as u64) as usize / BLOCK_BYTES * BLOCK_BYTES;
    file.read_at(&mut bytes[..length], 0)?;
    let block = |at: u64| &bytes[at as usize..][..BLOCK_BYTES];
    let is_untouched = |at| block(at).iter().all(|&b| b == 0);
    let has_neighbour = is_untouched(SLOTS_AT[1]) && !is_untouched(NEIGHBOUR_AT);
    let place = file.path().display().to_string();
    let first = parse(block(SLOTS_AT[0]), &place)?;
    let second_at = if has_neighbour { NEIGHBOUR_AT } else { SLOTS_AT[1] };
    let second = parse(block(second_at), &place)?;
    let damaged = [first.is_none(), second.is_none()];
    let same = first == second;
    let newest = match (first, second) {
        (Some(a), Some(b)) if b.generation > a.generation => Some((1, b)),
        (Some(a), _) => Some((0, a)),
        (None, b) => b.map(|b| (1, b)),
    };
    let unfinished = newest.is_none() && is_untouched(SLOTS_AT[1]);
    let version = match &newest {
        Some((slot, _)) => version_of(block([SLOTS_AT[0], second_at][*slot]))?,
        None => 0,
    };
    Ok(Slots { newest, same, unfinished, damaged, version })
}

/// A whole file whose slots both hold `sb`.
pub(super) fn whole(sb: &Superblock) -> AlignedBuf {
    let mut bytes = AlignedBuf::new(FILE_BYTES);
    for at in SLOTS_AT {
        bytes[at as usize..][..BLOCK_BYTES].copy_from_slice(&sb.encode());
    }
    bytes
}

/// Leaves a file that is [`Slots::unfinished`]. The last slot goes before the first: in between the file
/// holds a whole slot, or none and an untouched last one.
pub(super) fn blank(file: &dyn File) -> Result<()> {
    file.write_durable(&AlignedBuf::new(BLOCK_BYTES), SLOTS_AT[1])?;
    file.write_durable(&AlignedBuf::new(FILE_BYTES), 0)
}
