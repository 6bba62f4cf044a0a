use super::*;
use crate::os::sim::SimOs;

fn cipher(keys: &Arc<FixedKeys>, id: Option<u32>) -> Result<Arc<Cipher>> {
    let keys: Arc<dyn Keys> = Arc::clone(keys) as _;
    Cipher::new(&*SimOs::new(3), keys, id)
}

fn encrypted(cipher: &Cipher, context: &[u8], body: &[u8]) -> Vec<u8> {
    let mut unit = vec![0; ENVELOPE_BYTES];
    unit.extend_from_slice(body);
    cipher.encrypt(context, &mut unit).unwrap();
    unit
}

#[test]
fn what_was_encrypted_opens_in_its_place_only() {
    let keys = FixedKeys::new(1);
    let cipher = cipher(&keys, Some(7)).unwrap();
    for body in [&b""[..], b"x", &[9; 20_000]] {
        let unit = encrypted(&cipher, b"here", body);
        assert_eq!(unit.len(), ENVELOPE_BYTES + body.len());
        assert!(body.len() < 16 || !unit.windows(16).any(|w| w == &body[..16]));
        assert_eq!(cipher.decrypt(b"here", &unit).unwrap(), body);
        assert!(matches!(cipher.decrypt(b"there", &unit), Err(Error::Refused(_))));
        for at in 0..unit.len().min(60) {
            let mut other = unit.clone();
            other[at] ^= 1;
            assert!(matches!(cipher.decrypt(b"here", &other), Err(Error::Refused(_))), "byte {at}");
        }
        for cut in 0..ENVELOPE_BYTES {
            assert!(cipher.decrypt(b"here", &unit[..cut]).is_err());
        }
    }
}

#[test]
fn no_unit_has_the_nonce_of_another() {
    let keys = FixedKeys::new(1);
    let mut seen = crate::os::hash::HashSet::default();
    let os = SimOs::new(4);
    for _ in 0..20 {
        let life = Cipher::new(&*os, Arc::clone(&keys) as _, Some(1)).unwrap();
        for _ in 0..20 {
            let unit = encrypted(&life, b"", b"the same bytes");
            assert!(seen.insert(unit[..TAG_AT].to_vec()), "key, salt and counter again");
        }
    }
}

#[test]
fn new_units_are_encrypted_under_the_newest_version_and_old_ones_open() {
    let keys = FixedKeys::new(1);
    let cipher = cipher(&keys, Some(5)).unwrap();
    let old = encrypted(&cipher, b"", b"old");
    keys.newest.store(2, Ordering::Relaxed);
    assert_eq!(cipher.newest(), Some(KeyName { id: 5, version: 1 }), "not before it is told");
    cipher.refresh();
    let new = encrypted(&cipher, b"", b"new");
    let name = |unit: &[u8]| name_of(unit.first_chunk().unwrap()).version;
    assert_eq!((name(&old), name(&new)), (1, 2));
    assert_eq!(cipher.decrypt(b"", &old).unwrap(), b"old");
    assert_eq!(cipher.decrypt(b"", &new).unwrap(), b"new");
    keys.newest.store(0, Ordering::Relaxed);
    cipher.refresh();
    assert_eq!(cipher.decrypt(b"", &encrypted(&cipher, b"", b"last")).unwrap(), b"last");
}

#[test]
fn a_missing_or_wrong_key_is_refused_with_its_name() {
    let why = |result: Result<()>| result.unwrap_err().to_string();
    let none = FixedKeys::new(0);
    assert!(why(cipher(&none, Some(4)).map(|_| ())).contains("there is no key 4"));
    let writer = cipher(&FixedKeys::new(3), Some(4)).unwrap();
    let proof = writer.proof().unwrap();
    writer.check_proof(&proof).unwrap();
    assert!(why(check_proof_with(None, &proof)).contains("encrypted with key 4 version 3"));
    let older = cipher(&FixedKeys::new(2), None).unwrap();
    assert!(why(older.check_proof(&proof)).contains("key 4 version 3 is needed"));
    struct Others;
    impl Keys for Others {
        fn newest(&self, _: u32) -> Option<u32> {
            Some(3)
        }
        fn key(&self, _: u32, _: u32) -> Option<Vec<u8>> {
            Some(vec![1; 32])
        }
    }
    let wrong = Cipher::new(&*SimOs::new(3), Arc::new(Others), None).unwrap();
    assert!(why(wrong.check_proof(&proof)).contains("key 4 version 3 is not the one"));
    assert!(wrong.encrypt(b"", &mut proof.clone()).is_err(), "it has no key to write under");
}

#[test]
fn a_veil_hides_by_offset() {
    let veil = Veil::new(&*SimOs::new(1)).unwrap();
    let mut bytes = vec![7u8; 1000];
    veil.apply(123, &mut bytes);
    assert!(!bytes.windows(8).any(|w| w == [7; 8]));
    let mut part = bytes[300..700].to_vec();
    veil.apply(123 + 300, &mut part);
    assert_eq!(part, [7; 400]);
}
