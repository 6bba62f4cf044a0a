//! The C header and its Rust mirror say the same: every exported function with its number of
//! arguments, and the size and field order of every structure.

use ha_sluice::abi::*;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

const HEADER: &str = include_str!("../src/cpp/sluice_abi.h");
const CALLS: &str = concat!(
    include_str!("../src/abi_calls.rs"),
    include_str!("../src/abi_alter.rs"),
    include_str!("../src/abi_binlog.rs")
);

fn arguments(list: &str) -> usize {
    let list = list.trim().trim_end_matches(',');
    if list.is_empty() || list == "void" {
        0
    } else {
        list.split(',').count()
    }
}

/// `name -> argument count` of everything that looks like `start name(...)` and ends with `end`.
fn functions(text: &str, is_name: impl Fn(&str) -> Option<String>) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    let mut rest = text;
    while let Some(open) = rest.find('(') {
        let close = open + rest[open..].find(')').expect("balanced");
        if let Some(name) = is_name(&rest[..open]) {
            out.insert(name, arguments(&rest[open + 1..close]));
        }
        rest = &rest[open + 1..];
    }
    out
}

fn last_word(text: &str) -> &str {
    text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

#[test]
fn every_function_of_the_header_is_exported_with_its_arguments() {
    let body = &HEADER[HEADER.find("/* The engine */").expect("the functions")..];
    let c = functions(body, |before| {
        let name = last_word(before);
        name.starts_with("sluice_").then(|| name.to_owned())
    });
    let rust = functions(CALLS, |before| {
        let name = last_word(before);
        (name.starts_with("sluice_") && before.ends_with(&format!("fn {name}")))
            .then(|| name.to_owned())
    });
    assert!(c.len() > 40, "the header was not understood: {c:?}");
    assert_eq!(c, rust);
}

/// Names of the fields of a structure in the header, in order.
fn fields(name: &str) -> Vec<String> {
    let start = HEADER.find(&format!("typedef struct {name}\n")).expect("the structure");
    let body = &HEADER[start..];
    let body = &body[body.find('{').expect("{") + 1..body.find(&format!("}} {name};")).expect("}")];
    let mut code = String::new();
    let mut rest = body;
    while let Some(at) = rest.find("/*") {
        code.push_str(&rest[..at]);
        rest = &rest[at + rest[at..].find("*/").expect("comment ends") + 2..];
    }
    code.push_str(rest);
    code.split(';')
        .map(|f| f.split('[').next().unwrap_or("").trim())
        .filter(|f| !f.is_empty())
        .map(|f| last_word(f).to_owned())
        .collect()
}

macro_rules! same {
    ($c:literal, $rust:ident, $bytes:expr, $($field:ident @ $at:expr),+) => {
        assert_eq!(fields($c), [$(stringify!($field)),+], $c);
        assert_eq!(size_of::<$rust>(), $bytes, $c);
        $(assert_eq!(offset_of!($rust, $field), $at, "{}.{}", $c, stringify!($field));)+
    };
}

#[test]
fn structures_have_the_same_fields_at_the_same_places() {
    same!("sluice_column", AbiColumn, 64, kind @ 0, offset @ 4, length @ 8, null_offset @ 12,
        null_bit @ 16, length_bytes @ 17, order @ 18, space_bytes @ 19, space @ 20,
        char_bytes_max @ 24, expansion @ 28, collation_id @ 32, levels @ 36, charset @ 40,
        fingerprint @ 48, flags @ 56, reserved @ 60);
    same!("sluice_key_part", AbiKeyPart, 16, column @ 0, length @ 4, flags @ 8, image_bytes @ 12);
    same!("sluice_key", AbiKey, 24, parts @ 0, part_count @ 8, extended_count @ 12, flags @ 16,
        reserved @ 20);
    same!("sluice_table", AbiTable, 48, columns @ 0, keys @ 8, defaults @ 16, column_count @ 24,
        key_count @ 28, primary @ 32, record_bytes @ 36, null_bytes @ 40, reserved @ 44);
    same!("sluice_config", AbiConfig, 64, data_dir @ 0, log_dir @ 8, buffer_pool_bytes @ 16,
        log_capacity_bytes @ 24, flush_at_commit @ 32, compression @ 36,
        log_compression @ 40, space_amplification_pct @ 44, encrypts @ 48,
        encryption_key_id @ 52, rotate_key_age @ 56, page_deltas @ 60);
    same!("sluice_watch", AbiWatch, 264, locker @ 0, state @ 8);
    same!("sluice_xid", AbiXid, 152, format @ 0, gtrid_bytes @ 8, bqual_bytes @ 16, data @ 24);
    same!("sluice_status_value", AbiStatusValue, 72, name @ 0, value @ 64);
    same!("sluice_writes", AbiWrites, 56, log @ 0, build @ 8, eviction @ 16, checkpoint @ 24,
        gc @ 32, other @ 40, total @ 48);
    same!("sluice_info", AbiInfo, 48, rows @ 0, data_bytes @ 8, index_bytes @ 16,
        next_autoinc @ 24, clustered_pages @ 32, statistics_version @ 40);
    same!("sluice_autoinc", AbiAutoinc, 40, offset @ 0, increment @ 8, rows @ 16, max @ 24,
        is_alter @ 32);
    same!("sluice_key_statistics", AbiKeyStatistics, 536, entries @ 0, leaf_pages @ 8,
        distinct @ 16, count @ 528, reserved @ 532);
    same!("sluice_range", AbiRange, 24, rows @ 0, first_page @ 8, last_page @ 16);
    same!("sluice_bound", AbiBound, 24, image @ 0, image_bytes @ 8, parts @ 16, inclusive @ 20);
}
