//! Keys and spans of keys, as the lock manager keeps them. Pure data.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::{Bound, Deref};

const SHORT_BYTES: usize = 22;

/// Key bytes, in place when they are few.
#[derive(Clone)]
pub(super) enum Key {
    Short { len: u8, bytes: [u8; SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= SHORT_BYTES => {
                let mut bytes = [0; SHORT_BYTES];
                bytes[..key.len()].copy_from_slice(key);
                Key::Short { len, bytes }
            }
            _ => Key::Long(key.into()),
        }
    }
}

impl Default for Key {
    fn default() -> Key {
        Key::Short { len: 0, bytes: [0; SHORT_BYTES] }
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

/// The order of bytes. Keys mostly differ in their first eight, which are compared as a number.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first_chunk(), b.first_chunk()) {
        (Some(x), Some(y)) if x != y => u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y)),
        _ => a.cmp(b),
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        compare(self, other)
    }
}

/// On which side of its key a cut lies; the top lies above all keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Below,
    Above,
    Top,
}

/// A place between keys. All bounds of ranges are cuts, so that one order serves them all.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Cut {
    key: Key,
    side: Side,
}

impl Cut {
    pub(super) fn below(key: &[u8]) -> Cut {
        Cut { key: key.into(), side: Side::Below }
    }

    fn above(key: &[u8]) -> Cut {
        Cut { key: key.into(), side: Side::Above }
    }

    fn low(bound: Bound<&[u8]>) -> Cut {
        match bound {
            Bound::Included(key) => Cut::below(key),
            Bound::Excluded(key) => Cut::above(key),
            Bound::Unbounded => Cut::below(&[]),
        }
    }

    fn high(bound: Bound<&[u8]>) -> Cut {
        match bound {
            Bound::Included(key) => Cut::above(key),
            Bound::Excluded(key) => Cut::below(key),
            Bound::Unbounded => Cut { key: Key::default(), side: Side::Top },
        }
    }

    pub(super) fn compare(&self, key: &[u8], side: Side) -> Ordering {
        match (self.side, side) {
            (Side::Top, Side::Top) => Ordering::Equal,
            (Side::Top, _) => Ordering::Greater,
            (_, Side::Top) => Ordering::Less,
            (own, other) => compare(&self.key, key).then(own.cmp(&other)),
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Whether `key` lies above.
    pub(super) fn is_below(&self, key: &[u8]) -> bool {
        self.compare(key, Side::Below).is_le()
    }
}

/// Below all keys.
impl Default for Cut {
    fn default() -> Cut {
        Cut::below(&[])
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Cut) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Cut) -> Ordering {
        self.compare(&other.key, other.side)
    }
}

/// The keys between two cuts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) low: Cut,
    pub(super) high: Cut,
}

impl Span {
    /// `None` for a range that no key can lie in.
    pub(super) fn of(low: Bound<&[u8]>, high: Bound<&[u8]>) -> Option<Span> {
        let span = Span { low: Cut::low(low), high: Cut::high(high) };
        (span.low < span.high).then_some(span)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.low.is_below(key) && !self.high.is_below(key)
    }

    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let low = match self.low.side {
            Side::Below => Bound::Included(&*self.low.key),
            _ => Bound::Excluded(&*self.low.key),
        };
        let high = match self.high.side {
            Side::Below => Bound::Excluded(&*self.high.key),
            Side::Above => Bound::Included(&*self.high.key),
            Side::Top => Bound::Unbounded,
        };
        (low, high)
    }
}
