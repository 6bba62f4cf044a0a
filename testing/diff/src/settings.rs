//! Settings of a session, and beginnings and ends of transactions.

use crate::chance::Chance;
use crate::gen::Planned;
use crate::session::SIDE_MARK;
use sluice_rig::rng::Rng;

const SWITCHES: [&str; 18] = [
    "index_merge=off",
    "index_merge_intersection=off",
    "index_merge_union=off",
    "index_merge_sort_union=off",
    "index_merge_sort_intersection=on",
    "index_condition_pushdown=off",
    "derived_merge=off",
    "firstmatch=off",
    "loosescan=off",
    "materialization=off",
    "in_to_exists=off",
    "semijoin=off",
    "subquery_cache=off",
    "mrr=on,mrr_sort_keys=on",
    "mrr=on,mrr_cost_based=off",
    "join_cache_incremental=off",
    "extended_keys=off",
    "rowid_filter=off",
];

const MODES: [&str; 6] = [
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION",
    "",
    "NO_ENGINE_SUBSTITUTION",
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE",
    "STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO",
    "STRICT_TRANS_TABLES,PAD_CHAR_TO_FULL_LENGTH",
];

pub fn session(rng: &mut Rng) -> Vec<Planned> {
    let sql = match rng.below(8) {
        0 | 1 => {
            let some = rng.some(&SWITCHES, 1, 5).join(",");
            format!("SET optimizer_switch='default,{some}'")
        }
        2 => "SET optimizer_switch='default'".to_owned(),
        3 => format!("SET join_cache_level={}", rng.between(0, 8)),
        4 => format!("SET sql_mode='{}'", rng.one(&MODES)),
        5 => "SET sql_mode=DEFAULT".to_owned(),
        6 => format!("SET timestamp={}", 1_700_000_000 + rng.between(0, 9)),
        _ => format!(
            "SET optimizer_use_condition_selectivity={}, auto_increment_increment={}",
            rng.between(1, 4),
            rng.one(&["1", "1", "3"])
        ),
    };
    vec![Planned::plain(sql)]
}

pub const LEVELS: [&str; 4] =
    ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

pub fn transaction(rng: &mut Rng, fresh: &str) -> Vec<Planned> {
    let one = |sql: String| vec![Planned::plain(sql)];
    match rng.weighted(&[20, 14, 10, 8, 8, 5, 6, 4, 6, 3]) {
        0 => one("BEGIN".into()),
        1 => one("COMMIT".into()),
        2 => one("ROLLBACK".into()),
        3 => one(format!("SAVEPOINT s{}", rng.between(1, 2))),
        4 => one(format!("ROLLBACK TO SAVEPOINT s{}", rng.between(1, 2))),
        5 => one(format!("SET autocommit={}", rng.between(0, 1))),
        6 => one(format!("SET TRANSACTION ISOLATION LEVEL {}", rng.one(&LEVELS))),
        7 => one("START TRANSACTION WITH CONSISTENT SNAPSHOT".into()),
        8 => xa(rng, fresh),
        _ => one(rng.one(&["COMMIT AND CHAIN", "RELEASE SAVEPOINT s1"]).to_owned()),
    }
}

/// One of the calls, so that statements come between them.
fn xa(rng: &mut Rng, _fresh: &str) -> Vec<Planned> {
    let id = format!("'x{SIDE_MARK}'");
    let calls = match rng.below(4) {
        0 => vec![format!("XA START {id}")],
        1 => vec![format!("XA END {id}"), format!("XA PREPARE {id}"), format!("XA COMMIT {id}")],
        2 => vec![format!("XA END {id}"), format!("XA ROLLBACK {id}")],
        _ => vec![format!("XA END {id}"), format!("XA COMMIT {id} ONE PHASE")],
    };
    calls.into_iter().map(Planned::plain).collect()
}
