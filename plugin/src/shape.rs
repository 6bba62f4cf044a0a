//! What the codecs know of a table: where its columns stand in the record, how they compare,
//! and what each index holds.
//!
//! Index 0 of a shape is the clustered index. A table without a primary key is clustered by a
//! hidden 8-byte big-endian number, and its declared keys begin at index 1.

use crate::order;
use sluice_engine::base::codec::{put_u8, put_varint};
use sluice_engine::base::{formats, Error, Result};

/// The server's collations, as the key codec needs them.
pub trait Collator {
    /// Appends the weight string of `value`, which must compare with `memcmp`.
    /// `level` is one of [`Column::levels`].
    fn weights(
        &self,
        charset: usize,
        level: u32,
        expansion: usize,
        value: &[u8],
        out: &mut Vec<u8>,
    );
    /// Bytes of the first `chars` characters.
    fn prefix(&self, charset: usize, value: &[u8], chars: usize) -> usize;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unsigned,
    Signed,
    Float,
    Double,
    Ordered,
    Char,
    Varchar,
    Blob,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Binary,
    Pad,
    NoPad,
    /// Without its trailing spaces, then as `NoPad`.
    Stripped,
}

/// One pass of a collation over a string; the next decides where this one finds no difference.
#[derive(Clone, Debug)]
pub struct Level {
    /// As the server names it; 0: the only one.
    pub flag: u32,
    pub space_weight: Vec<u8>,
    /// Compared as if the shorter string went on with spaces.
    pub is_padded: bool,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub kind: Kind,
    pub offset: usize,
    pub length: usize,
    /// Byte and bit in the record; `None` is NOT NULL.
    pub null: Option<(usize, u8)>,
    pub length_bytes: usize,
    pub order: Order,
    /// A space in the column's character set.
    pub space: Vec<u8>,
    /// Not empty in strings that are not binary.
    pub levels: Vec<Level>,
    pub char_bytes_max: usize,
    pub expansion: usize,
    pub collation_id: u32,
    /// The server's CHARSET_INFO; opaque here.
    pub charset: usize,
    /// A checksum of the collation's weights; 0 when the column is in no key.
    pub fingerprint: u64,
    /// The server computes it; it is in indexes only.
    pub is_virtual: bool,
    /// The collation moves weights after trailing spaces, so that these are weighed with the rest,
    /// in CHAR all that fill it.
    pub spaces_count: bool,
}

impl Column {
    pub fn is_string(&self) -> bool {
        matches!(self.kind, Kind::Char | Kind::Varchar | Kind::Blob)
    }

    /// Its bytes in the record.
    pub fn place(&self) -> std::ops::Range<usize> {
        let room = match self.kind {
            Kind::Varchar => self.length_bytes + self.length,
            Kind::Blob => self.length_bytes + 8,
            _ => self.length,
        };
        self.offset..self.offset + room
    }

    /// CHAR without its padding: that is how it is stored and compared.
    pub fn trim<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        order::trim(value, &self.space)
    }

    pub fn put_spaces(&self, to: &mut [u8]) {
        match self.space[..] {
            [space] => to.fill(space),
            _ => to.iter_mut().zip(self.space.iter().cycle()).for_each(|(to, from)| *to = *from),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub column: usize,
    /// Bytes of the value that take part, if not all of it.
    pub prefix: Option<usize>,
    pub reverse: bool,
    pub image_bytes: usize,
}

impl Part {
    /// Can the column be rebuilt from the bytes of the key?
    pub fn is_invertible(&self, columns: &[Column]) -> bool {
        let column = &columns[self.column];
        let whole = match column.kind {
            Kind::Unsigned | Kind::Signed | Kind::Ordered => true,
            // 0.0 and -0.0 share a key.
            Kind::Float | Kind::Double => false,
            Kind::Varchar => column.order == Order::Binary,
            Kind::Char | Kind::Blob => false,
        };
        whole && self.prefix.is_none()
    }

    /// Bytes of a value in keys, if each value has as many.
    pub fn fixed_bytes(&self, columns: &[Column]) -> Option<usize> {
        let column = &columns[self.column];
        match column.kind {
            Kind::Ordered => Some(self.prefix.unwrap_or(column.length)),
            Kind::Unsigned | Kind::Signed | Kind::Float | Kind::Double => Some(column.length),
            Kind::Char | Kind::Varchar | Kind::Blob => None,
        }
    }

    /// Does a secondary entry have the whole value?
    pub fn is_whole(&self, columns: &[Column]) -> bool {
        self.prefix.is_none() && columns[self.column].kind != Kind::Blob
    }
}

/// The columns that entries of an index have in their payload, by kind, each in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// Of all of them, those that may be NULL.
    pub nullable: Vec<usize>,
    pub fixed: Vec<usize>,
    pub variable: Vec<usize>,
}

impl Stored {
    fn new(stored: Vec<usize>, columns: &[Column]) -> Stored {
        let nullable = stored.iter().copied().filter(|&c| columns[c].null.is_some()).collect();
        let (variable, fixed) = stored.into_iter().partition(|&c| columns[c].is_string());
        Stored { nullable, fixed, variable }
    }

    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.variable.is_empty()
    }

    pub fn columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.fixed.iter().chain(&self.variable).copied()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Index {
    /// As declared.
    pub parts: Vec<Part>,
    /// Columns that the server appends from the primary key, with their bytes in key images.
    pub extended: Vec<(usize, usize)>,
    pub unique: bool,
    pub stored: Stored,
    /// Where the first parts end in every key, up to one that may be NULL or is not always as long.
    pub fixed_ends: Vec<usize>,
}

impl Index {
    fn find_fixed_ends(&mut self, columns: &[Column]) {
        self.fixed_ends.clear();
        let mut end = 0;
        for part in self.parts.iter().take_while(|part| columns[part.column].null.is_none()) {
            let Some(bytes) = part.fixed_bytes(columns) else { break };
            end += bytes;
            self.fixed_ends.push(end);
        }
    }
}

#[derive(Clone, Debug)]
pub struct Shape {
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    pub hidden_key: bool,
    /// A record with every default: its null bytes begin it, and a column that is NULL has its bytes.
    pub defaults: Vec<u8>,
    pub null_bytes: usize,
}

impl Shape {
    /// Checks that every place is inside the record and fills in what follows from the keys.
    /// `indexes` come in the server's order, the primary key first if there is one.
    pub fn new(
        columns: Vec<Column>,
        mut indexes: Vec<Index>,
        hidden_key: bool,
        defaults: Vec<u8>,
        null_bytes: usize,
    ) -> Result<Shape> {
        if hidden_key {
            indexes.insert(0, Index { unique: true, ..Index::default() });
        }
        for column in &columns {
            check_column(column, null_bytes, defaults.len())?;
        }
        if null_bytes > defaults.len() {
            return Err(Error::Refused("the null bytes do not fit the record".into()));
        }
        let parts_known = indexes.iter().all(|i| i.parts.iter().all(|p| p.column < columns.len()));
        if indexes.is_empty() || !parts_known {
            return Err(Error::Refused("key parts name columns that do not exist".into()));
        }
        let mut shape = Shape { columns, indexes, hidden_key, defaults, null_bytes };
        for i in 0..shape.indexes.len() {
            shape.indexes[i].stored = Stored::new(shape.stored_columns(i), &shape.columns);
            shape.indexes[i].find_fixed_ends(&shape.columns);
        }
        Ok(shape)
    }

    /// Clustered: every column that the key does not give back. Secondary: the columns of the
    /// key and of the primary key that the bytes do not give back.
    fn stored_columns(&self, index: usize) -> Vec<usize> {
        let clustered = &self.indexes[0].parts;
        let own = &self.indexes[index].parts;
        let given = |c: usize| {
            let inverts = |p: &Part| p.column == c && p.is_invertible(&self.columns);
            own.iter().any(inverts) || clustered.iter().any(inverts)
        };
        if index == 0 {
            let is_kept = |&c: &usize| !self.columns[c].is_virtual && !given(c);
            return (0..self.columns.len()).filter(is_kept).collect();
        }
        let mut out: Vec<usize> = own
            .iter()
            .chain(clustered)
            .filter(|p| p.is_whole(&self.columns) && !given(p.column))
            .map(|p| p.column)
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    pub fn record_bytes(&self) -> usize {
        self.defaults.len()
    }

    /// The null bytes of an empty record.
    pub fn put_null_bytes(&self, record: &mut [u8]) {
        record[..self.null_bytes].copy_from_slice(&self.defaults[..self.null_bytes]);
    }

    /// The server compares records byte by byte, so a column that is NULL has its default's bytes.
    pub fn put_null(&self, column: &Column, record: &mut [u8]) {
        if crate::planted::is("A2") {
            return;
        }
        let place = column.place();
        record[place.clone()].copy_from_slice(&self.defaults[place]);
    }

    /// The engine's number of the server's key.
    pub fn index_of_key(&self, key: usize) -> usize {
        key + usize::from(self.hidden_key)
    }

    pub fn key_of_index(&self, index: usize) -> usize {
        index.saturating_sub(usize::from(self.hidden_key))
    }

    /// What the stored bytes depend on, kept with the table and compared at open: first what has
    /// to be the same, then, by index, the fingerprints of the collations of its parts.
    pub fn definition(&self) -> Vec<u8> {
        let mut out = self.layout();
        for index in &self.indexes {
            for print in self.fingerprints(index) {
                out.extend_from_slice(&print.to_le_bytes());
            }
        }
        out
    }

    fn fingerprints<'a>(&'a self, index: &'a Index) -> impl Iterator<Item = u64> + 'a {
        let columns = index.parts.iter().map(|p| &self.columns[p.column]);
        columns.filter(|c| c.is_string() && c.order != Order::Binary).map(|c| c.fingerprint)
    }

    /// Which indexes were built with other weights than the server has now, one flag for each;
    /// `None` when the table is another one altogether.
    pub fn stale_indexes(&self, stored: &[u8]) -> Option<Vec<bool>> {
        let mut rest = stored.strip_prefix(&self.layout()[..])?;
        let mut stale = Vec::with_capacity(self.indexes.len());
        for index in &self.indexes {
            let mut differs = false;
            for print in self.fingerprints(index) {
                let (old, more) = rest.split_first_chunk::<8>()?;
                differs |= u64::from_le_bytes(*old) != print;
                rest = more;
            }
            stale.push(differs);
        }
        rest.is_empty().then_some(stale)
    }

    fn layout(&self) -> Vec<u8> {
        const DEFINITION_VERSION: u8 = formats::CURRENT.definition;
        let mut out = vec![DEFINITION_VERSION, u8::from(self.hidden_key)];
        put_varint(&mut out, self.columns.len() as u64);
        for c in &self.columns {
            out.extend_from_slice(&[c.kind as u8, c.order as u8, u8::from(c.null.is_some())]);
            put_varint(&mut out, c.length as u64);
            put_u8(&mut out, c.length_bytes as u8);
            put_u8(&mut out, u8::from(c.is_virtual));
            put_varint(&mut out, u64::from(if c.is_string() { c.collation_id } else { 0 }));
        }
        put_varint(&mut out, self.indexes.len() as u64);
        for index in &self.indexes {
            put_u8(&mut out, u8::from(index.unique));
            put_varint(&mut out, index.parts.len() as u64);
            for part in &index.parts {
                put_varint(&mut out, part.column as u64);
                put_varint(&mut out, part.prefix.map_or(0, |n| n as u64 + 1));
                put_u8(&mut out, u8::from(part.reverse));
            }
        }
        out
    }
}

fn check_column(column: &Column, null_bytes: usize, record_bytes: usize) -> Result<()> {
    let widths = match column.kind {
        Kind::Unsigned | Kind::Signed => (1..=8).contains(&column.length),
        Kind::Float => column.length == 4,
        Kind::Double => column.length == 8,
        Kind::Varchar => (1..=2).contains(&column.length_bytes),
        Kind::Blob => (1..=4).contains(&column.length_bytes),
        Kind::Char => !column.space.is_empty(),
        Kind::Ordered => true,
    };
    let weighed = column.is_string() && column.order != Order::Binary;
    let weights = (!weighed || !(column.levels.is_empty() || column.space.is_empty()))
        && column.levels.iter().all(|l| !l.is_padded || (1..=8).contains(&l.space_weight.len()));
    let null_inside = column.null.is_none_or(|(at, bit)| at < null_bytes && bit != 0);
    if column.place().end > record_bytes || !widths || !weights || !null_inside {
        return Err(Error::Refused(format!("a column does not fit its record: {column:?}")));
    }
    Ok(())
}
