//! Room `cipher`: how bytes on disk are hidden.
//!
//! A unit (the image of a page, a batch of the log, a checkpoint note) is encrypted by AES-256-GCM. What
//! stands in clear before it, its *envelope*, names the key and everything else that opening needs:
//!
//! ```text
//! key id u32, key version u32, salt 16 bytes, counter u64, tag 16 bytes; then the bytes, as many as before
//! ```
//! The key of a unit is derived from the server's by HKDF-SHA-256 with the salt.
//!
//! Invariants:
//! 1. No derived key meets a nonce twice: the salt is drawn at random for each life of the engine, and
//!    the counter, which is the nonce, never repeats in a life. So it does not matter whether a place of
//!    a file or an LSN is used again, nor whether copies of a directory go on side by side.
//! 2. Checks (CRC) are those of encrypted bytes: damage is found without a key. So what passes its check and
//!    does not open is [`Refused`](crate::base::Error::Refused), never Corrupt: a wrong key gives up no
//!    page and cuts no log.
//! 3. What names a unit (its context) is part of its tag: a unit does not open in another's place.

#[cfg(any(test, feature = "sim"))]
mod fixed;
mod oldest;
#[cfg(test)]
mod tests;

use crate::base::{Error, Result};
use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Ranked, RwLock};
use crate::os::Os;
use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use ctr::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use hkdf::Hkdf;
use sha2::Sha256;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

#[cfg(any(test, feature = "sim"))]
pub use fixed::FixedKeys;
pub use oldest::Oldest;

/// In front of every encrypted unit.
pub const ENVELOPE_BYTES: usize = 48;
const SALT_AT: usize = 8;
const COUNTER_AT: usize = 24;
const TAG_AT: usize = 32;
const SALT_BYTES: usize = TAG_AT - SALT_AT - 8;
const KEY_BYTES: usize = 32;
/// The derivation: another one would need another name.
const PURPOSE: &[u8] = b"sluice unit 1";
/// Derived keys that are kept: one for each life whose units are read.
const DERIVED_MAX: usize = 1024;
/// The context of a [`Cipher::proof`].
const PROOF: &[u8] = b"sluice proof of the key";

/// The server's keys.
pub trait Keys: Send + Sync {
    /// The newest version of a key; `None`: there is no such key, or no key management.
    fn newest(&self, id: u32) -> Option<u32>;
    fn key(&self, id: u32, version: u32) -> Option<Vec<u8>>;
}

/// How a server key is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyName {
    pub id: u32,
    pub version: u32,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} version {}", self.id, self.version)
    }
}

/// Whose pages are encrypted, if anything is. All else that is written is encrypted in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    AllTables,
    /// Of tables that are made so.
    NamedTables,
}

type Envelope = [u8; ENVELOPE_BYTES];
type Salt = [u8; SALT_BYTES];
/// One derived key and where it comes from.
type Derived = (KeyName, Arc<Aes256Gcm>);

/// Encrypts and opens for one life of the engine.
pub struct Cipher {
    keys: Arc<dyn Keys>,
    /// Under which new units are encrypted; `None`: they stay plain.
    writes_under: Option<u32>,
    salt: Salt,
    counter: AtomicU64,
    newest: RwLock<Option<Derived>>,
    derived: RwLock<HashMap<(KeyName, Salt), Arc<Aes256Gcm>>>,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("writes_under", &self.writes_under).finish_non_exhaustive()
    }
}

impl Cipher {
    /// Refused if the key that is to be written under is not there.
    pub fn new(os: &dyn Os, keys: Arc<dyn Keys>, writes_under: Option<u32>) -> Result<Arc<Cipher>> {
        let mut salt = [0; SALT_BYTES];
        if writes_under.is_some() {
            os.random(&mut salt)?;
        }
        let cipher = Cipher {
            keys,
            writes_under,
            salt,
            counter: AtomicU64::new(1),
            newest: RwLock::ranked(Rank::CipherNewest, None),
            derived: RwLock::ranked(Rank::CipherDerived, HashMap::default()),
        };
        if let Some(id) = writes_under {
            let version = cipher.keys.newest(id).ok_or_else(|| {
                Error::Refused(format!(
                    "encryption is on, but there is no key {id}: load a key management plugin that has \
                     it (file_key_management, for one), or turn the encryption off"
                ))
            })?;
            cipher.write_under(KeyName { id, version })?;
        }
        Ok(Arc::new(cipher))
    }

    /// Whether new units are encrypted.
    pub fn encrypts(&self) -> bool {
        self.writes_under.is_some()
    }

    /// The id of the key that new units are encrypted under; `None`: they stay plain.
    pub fn writes_under(&self) -> Option<u32> {
        self.writes_under
    }

    /// Goes on with the newest version of the key. If that is not to be had the last one stays.
    pub fn refresh(&self) {
        let newest = self.writes_under.and_then(|id| Some((id, self.keys.newest(id)?)));
        let Some((id, version)) = newest else { return };
        if self.newest() != Some(KeyName { id, version }) {
            let _ = self.write_under(KeyName { id, version });
        }
    }

    /// The key that new units are encrypted under.
    pub fn newest(&self) -> Option<KeyName> {
        self.newest.read().as_ref().map(|(name, _)| *name)
    }

    fn write_under(&self, name: KeyName) -> Result<()> {
        let derived = self.derive(name, self.salt)?;
        *self.newest.write() = Some((name, derived));
        Ok(())
    }

    fn derive(&self, name: KeyName, salt: Salt) -> Result<Arc<Aes256Gcm>> {
        if let Some(derived) = self.derived.read().get(&(name, salt)) {
            return Ok(Arc::clone(derived));
        }
        let Some(key) = self.keys.key(name.id, name.version) else {
            return Err(Error::Refused(format!(
                "{name} is needed and is not there: give the key management plugin the key that the \
                 files were encrypted with"
            )));
        };
        let mut own = [0; KEY_BYTES];
        if Hkdf::<Sha256>::new(Some(&salt), &key).expand(PURPOSE, &mut own).is_err() {
            unreachable!("this many bytes can be derived")
        }
        let derived = Arc::new(Aes256Gcm::new(&own.into()));
        let mut kept = self.derived.write();
        if kept.len() >= DERIVED_MAX {
            kept.clear();
        }
        kept.insert((name, salt), Arc::clone(&derived));
        Ok(derived)
    }

    /// Encrypts `unit`: room for the envelope, then the bytes. `context` is needed again to open it.
    pub fn encrypt(&self, context: &[u8], unit: &mut [u8]) -> Result<()> {
        let Some((name, derived)) = self.newest.read().clone() else {
            return Err(Error::Refused("nothing is to be encrypted".into()));
        };
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let (envelope, body) = unit.split_at_mut(ENVELOPE_BYTES);
        envelope[..4].copy_from_slice(&name.id.to_le_bytes());
        envelope[4..SALT_AT].copy_from_slice(&name.version.to_le_bytes());
        envelope[SALT_AT..COUNTER_AT].copy_from_slice(&self.salt);
        envelope[COUNTER_AT..TAG_AT].copy_from_slice(&counter.to_le_bytes());
        match derived.encrypt_in_place_detached(&nonce(counter), context, body) {
            Ok(tag) => envelope[TAG_AT..].copy_from_slice(&tag),
            Err(_) => unreachable!("a unit is far below the limit of the algorithm"),
        }
        Ok(())
    }

    /// Opens what [`Cipher::encrypt`] made: its bytes without the envelope.
    pub fn decrypt(&self, context: &[u8], unit: &[u8]) -> Result<Vec<u8>> {
        let (envelope, body) = unit.split_first_chunk().ok_or_else(ends_too_early)?;
        let mut out = body.to_vec();
        self.open(context, envelope, &mut out)?;
        Ok(out)
    }

    fn open(&self, context: &[u8], envelope: &Envelope, body: &mut [u8]) -> Result<()> {
        let (name, salt, counter) = parts_of(envelope);
        let derived = self.derive(name, salt)?;
        let tag = Tag::from_slice(&envelope[TAG_AT..]);
        let opened = derived.decrypt_in_place_detached(&nonce(counter), context, body, tag);
        opened.map_err(|_| {
            Error::Refused(format!(
                "{name} is not the one that the files were encrypted with: give the key management \
                 plugin that key"
            ))
        })
    }

    /// What shows a later start that it has the right key.
    pub fn proof(&self) -> Result<Envelope> {
        let mut proof = [0; ENVELOPE_BYTES];
        self.encrypt(PROOF, &mut proof)?;
        Ok(proof)
    }

    pub fn check_proof(&self, proof: &Envelope) -> Result<()> {
        self.open(PROOF, proof, &mut [])
    }
}

/// Opens with the keys that there are, if there are any.
pub fn decrypt_with(cipher: Option<&Cipher>, context: &[u8], unit: &[u8]) -> Result<Vec<u8>> {
    let envelope = unit.first_chunk().ok_or_else(ends_too_early)?;
    let cipher = cipher.ok_or_else(|| no_keys(name_of(envelope)))?;
    cipher.decrypt(context, unit)
}

/// As [`decrypt_with`], and the bytes stay where they are.
pub fn decrypt_in_place<'u>(
    cipher: Option<&Cipher>,
    context: &[u8],
    unit: &'u mut [u8],
) -> Result<&'u [u8]> {
    let (envelope, body) = unit.split_first_chunk_mut().ok_or_else(ends_too_early)?;
    let cipher = cipher.ok_or_else(|| no_keys(name_of(envelope)))?;
    cipher.open(context, envelope, body)?;
    Ok(body)
}

fn ends_too_early() -> Error {
    Error::corrupt("encrypted bytes end too early", "an envelope")
}

/// Refuses a proof for which there are no keys, or the wrong ones.
pub fn check_proof_with(cipher: Option<&Cipher>, proof: &Envelope) -> Result<()> {
    match cipher {
        Some(cipher) => cipher.check_proof(proof),
        None => Err(no_keys(name_of(proof))),
    }
}

fn no_keys(name: KeyName) -> Error {
    Error::Refused(format!("the files are encrypted with {name}, and no keys were given"))
}

/// The server key of a unit, by its envelope.
pub fn name_of(envelope: &Envelope) -> KeyName {
    parts_of(envelope).0
}

fn parts_of(envelope: &Envelope) -> (KeyName, Salt, u64) {
    let word = |at: usize| {
        u32::from_le_bytes([envelope[at], envelope[at + 1], envelope[at + 2], envelope[at + 3]])
    };
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&envelope[SALT_AT..COUNTER_AT]);
    let mut counter = [0; 8];
    counter.copy_from_slice(&envelope[COUNTER_AT..TAG_AT]);
    (KeyName { id: word(0), version: word(4) }, salt, u64::from_le_bytes(counter))
}

fn nonce(counter: u64) -> Nonce<ctr::cipher::consts::U12> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce.into()
}

/// Hides a file that nobody reads after this process: its key is in memory only. AES-256-CTR by the
/// offset in the file, so each place may be written once.
pub struct Veil(ctr::Ctr128BE<aes::Aes256>);

impl Veil {
    pub fn new(os: &dyn Os) -> Result<Veil> {
        let mut key = [0; KEY_BYTES];
        os.random(&mut key)?;
        Ok(Veil(ctr::Ctr128BE::new(&key.into(), &[0; 16].into())))
    }

    /// Hides the bytes that are for this offset, or shows what was read there.
    pub fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let mut stream = self.0.clone();
        stream.seek(offset);
        stream.apply_keystream(bytes);
    }
}
