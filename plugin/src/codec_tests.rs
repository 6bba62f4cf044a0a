//! Random records through both codecs: keys order as values do, and everything comes back.
//!
//! Safety argument: a record is read only beside the buffers that its BLOB columns point to.

use crate::entry::{self, EntryBuffer};
use crate::key::{self, KeyMaker, PartEnds};
use crate::record::{put_variable, Record};
use crate::row;
use crate::shape::{Collator, Column, Index, Kind, Level, Order, Part, Shape};
use crate::testing::{CaseBlind, MarksLast, Random};
use sluice_engine::db::{KeyParts, ABSENT};
use std::cmp::Ordering;

fn level(flag: u32, weight: u8, is_padded: bool) -> Level {
    Level { flag, space_weight: vec![weight], is_padded }
}

fn column(kind: Kind, offset: usize, length: usize, order: Order, bit: u8) -> Column {
    Column {
        kind,
        offset,
        length,
        null: (bit != 0).then_some((0, bit)),
        length_bytes: if kind == Kind::Blob { 4 } else { 1 },
        order,
        space: vec![b' '],
        levels: vec![level(0, b' ', order == Order::Pad)],
        char_bytes_max: 1,
        expansion: 1,
        collation_id: 8,
        charset: 0,
        fingerprint: 7,
        is_virtual: false,
        spaces_count: false,
    }
}

const RECORD_BYTES: usize = 100;

fn columns() -> Vec<Column> {
    vec![
        column(Kind::Signed, 1, 4, Order::Binary, 0),
        column(Kind::Unsigned, 5, 8, Order::Binary, 1),
        column(Kind::Double, 13, 8, Order::Binary, 2),
        column(Kind::Float, 21, 4, Order::Binary, 4),
        column(Kind::Char, 25, 10, Order::Pad, 8),
        column(Kind::Varchar, 35, 20, Order::Pad, 16),
        column(Kind::Varchar, 56, 20, Order::Binary, 32),
        column(Kind::Varchar, 77, 10, Order::NoPad, 0),
        column(Kind::Blob, 88, 4, Order::Binary, 64),
    ]
}

fn shape_of(keys: Vec<Vec<(usize, Option<usize>, bool)>>) -> Shape {
    let part = |&(column, prefix, reverse): &(usize, Option<usize>, bool)| Part {
        column,
        prefix,
        reverse,
        image_bytes: 0,
    };
    let indexes = keys
        .iter()
        .enumerate()
        .map(|(i, k)| Index {
            parts: k.iter().map(part).collect(),
            unique: i == 0,
            ..Index::default()
        })
        .collect();
    Shape::new(columns(), indexes, false, defaults(), 1).unwrap()
}

/// The null byte of an empty record; the bytes of NULLs are none that a value leaves.
fn defaults() -> Vec<u8> {
    let mut defaults = vec![0xd7; RECORD_BYTES];
    defaults[0] = 0x80;
    defaults
}

/// A record, and the memory its BLOB points to.
fn sample(random: &mut Random, blob: &mut Vec<u8>) -> Vec<u8> {
    let mut record = vec![0u8; RECORD_BYTES];
    record[0] = 0x80 | (random.next() & random.next() & 0x7f) as u8;
    for c in columns() {
        if c.null.is_some_and(|(at, bit)| record[at] & bit != 0) {
            continue;
        }
        let small = |r: &mut Random| [0i64, 1, -1, 2, i64::MAX, i64::MIN, 255, 256][r.below(8)];
        let place = c.offset..c.offset + c.length;
        let text: Vec<u8> = (0..random.below(c.length.min(14) + 1))
            .map(|_| b"aB  \0\x1f\xff"[random.below(7)])
            .collect();
        match c.kind {
            Kind::Double => {
                let v = [0.0f64, -0.0, 1.5, -1.5, f64::MAX, f64::MIN, 1e-300][random.below(7)];
                record[place].copy_from_slice(&v.to_le_bytes());
            }
            Kind::Float => {
                let v = [0.0f32, -0.0, 1.5, -1.5, f32::MAX, f32::MIN][random.below(6)];
                record[place].copy_from_slice(&v.to_le_bytes());
            }
            Kind::Char => {
                record[place.clone()].fill(b' ');
                record[place.start..place.start + text.len()].copy_from_slice(&text);
            }
            Kind::Varchar => put_variable(&c, &text, &mut record),
            Kind::Blob => {
                *blob = (0..random.below(300)).map(|_| random.next() as u8).collect();
                put_variable(&c, blob, &mut record);
            }
            _ => record[place.clone()].copy_from_slice(&small(random).to_le_bytes()[..c.length]),
        }
    }
    record
}

fn view(record: &[u8]) -> Record<'_> {
    // SAFETY: `sample` keeps the BLOB's memory beside the record.
    unsafe { Record::new(record) }
}

/// How the server orders two values of a column.
fn reference(c: &Column, prefix: Option<usize>, a: Record<'_>, b: Record<'_>) -> Ordering {
    match (a.is_null(c), b.is_null(c)) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Less,
        (false, true) => return Ordering::Greater,
        _ => {}
    }
    let cut = |v: &[u8]| v[..prefix.unwrap_or(usize::MAX).min(v.len())].to_vec();
    let (x, y) = (cut(a.value(c)), cut(b.value(c)));
    let wide = |v: &[u8]| {
        let mut w = [0u8; 8];
        w[..v.len()].copy_from_slice(v);
        u64::from_le_bytes(w)
    };
    match c.kind {
        Kind::Unsigned => wide(&x).cmp(&wide(&y)),
        Kind::Signed => (wide(&x) as u32 as i32).cmp(&(wide(&y) as u32 as i32)),
        Kind::Double => f64::from_bits(wide(&x)).partial_cmp(&f64::from_bits(wide(&y))).unwrap(),
        Kind::Float => {
            f32::from_bits(wide(&x) as u32).partial_cmp(&f32::from_bits(wide(&y) as u32)).unwrap()
        }
        _ if c.order == Order::Binary => x.cmp(&y),
        _ => {
            let at = |v: &[u8], i: usize| v.get(i).map(u8::to_ascii_uppercase);
            let pad = c.order == Order::Pad || c.kind == Kind::Char;
            let end = if pad { Some(b' ') } else { None };
            (0..x.len().max(y.len()))
                .map(|i| at(&x, i).or(end).cmp(&at(&y, i).or(end)))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        }
    }
}

#[test]
fn keys_order_as_values() {
    let keys = vec![
        vec![(0, None, false)],
        vec![(5, None, false), (1, None, true)],
        vec![(6, Some(3), true), (4, Some(2), false)],
        vec![(7, None, false), (2, None, true), (3, None, false)],
        vec![(8, Some(5), false), (6, None, false)],
        vec![(4, None, true), (5, Some(1), true)],
    ];
    let shape = shape_of(keys);
    let mut random = Random::new(11);
    let (mut blob_a, mut blob_b) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let a = sample(&mut random, &mut blob_a);
        let b = sample(&mut random, &mut blob_b);
        let mut scratch = Vec::new();
        let mut maker = KeyMaker { shape: &shape, collator: &CaseBlind, scratch: &mut scratch };
        for i in 0..shape.indexes.len() {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            let null = maker.put_parts(i, view(&a), &mut x);
            maker.put_parts(i, view(&b), &mut y);
            let expect = shape.indexes[i].parts.iter().fold(Ordering::Equal, |o, p| {
                let part = reference(&shape.columns[p.column], p.prefix, view(&a), view(&b));
                o.then(if p.reverse { part.reverse() } else { part })
            });
            assert_eq!(x.cmp(&y), expect, "index {i}\n{a:x?}\n{b:x?}\n{x:x?}\n{y:x?}");
            let n = x.len();
            assert!((0..n).all(|cut| key::parts_len(&shape, i, &x[..cut]).is_err()), "{x:x?}");
            x.extend_from_slice(&y);
            assert_eq!(key::parts_len(&shape, i, &x).unwrap(), (n, null));
        }
    }
}

/// The columns of a record as values, which unpacking must give back.
fn values(shape: &Shape, only: &[usize], record: &[u8]) -> Vec<Option<Vec<u8>>> {
    let record = view(record);
    only.iter()
        .map(|&c| &shape.columns[c])
        .map(|c| (!record.is_null(c)).then(|| record.value(c).to_vec()))
        .collect()
}

#[test]
fn rows_and_covered_columns_come_back() {
    let keys = vec![
        vec![(0, None, true), (7, None, false)],
        vec![(5, None, false), (1, None, true)],
        vec![(6, None, true), (4, None, false), (2, None, false)],
    ];
    let shape = shape_of(keys);
    let mut random = Random::new(12);
    let mut blob = Vec::new();
    for _ in 0..20_000 {
        let record = sample(&mut random, &mut blob);
        let mut scratch = Vec::new();
        let mut maker = KeyMaker { shape: &shape, collator: &CaseBlind, scratch: &mut scratch };
        let mut clustered = Vec::new();
        maker.put_parts(0, view(&record), &mut clustered);
        for i in 0..shape.indexes.len() {
            let mut entry = clustered.clone();
            if i > 0 {
                entry.clear();
                maker.put_parts(i, view(&record), &mut entry);
                entry.extend_from_slice(&clustered);
            }
            let mut packed = Vec::new();
            row::pack(&shape, i, view(&record), &mut packed, None);
            // The buffer has another row's bytes.
            let mut back = vec![0x55; RECORD_BYTES];
            shape.put_null_bytes(&mut back);
            row::unpack(&shape, i, &packed, &[], &mut back).unwrap();
            key::take_columns(&shape, i, &entry, &mut back).unwrap();
            let mut only: Vec<usize> = (0..shape.columns.len()).collect();
            if i > 0 {
                let (found, rest) = entry::split(&shape, i, &entry, &packed).unwrap();
                assert_eq!((found, rest), (&clustered[..], &packed[..]));
                key::take_columns(&shape, 0, found, &mut back).unwrap();
                only = shape.indexes[i].parts.iter().map(|p| p.column).chain([0, 7]).collect();
            }
            assert_eq!(values(&shape, &only, &record), values(&shape, &only, &back));
            for column in only.iter().map(|&c| &shape.columns[c]) {
                let is_null = view(&back).is_null(column);
                assert!(!is_null || back[column.place()] == shape.defaults[column.place()]);
            }
        }
    }
}

#[test]
fn entries_give_back_their_row_and_columns() {
    let key = |column: usize| (column, None, false);
    let keys = [vec![key(0)], vec![key(7)], vec![key(1), key(5)], vec![key(4)]];
    let mut declared = shape_of(keys.to_vec());
    declared.indexes[1].unique = true;
    declared.indexes[2].unique = true;
    let hidden =
        Shape::new(columns(), declared.indexes[1..].to_vec(), true, defaults(), 1).unwrap();
    let mut random = Random::new(14);
    let (mut blob, mut scratch) = (Vec::new(), Vec::new());
    let (mut clustered, mut entry) = (EntryBuffer::default(), EntryBuffer::default());
    let mut met = [0; 2];
    for round in 0..4_000 {
        let shape = [&declared, &hidden][round % 2];
        let record = sample(&mut random, &mut blob);
        let record = view(&record);
        let mut maker = KeyMaker { shape, collator: &CaseBlind, scratch: &mut scratch };
        entry::make_clustered(&mut maker, record, &random.next().to_be_bytes(), &mut clustered);
        for i in 1..shape.indexes.len() {
            entry::make_secondary(&mut maker, i, record, &clustered.key, &mut entry);
            let parts = &shape.indexes[i].parts;
            let has_null = parts.iter().any(|p| record.is_null(&shape.columns[p.column]));
            assert_eq!(entry.unique, shape.indexes[i].unique && !has_null);
            let (n, _) = key::parts_len(shape, i, &entry.key).unwrap();
            assert_eq!(entry.key.len() == n, entry.unique, "the row's key is in the value");
            let mut stored = Vec::new();
            row::pack(shape, i, record, &mut stored, None);
            let found = entry::split(shape, i, &entry.key, &entry.payload).unwrap();
            assert_eq!(found, (&clustered.key[..], &stored[..]));
            if entry.unique {
                assert_eq!(entry::split_unique(&entry.payload).unwrap(), found);
            }
            met[usize::from(entry.unique)] += 1;
        }
    }
    assert!(met.iter().all(|count| *count > 1000), "{met:?}");
}

#[test]
fn damaged_rows_are_errors() {
    let shape = shape_of(vec![vec![(0, None, false)]]);
    let mut random = Random::new(13);
    let mut blob = Vec::new();
    for _ in 0..2_000 {
        let record = sample(&mut random, &mut blob);
        let mut packed = Vec::new();
        row::pack(&shape, 0, view(&record), &mut packed, None);
        let mut back = vec![0u8; RECORD_BYTES];
        assert!(row::unpack(&shape, 0, &packed[..packed.len() - 1], &[], &mut back).is_err());
        let at = random.below(packed.len());
        packed[at] ^= 1 << random.below(8);
        let _ = row::unpack(&shape, 0, &packed, &[], &mut back);
    }
}

/// Two levels: without regard to case first, then with it.
fn two_levels(order: Order) -> Shape {
    let mut columns = columns();
    columns[5].order = order;
    let (first, second) = (order == Order::Pad, order != Order::Stripped);
    columns[5].levels = vec![level(1, b' ', first), level(2, 1, second)];
    let index = |columns: &[usize]| Index {
        parts: columns
            .iter()
            .map(|&column| Part { column, prefix: None, reverse: false, image_bytes: 0 })
            .collect(),
        unique: true,
        ..Index::default()
    };
    Shape::new(columns, vec![index(&[0]), index(&[5, 0])], false, defaults(), 1).unwrap()
}

fn key_of(shape: &Shape, text: &[u8]) -> Vec<u8> {
    let mut record = vec![0u8; RECORD_BYTES];
    record[0] = 0x80;
    put_variable(&shape.columns[5], text, &mut record);
    let (mut key, mut scratch) = (Vec::new(), Vec::new());
    let mut maker = KeyMaker { shape, collator: &CaseBlind, scratch: &mut scratch };
    maker.put_parts(1, view(&record), &mut key);
    key
}

#[test]
fn a_further_level_decides_only_between_equals() {
    for order in [Order::Pad, Order::NoPad, Order::Stripped] {
        let shape = two_levels(order);
        let keys: Vec<_> = [&b"a"[..], b"A", b"aB", b"Ab", b"b"].map(|t| key_of(&shape, t)).into();
        assert!(keys.is_sorted(), "{order:?}");
        assert_ne!(keys[0], keys[1]);
        for key in &keys {
            assert_eq!(key::parts_len(&shape, 1, key).unwrap(), (key.len(), false));
        }
        let padded = key_of(&shape, b"a  ") == keys[0];
        assert_eq!(padded, order != Order::NoPad, "{order:?}");
    }
}

/// Keys over a CHAR and a VARCHAR whose collation weighs marks after the spaces.
#[test]
fn spaces_count_where_marks_weigh_behind_them() {
    let mut columns = columns();
    columns[4].spaces_count = true;
    columns[5].spaces_count = true;
    let index = |column| Index {
        parts: vec![Part { column, prefix: None, reverse: false, image_bytes: 0 }],
        unique: true,
        ..Index::default()
    };
    let indexes = vec![index(0), index(4), index(5)];
    let shape = Shape::new(columns, indexes, false, defaults(), 1).unwrap();
    let mut random = Random::new(11);
    let keys = |text: &[u8]| {
        let mut record = vec![0u8; RECORD_BYTES];
        record[0] = 0x80;
        record[25..35].fill(b' ');
        record[25..25 + text.len()].copy_from_slice(text);
        put_variable(&shape.columns[5], text, &mut record);
        [1, 2].map(|index| {
            let (mut key, mut scratch) = (Vec::new(), Vec::new());
            let mut maker = KeyMaker { shape: &shape, collator: &MarksLast, scratch: &mut scratch };
            maker.put_parts(index, view(&record), &mut key);
            assert_eq!(key::parts_len(&shape, index, &key).unwrap(), (key.len(), false));
            key
        })
    };
    // What the server compares: all of a CHAR, spaces included; of a VARCHAR what there is, as if
    // more spaces followed.
    let weights = |text: &[u8], chars: usize| {
        let mut out = Vec::new();
        let mut text = text.to_vec();
        text.resize(text.len().max(chars), b' ');
        MarksLast.weights(0, 0, 1, &text, &mut out);
        out.resize(20, b' ');
        out
    };
    for _ in 0..5000 {
        let [a, b] = [0; 2].map(|_| {
            let n = random.below(11);
            (0..n).map(|_| b"ab ^"[random.below(4)]).collect::<Vec<u8>>()
        });
        let ([c, v], [d, w]) = (keys(&a), keys(&b));
        assert_eq!(c.cmp(&d), weights(&a, 10).cmp(&weights(&b, 10)), "CHAR {a:x?} {b:x?}");
        assert_eq!(v.cmp(&w), weights(&a, 0).cmp(&weights(&b, 0)), "VARCHAR {a:x?} {b:x?}");
    }
}

#[test]
fn an_index_of_a_changed_collation_is_stale_and_others_are_not() {
    let built = two_levels(Order::Pad);
    let stored = built.definition();
    assert_eq!(built.stale_indexes(&stored), Some(vec![false, false]));
    let mut now = two_levels(Order::Pad);
    now.columns[5].fingerprint ^= 1;
    assert_eq!(now.stale_indexes(&stored), Some(vec![false, true]));
    // Not in a key: no matter.
    let mut now = two_levels(Order::Pad);
    now.columns[4].fingerprint ^= 1;
    assert_eq!(now.stale_indexes(&stored), Some(vec![false, false]));
    // Another table, or a damaged definition.
    let mut other = two_levels(Order::Pad);
    other.columns[5].length += 1;
    assert_eq!(other.stale_indexes(&stored), None);
    assert_eq!(built.stale_indexes(&stored[..stored.len() - 1]), None);
}

#[test]
fn only_wanted_columns_are_put_back() {
    let shape = shape_of(vec![vec![(0, None, false)]]);
    let (mut random, mut blob) = (Random::new(9), Vec::new());
    for _ in 0..200 {
        let record = sample(&mut random, &mut blob);
        let mut packed = Vec::new();
        row::pack(&shape, 0, view(&record), &mut packed, None);
        let wanted: Vec<bool> = shape.columns.iter().map(|_| random.below(2) == 1).collect();
        let mut back = vec![0xee; RECORD_BYTES];
        back[0] = 0x80;
        row::unpack(&shape, 0, &packed, &wanted, &mut back).unwrap();
        assert_eq!(back[0], record[0], "NULLs are always told");
        for c in shape.indexes[0].stored.columns() {
            let column = &shape.columns[c];
            let place = column.offset..column.offset + column.length_bytes.max(1);
            if !wanted[c] {
                assert!(back[place].iter().all(|&b| b == 0xee), "column {c} was not wanted");
            } else if !view(&record).is_null(column) {
                assert_eq!(view(&back).value(column), view(&record).value(column));
            }
        }
    }
}

/// The engine puts a mark where a part is that was not wanted.
#[test]
fn a_column_that_was_not_read_is_no_value() {
    let shape = shape_of(vec![vec![(0, None, false)]]);
    let (mut random, mut blob) = (Random::new(10), Vec::new());
    let mut marked = 0;
    for _ in 0..500 {
        let record = sample(&mut random, &mut blob);
        let (mut packed, mut parts) = (Vec::new(), Vec::new());
        row::pack(&shape, 0, view(&record), &mut packed, Some(&mut parts));
        for part in &parts {
            let c = usize::from(part.tag);
            let value = view(&record).value(&shape.columns[c]);
            assert!(packed[part.place.clone()].ends_with(value) && part.place.len() >= 64);
            let mut absent = packed[..part.place.start].to_vec();
            absent.extend_from_slice(&ABSENT);
            absent.extend_from_slice(&packed[part.place.end..]);
            let mut wanted = vec![true; shape.columns.len()];
            let mut back = vec![0; RECORD_BYTES];
            assert!(row::unpack(&shape, 0, &absent, &wanted, &mut back).is_err());
            wanted[c] = false;
            row::unpack(&shape, 0, &absent, &wanted, &mut back).unwrap();
            let others = shape.indexes[0].stored.columns().filter(|&other| other != c);
            for column in others.map(|other| &shape.columns[other]) {
                let is_null = view(&record).is_null(column);
                assert_eq!(view(&back).is_null(column), is_null);
                let same = || view(&back).value(column) == view(&record).value(column);
                assert!(is_null || same());
            }
            marked += 1;
        }
    }
    assert!(marked > 0, "no sample is long");
}

/// Clustered by (0, 7 DESC); a nullable secondary key, and a unique one without NULL.
fn with_statistics() -> Shape {
    let mut shape = shape_of(vec![
        vec![(0, None, false), (7, None, true)],
        vec![(5, None, false), (6, Some(3), true), (4, Some(2), false)],
        vec![(7, None, false), (0, None, true)],
    ]);
    shape.indexes[2].unique = true;
    shape.indexes[1].extended = vec![(0, 4), (7, 12)];
    shape
}

#[test]
fn ends_of_parts_are_found_in_whole_keys_and_in_their_beginnings() {
    let parts = PartEnds { shape: with_statistics() };
    assert_eq!([0, 1, 2].map(|index| parts.count(index)), [2, 5, 2]);
    assert_eq!(key::prefix_of_parts(&parts.shape, 1), [0, 1, 2, 3, 4]);
    let (mut random, mut blob) = (Random::new(21), Vec::new());
    for _ in 0..500 {
        let record = sample(&mut random, &mut blob);
        let mut scratch = Vec::new();
        let shape = &parts.shape;
        let mut maker = KeyMaker { shape, collator: &CaseBlind, scratch: &mut scratch };
        let mut clustered = Vec::new();
        maker.put_parts(0, view(&record), &mut clustered);
        for index in 0..3 {
            let mut key = Vec::new();
            maker.put_parts(index, view(&record), &mut key);
            let declared = key.len();
            if index == 1 {
                key.extend_from_slice(&clustered);
            }
            let mut all = Vec::new();
            parts.ends(index, &key, &mut all);
            assert_eq!(all.len(), parts.count(index));
            assert_eq!(all.last(), Some(&key.len()));
            assert_eq!(all[shape.indexes[index].parts.len() - 1], declared);
            for cut in 0..key.len() {
                let mut some = Vec::new();
                parts.ends(index, &key[..cut], &mut some);
                assert_eq!(some, all.iter().copied().filter(|&e| e <= cut).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_hidden_key_is_the_last_part() {
    let mut shape = with_statistics();
    shape.indexes[0] = Index { unique: true, ..Index::default() };
    shape.hidden_key = true;
    let parts = PartEnds { shape };
    assert_eq!([0, 1, 2].map(|index| parts.count(index)), [1, 4, 2]);
    let mut ends = Vec::new();
    parts.ends(0, &[1; 8], &mut ends);
    assert_eq!(ends, [8]);
    ends.clear();
    parts.ends(0, &[1; 7], &mut ends);
    assert_eq!(ends, [0; 0]);
}

/// Rows and keys as a damaged page would give them: whatever their bytes are, an error or a record.
#[test]
fn fuzz_rows_and_keys() {
    let keys = vec![
        vec![(0, None, false), (7, None, true)],
        vec![(5, None, false), (1, None, true)],
        vec![(6, Some(3), true), (4, Some(2), false), (2, None, false)],
    ];
    let shape = shape_of(keys);
    let mut random = Random::new(14);
    let (mut blob, mut corpus) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let record = sample(&mut random, &mut blob);
        let mut scratch = Vec::new();
        let mut maker = KeyMaker { shape: &shape, collator: &CaseBlind, scratch: &mut scratch };
        for i in 0..shape.indexes.len() {
            let (mut key, mut packed) = (Vec::new(), Vec::new());
            maker.put_parts(i, view(&record), &mut key);
            row::pack(&shape, i, view(&record), &mut packed, None);
            corpus.extend([key, packed].into_iter().filter(|input| !input.is_empty()));
        }
    }
    let mut record = vec![0u8; RECORD_BYTES];
    let parts = PartEnds { shape: shape.clone() };
    sluice_engine::os::fuzz::fuzz("rows and keys", &corpus, &mut |bytes| {
        for i in 0..shape.indexes.len() {
            let _ = row::unpack(&shape, i, bytes, &[], &mut record);
            let _ = key::parts_len(&shape, i, bytes);
            parts.ends(i, bytes, &mut Vec::new());
            let _ = key::take_columns(&shape, i, bytes, &mut record);
            let _ = entry::split(&shape, i, bytes, bytes);
        }
    });
}

#[test]
fn padding_comes_off_and_back() {
    for space in [&b" "[..], &[0, b' ']] {
        let mut column = columns().swap_remove(4);
        column.space = space.to_vec();
        for (text, spaces) in (0..40).flat_map(|n| (0..40).map(move |m| (n, m))) {
            // Spaces inside stay.
            let mut value: Vec<u8> = space.repeat(text);
            value.extend_from_slice(b"ab");
            let kept = value.len();
            value.extend(space.repeat(spaces));
            let trimmed = column.trim(&value).to_vec();
            assert_eq!(trimmed, value[..kept], "{text} {spaces} {space:?}");
            let mut back = vec![0x55; value.len()];
            back[..kept].copy_from_slice(&trimmed);
            column.put_spaces(&mut back[kept..]);
            assert_eq!(back, value);
            assert_eq!(column.trim(&value[kept..]), b"");
        }
    }
}
