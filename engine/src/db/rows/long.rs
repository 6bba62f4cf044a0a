//! Payloads that are too long for a leaf: what is out of line lies in chunks, which are entries of the
//! table's tree of long values (see `payload`), with versions like any other. So snapshots, rollback and
//! purge need no rule of their own for them.
//!
//! Invariants (rules M22):
//! 1. The newest version of a row and no other row refers to a chunk that is live. A version that replaces
//!    it takes the chunks over, or marks them deleted in the same transaction.
//! 2. So a snapshot that sees a version of a row sees its chunks. There is one exception: the transaction's
//!    own version may have taken over chunks of a commit that its snapshot does not see (see `overtaken`).
//!    Nobody else can have changed that row meanwhile: its newest chunks are the ones.

use super::payload::{
    are_in_order, choose, is_long, put_split, put_whole, Distant, Part, Reference, Stored, Wanted,
    ABSENT, CHUNK_BYTES, INLINE,
};
use super::trx::{Entry, Trx};
use crate::base::limits::ROW_BYTES_MAX;
use crate::base::{Error, Payload, Result};
use crate::db::lease::Purpose;
use crate::db::tables::Table;
use crate::os::planted::{self, Bug};
use crate::txn::{CursorEntry, Expect, Isolation, ReadMode, Written};
use std::sync::atomic::Ordering;

/// Four MiB of log.
const CHUNKS_PER_ADMISSION: u32 = 1024;

/// A value that is out of line, by the tag of its part; none: the whole payload.
type OldValue = (Option<u16>, Reference);

/// The parts of an entry that are out of line already, and stay as they are.
#[derive(Default)]
struct Kept(Vec<(u16, Reference)>);

impl Kept {
    fn get(&self, tag: u16) -> Option<Reference> {
        self.0.iter().find(|kept| kept.0 == tag).map(|kept| kept.1)
    }
}

/// Which version of a row is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowVersion {
    /// The newest: the row is locked, or perhaps the transaction's own.
    Newest,
    /// The one that the snapshot sees.
    Seen,
}

#[derive(Clone, Copy)]
struct Reading<'a> {
    version: RowVersion,
    /// A missing part is no damage.
    may_miss: bool,
    wanted: Wanted<'a>,
}

impl Trx {
    /// The stored form of an entry that is new. If it is long, its chunks are written, and `out` has
    /// what refers to them.
    pub(crate) fn store_payload<'p>(
        &mut self,
        table: &Table,
        entry: &Entry<'p>,
        out: &'p mut Vec<u8>,
    ) -> Result<Payload<'p>> {
        self.store(table, entry, &Kept::default(), out)
    }

    /// The stored form of `after` in the place of `before`, which is locked: it takes over the values
    /// that stay as they are, and the others of `before` are deleted.
    pub(crate) fn store_over<'p>(
        &mut self,
        table: &Table,
        index: usize,
        before: &Entry<'_>,
        after: &Entry<'p>,
        out: &'p mut Vec<u8>,
    ) -> Result<Payload<'p>> {
        if !is_long(before.payload) {
            return self.store(table, after, &Kept::default(), out);
        }
        let old = self.values_of(table, index, before.key)?;
        let kept = kept_values(&old, before, after);
        let is_kept = |tag: Option<u16>| {
            !planted::is(Bug::KeptValueDeleted) && tag.is_some_and(|tag| kept.get(tag).is_some())
        };
        for (_, value) in old.iter().filter(|old| !is_kept(old.0)) {
            self.delete_value(table, value)?;
        }
        self.engine.long_values.kept.fetch_add(kept.0.len() as u64, Ordering::Relaxed);
        self.store(table, after, &kept, out)
    }

    fn store<'p>(
        &mut self,
        table: &Table,
        entry: &Entry<'p>,
        kept: &Kept,
        out: &'p mut Vec<u8>,
    ) -> Result<Payload<'p>> {
        place(entry, kept, out, &mut |value| self.write_value(table, value))
    }

    fn write_value(&mut self, table: &Table, value: &[u8]) -> Result<Reference> {
        self.long_sequence += 1;
        let id = self.session.ensure_id().0;
        let reference = Reference { id, sequence: self.long_sequence, bytes: value.len() };
        for (chunk, bytes) in (0..).zip(value.chunks(CHUNK_BYTES)) {
            self.make_room(chunk)?;
            let key = reference.key(chunk);
            let written =
                self.session.write(&table.long_values, &key, Some(bytes.into()), Expect::Absent)?;
            assert_eq!(written, Written::Done, "keys of long values are used once");
            self.engine.long_values.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reference)
    }

    /// A value may be longer than the log: checkpoints go on while it is written.
    fn make_room(&self, chunk: u32) -> Result<()> {
        let is_interrupted = || self.session.is_interrupted();
        if chunk % CHUNKS_PER_ADMISSION == CHUNKS_PER_ADMISSION - 1 {
            self.engine.admit(Purpose::Add, &is_interrupted)?;
        }
        self.engine.check_room(Purpose::Add, &is_interrupted)
    }

    /// Replaces a stored payload by the payload itself. `false`: a part of it is gone.
    pub fn read_stored(&mut self, table: &Table, stored: &mut Vec<u8>) -> Result<bool> {
        self.load_payload(table, ReadMode::Snapshot, Wanted::All, stored)
    }

    /// Replaces a stored payload, as read from an entry, by the payload itself, with [`ABSENT`] for
    /// what is out of line and not wanted. `false`: a part of it is gone; only READ UNCOMMITTED may see
    /// that, whose rows nothing protects.
    pub(crate) fn load_payload(
        &mut self,
        table: &Table,
        mode: ReadMode,
        wanted: Wanted<'_>,
        stored: &mut Vec<u8>,
    ) -> Result<bool> {
        let version = match mode {
            ReadMode::Snapshot => RowVersion::Seen,
            ReadMode::Lock { .. } => RowVersion::Newest,
        };
        let may_miss = self.isolation() == Isolation::ReadUncommitted;
        self.load(table, Reading { version, may_miss, wanted }, stored)
    }

    /// As [`Trx::load_payload`], of an entry of a scan: one whose payload is all there stays where it lies.
    pub(crate) fn load_entry(
        &mut self,
        table: &Table,
        mode: ReadMode,
        wanted: Wanted<'_>,
        entry: &mut CursorEntry,
    ) -> Result<bool> {
        if entry.payload().first() == Some(&INLINE) {
            entry.cut_first();
            return Ok(true);
        }
        self.load_payload(table, mode, wanted, entry.payload_mut())
    }

    /// All of the payload of one version of an entry that is contested. `false`: a part of it is gone.
    /// Then the newest version's row is not this transaction's; the row of the seen one is, because
    /// this transaction has deleted the part.
    pub(crate) fn load_contested(
        &mut self,
        table: &Table,
        version: RowVersion,
        stored: &mut Vec<u8>,
    ) -> Result<bool> {
        self.load(table, Reading { version, may_miss: true, wanted: Wanted::All }, stored)
    }

    fn load(&mut self, table: &Table, reading: Reading<'_>, stored: &mut Vec<u8>) -> Result<bool> {
        if stored.first() == Some(&INLINE) {
            stored.drain(..1);
            return Ok(true);
        }
        // What a leaf holds is short.
        let mut leaf = std::mem::take(&mut self.scratch);
        leaf.clear();
        leaf.extend_from_slice(stored);
        stored.clear();
        let found = match Stored::decode(&leaf) {
            Err(error) => Err(error),
            Ok(Stored::Inline) => unreachable!("handled before"),
            Ok(Stored::Whole(value)) => reserve(stored, value.bytes)
                .and_then(|()| self.load_value(table, reading, &value, false, stored)),
            Ok(Stored::Split { distant, rest }) => {
                self.load_split(table, reading, &distant, rest, stored)
            }
        };
        self.scratch = leaf;
        found
    }

    fn load_split(
        &mut self,
        table: &Table,
        reading: Reading<'_>,
        distant: &[Distant],
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let bytes_of = |d: &Distant| match reading.wanted.has(d.tag) {
            true => d.value.bytes,
            false => ABSENT.len(),
        };
        reserve(out, rest.len() + distant.iter().map(bytes_of).sum::<usize>())?;
        let mut from = 0;
        for Distant { tag, at, value } in distant {
            out.extend_from_slice(&rest[from..*at]);
            from = *at;
            if !reading.wanted.has(*tag) {
                out.extend_from_slice(&ABSENT);
            } else if !self.load_value(table, reading, value, true, out)? {
                return Ok(false);
            }
        }
        out.extend_from_slice(&rest[from..]);
        Ok(true)
    }

    /// Appends a value. `is_shared`: versions of the row may share it, see invariant 2.
    fn load_value(
        &mut self,
        table: &Table,
        reading: Reading<'_>,
        value: &Reference,
        is_shared: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        let mut bytes = Vec::new();
        for chunk in 0..value.chunks() {
            let key = value.key(chunk);
            let found = self.load_chunk(table, reading.version, &key, is_shared, &mut bytes)?;
            if !found && reading.may_miss {
                return Ok(false);
            }
            if !found {
                let place = format!("{} chunk {chunk}", table.name);
                return Err(Error::corrupt("part of a long value is missing", place));
            }
            out.extend_from_slice(&bytes);
        }
        self.engine.long_values.read.fetch_add(u64::from(value.chunks()), Ordering::Relaxed);
        if out.len() - start != value.bytes {
            let place = table.name.clone();
            return Err(Error::corrupt("long value has another length", place));
        }
        Ok(true)
    }

    fn load_chunk(
        &mut self,
        table: &Table,
        version: RowVersion,
        key: &[u8],
        is_shared: bool,
        bytes: &mut Vec<u8>,
    ) -> Result<bool> {
        let gate = &table.long_values;
        let is_seen = version == RowVersion::Seen && self.session.get(gate, key, bytes)?;
        let may_be_newer = version == RowVersion::Newest || is_shared;
        Ok(is_seen || may_be_newer && self.session.get_newest(gate, key, bytes)?)
    }

    /// Deletes the chunks of what is stored under `key` of index `index`, which is locked.
    pub(crate) fn delete_long(&mut self, table: &Table, index: usize, key: &[u8]) -> Result<()> {
        for (_, value) in self.values_of(table, index, key)? {
            self.delete_value(table, &value)?;
        }
        Ok(())
    }

    fn delete_value(&mut self, table: &Table, value: &Reference) -> Result<()> {
        for chunk in 0..value.chunks() {
            let key = value.key(chunk);
            self.session.write(&table.long_values, &key, None, Expect::Present)?;
        }
        Ok(())
    }

    /// What is out of line of the entry under `key`, which is locked.
    fn values_of(&mut self, table: &Table, index: usize, key: &[u8]) -> Result<Vec<OldValue>> {
        let mut stored = Vec::new();
        if !self.session.get_newest(&table.gates[index], key, &mut stored)? {
            return Ok(Vec::new());
        }
        Ok(match Stored::decode(&stored)? {
            Stored::Inline => Vec::new(),
            Stored::Whole(value) => vec![(None, value)],
            Stored::Split { distant, .. } => {
                distant.iter().map(|d| (Some(d.tag), d.value)).collect()
            }
        })
    }
}

/// The stored form of an entry that is new, with its long values where `write` puts them.
pub(in crate::db) fn place_new<'p>(
    entry: &Entry<'p>,
    out: &'p mut Vec<u8>,
    write: &mut dyn FnMut(&[u8]) -> Result<Reference>,
) -> Result<Payload<'p>> {
    place(entry, &Kept::default(), out, write)
}

fn place<'p>(
    entry: &Entry<'p>,
    kept: &Kept,
    out: &'p mut Vec<u8>,
    write: &mut dyn FnMut(&[u8]) -> Result<Reference>,
) -> Result<Payload<'p>> {
    let payload = entry.payload;
    if !is_long(payload) {
        return Ok(Payload(&[INLINE], payload));
    }
    assert!(are_in_order(payload, entry.parts), "the parts of an entry follow each other");
    out.clear();
    if payload.len() > ROW_BYTES_MAX {
        return Err(Error::TooLarge { what: "row", bytes: payload.len(), limit: ROW_BYTES_MAX });
    }
    let Some(parts) = choose(payload, entry.parts, |part| kept.get(part.tag).is_some()) else {
        assert!(kept.0.is_empty(), "what was kept fits");
        let value = write(payload)?;
        put_whole(&value, out);
        return Ok(Payload::from(&out[..]));
    };
    let mut values = Vec::with_capacity(parts.len());
    for part in &parts {
        values.push(match kept.get(part.tag) {
            Some(value) => value,
            None => write(&payload[part.place.clone()])?,
        });
    }
    put_split(payload, &parts, &values, out);
    Ok(Payload::from(&out[..]))
}

/// Which values of `before` does `after` take over?
fn kept_values(old: &[OldValue], before: &Entry<'_>, after: &Entry<'_>) -> Kept {
    if !is_long(after.payload) {
        return Kept::default();
    }
    let part_of = |entry: &Entry<'_>, tag: u16| -> Option<Part> {
        entry.parts.iter().find(|part| part.tag == tag).cloned()
    };
    let stays = |&(tag, value): &OldValue| {
        let (was, is) = (part_of(before, tag?)?, part_of(after, tag?)?);
        let was = &before.payload[was.place];
        (was.len() == value.bytes && was == &after.payload[is.place]).then_some((tag?, value))
    };
    let kept = Kept(old.iter().filter_map(stays).collect());
    match choose(after.payload, after.parts, |part| kept.get(part.tag).is_some()) {
        Some(_) => kept,
        // It is stored as a whole.
        None => Kept::default(),
    }
}

fn reserve(out: &mut Vec<u8>, bytes: usize) -> Result<()> {
    if out.try_reserve_exact(bytes).is_err() {
        return Err(Error::TooLarge {
            what: "row for the memory there is",
            bytes,
            limit: out.capacity(),
        });
    }
    Ok(())
}
