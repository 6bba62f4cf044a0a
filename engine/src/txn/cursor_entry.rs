//! The entry on which a cursor stands, where it lies: among the entries that were copied out of a leaf
//! together, or alone. So a step over a batch copies nothing.
//!
//! Invariant: bytes of the batch are not changed while the entry is one of it.

/// From where to where in the batch.
pub(super) type Span = (usize, usize);

#[derive(Default)]
pub struct CursorEntry {
    /// Keys and payloads of several entries.
    batch: Vec<u8>,
    /// Key and payload in the batch. `None`: the entry is alone.
    place: Option<(Span, Span)>,
    key: Vec<u8>,
    payload: Vec<u8>,
}

impl CursorEntry {
    pub fn key(&self) -> &[u8] {
        match self.place {
            Some((key, _)) => &self.batch[key.0..key.1],
            None => &self.key,
        }
    }

    pub fn payload(&self) -> &[u8] {
        match self.place {
            Some((_, payload)) => &self.batch[payload.0..payload.1],
            None => &self.payload,
        }
    }

    pub fn payload_mut(&mut self) -> &mut Vec<u8> {
        self.leave_batch();
        &mut self.payload
    }

    /// Takes the first byte off the payload.
    pub(crate) fn cut_first(&mut self) {
        match &mut self.place {
            Some((_, payload)) => payload.0 = (payload.0 + 1).min(payload.1),
            None => _ = self.payload.drain(..self.payload.len().min(1)),
        }
    }

    pub(super) fn stand_at(&mut self, key: Span, payload: Span) {
        self.place = Some((key, payload));
    }

    /// Alone, with a key of the batch and no payload yet.
    pub(super) fn take_key(&mut self, key: Span) {
        self.stand_at(key, (key.1, key.1));
        self.leave_batch();
    }

    /// Key and payload of an entry that is alone from now on.
    pub(crate) fn alone_mut(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        self.leave_batch();
        (&mut self.key, &mut self.payload)
    }

    /// For the next batch: the entry is alone from now on.
    pub(super) fn next_batch(&mut self) -> &mut Vec<u8> {
        self.leave_batch();
        self.batch.clear();
        &mut self.batch
    }

    pub(super) fn batch(&self, span: Span) -> &[u8] {
        &self.batch[span.0..span.1]
    }

    fn leave_batch(&mut self) {
        let Some((key, payload)) = self.place.take() else { return };
        self.key.clear();
        self.key.extend_from_slice(&self.batch[key.0..key.1]);
        self.payload.clear();
        self.payload.extend_from_slice(&self.batch[payload.0..payload.1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(entry: &CursorEntry) -> (&[u8], &[u8]) {
        (entry.key(), entry.payload())
    }

    #[test]
    fn an_entry_outlives_its_batch() {
        let mut entry = CursorEntry::default();
        entry.next_batch().extend_from_slice(b"ab.xyzcd.w");
        entry.stand_at((0, 2), (2, 6));
        entry.cut_first();
        assert_eq!(parts(&entry), (&b"ab"[..], &b"xyz"[..]));
        entry.stand_at((6, 8), (8, 10));
        assert_eq!(parts(&entry), (&b"cd"[..], &b".w"[..]));
        entry.next_batch().extend_from_slice(b"12345");
        assert_eq!(parts(&entry), (&b"cd"[..], &b".w"[..]));
        entry.cut_first();
        assert_eq!(parts(&entry), (&b"cd"[..], &b"w"[..]));
        entry.take_key((1, 3));
        assert_eq!(parts(&entry), (&b"23"[..], &b""[..]));
        *entry.payload_mut() = b"p".to_vec();
        assert_eq!(parts(&entry), (&b"23"[..], &b"p"[..]));
    }

    #[test]
    fn an_empty_payload_stays_empty() {
        let mut entry = CursorEntry::default();
        entry.cut_first();
        entry.next_batch().extend_from_slice(b"k.");
        entry.stand_at((0, 1), (1, 2));
        entry.cut_first();
        entry.cut_first();
        assert_eq!(parts(&entry), (&b"k"[..], &b""[..]));
    }
}
