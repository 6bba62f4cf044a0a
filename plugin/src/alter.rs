//! ALTER TABLE of indexes in place: the entries of new secondary indexes, made from the rows as they
//! are read.

use crate::engine;
use crate::entry::{self, EntryBuffer};
use crate::handler::{name_keys, Handler};
use crate::key::KeyMaker;
use crate::record::Record;
use crate::shape::{Collator, Column, Shape};
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{AlteredIndex, Engine, IndexBuild, Killed};
use std::sync::Arc;

pub struct Alter {
    /// The table as it will be; its columns stand where they stood.
    shape: Shape,
    collator: &'static (dyn Collator + Sync),
    build: IndexBuild,
    /// New indexes, by their numbers in `shape`.
    new: Vec<usize>,
    clustered: Vec<u8>,
    entry: EntryBuffer,
    scratch: Vec<u8>,
}

/// A row that has the key of another one.
pub struct Duplicate {
    /// The server's key, in the table as it would be.
    pub key: usize,
    pub clustered: Vec<u8>,
}

/// Do rows and index entries have the same bytes?
fn is_same(old: &Column, new: &Column) -> bool {
    let stored = |c: &Column| (c.kind, c.offset, c.length, c.null, c.length_bytes, c.order);
    stored(old) == stored(new)
        && (old.collation_id, old.is_virtual) == (new.collation_id, new.is_virtual)
}

impl Alter {
    /// `kept`: for each key of the server in `shape`, which key it is now, if it is there.
    pub fn begin(
        engine: &Arc<Engine>,
        handler: &Handler,
        shape: Shape,
        kept: &[Option<usize>],
        killed: &Killed<'_>,
    ) -> Result<Alter> {
        let old = &handler.shape;
        let same_columns = old.columns.len() == shape.columns.len()
            && old.columns.iter().zip(&shape.columns).all(|(a, b)| is_same(a, b));
        let same_record = (old.record_bytes(), old.null_bytes, old.hidden_key)
            == (shape.record_bytes(), shape.null_bytes, shape.hidden_key);
        if handler.is_stale() || !same_columns || !same_record {
            return Err(not_in_place());
        }
        let hidden = shape.hidden_key.then_some(AlteredIndex::Kept(0));
        let declared = kept.iter().zip(shape.indexes.iter().skip(hidden.iter().count()));
        let altered = declared.map(|(kept, index)| match kept {
            Some(key) => AlteredIndex::Kept(old.index_of_key(*key)),
            None => AlteredIndex::New { unique: index.unique },
        });
        let indexes: Vec<AlteredIndex> = hidden.into_iter().chain(altered).collect();
        let is_kept_well = |(at, index): (usize, &AlteredIndex)| match *index {
            AlteredIndex::Kept(i) => old.indexes.get(i).is_some_and(|old| {
                let new = &shape.indexes[at];
                (&old.parts, old.unique, &old.stored) == (&new.parts, new.unique, &new.stored)
            }),
            AlteredIndex::New { .. } => true,
        };
        if indexes.len() != shape.indexes.len() || !indexes.iter().enumerate().all(is_kept_well) {
            return Err(not_in_place());
        }
        let new = (0..indexes.len()).filter(|&i| matches!(indexes[i], AlteredIndex::New { .. }));
        Ok(Alter {
            new: new.collect(),
            build: engine.alter_indexes(
                handler.table.name(),
                &indexes,
                shape.definition(),
                killed,
            )?,
            collator: handler.collator(),
            shape,
            clustered: Vec::new(),
            entry: EntryBuffer::default(),
            scratch: Vec::new(),
        })
    }

    /// A row, and its hidden key if the table has one.
    pub fn add(&mut self, record: Record<'_>, hidden: &[u8]) -> Result<()> {
        let Alter { shape, collator, build, new, clustered, entry, scratch } = self;
        let mut maker = KeyMaker { shape, collator: *collator, scratch };
        clustered.clear();
        entry::put_clustered_key(&mut maker, record, hidden, clustered);
        for (number, &index) in new.iter().enumerate() {
            entry::make_secondary(&mut maker, index, record, clustered, entry);
            build.add(number, &entry.key, &entry.payload)?;
        }
        Ok(())
    }

    /// All rows are in. Of two rows with one key it names the one that comes later.
    pub fn build(&mut self, killed: &Killed<'_>) -> Result<Option<Duplicate>> {
        let Some(found) = self.build.build(killed)? else { return Ok(None) };
        let [one, other] = &found.payloads;
        let clustered = entry::split_unique(one)?.0.max(entry::split_unique(other)?.0).to_vec();
        let key = self.shape.key_of_index(self.new[found.index]);
        Ok(Some(Duplicate { key, clustered }))
    }

    /// The table is the altered one from here on, with statistics of all of its indexes.
    pub fn commit(self, engine: &Engine, killed: &Killed<'_>) -> Result<()> {
        let (table, durability) = self.build.put()?;
        engine::settle("ALTER TABLE", durability)?;
        name_keys(&table, &self.shape);
        // The optimizer has estimates until the background takes them.
        let _ = engine.analyze_table(table.name(), 0, killed);
        Ok(())
    }
}

fn not_in_place() -> Error {
    Error::Refused("this change of the table needs a copy: use ALGORITHM=COPY".into())
}
