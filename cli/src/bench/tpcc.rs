//! The workload of tpcc.lua: its options, its mix, and what must hold between its tables.

use super::params::Params;
use crate::db::{Client, Dsn};
use crate::Result;
use serde_json::{json, Map, Value};
use std::time::Duration;

pub const WORKLOAD: &str = "tpcc";

pub const TABLES: [&str; 9] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "orders",
    "new_orders",
    "order_line",
    "stock",
    "item",
];

/// Of a statement that reads all orders.
const LIMIT: Duration = Duration::from_secs(3600);

const KINDS: [&str; 6] =
    ["new_order", "payment", "order_status", "delivery", "stock_level", "rolled_back"];

/// Warehouses, and the part of the specification's rows in percent.
fn sizes(params: &Params) -> (u32, u32) {
    (params.warehouses.unwrap_or(1), params.scale_percent.unwrap_or(100))
}

pub fn options(params: &Params) -> Vec<String> {
    let (warehouses, percent) = sizes(params);
    vec![format!("--warehouses={warehouses}"), format!("--scale_percent={percent}")]
}

/// Rows as loaded; a run adds orders.
pub fn data_bytes(params: &Params) -> u64 {
    let (warehouses, percent) = sizes(params);
    let (items, warehouse) = (10_000_000, 80_000_000);
    (items + u64::from(warehouses) * warehouse) * u64::from(percent) / 100
}

/// Transactions of each kind: the sum of what each thread printed in its end. Those that were rolled
/// back are New-Orders and count among these.
pub fn mix(text: &str) -> Option<Value> {
    let mut sums: Option<[u64; KINDS.len()]> = None;
    for line in text.lines().filter_map(|line| line.strip_prefix("tpcc ")) {
        let counts: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let sums = sums.get_or_insert_default();
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let pairs = KINDS.iter().zip(sums?).map(|(kind, sum)| (kind.to_string(), json!(sum)));
    Some(Value::Object(Map::from_iter(pairs)))
}

/// Conditions of the specification (3.3.2), by their numbers there, each a query of the rows that
/// break it.
const CONDITIONS: [(u32, &str, &str); 6] = [
    (
        1,
        "W_YTD = sum(D_YTD)",
        "SELECT w_id FROM warehouse WHERE NOT w_ytd <=> \
         (SELECT SUM(d_ytd) FROM district WHERE d_w_id = w_id)",
    ),
    (
        2,
        "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        // A district without new orders has no max(NO_O_ID).
        "SELECT d_w_id, d_id FROM district WHERE NOT d_next_o_id - 1 <=> \
         (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) OR d_next_o_id - 1 <> \
         (SELECT MAX(no_o_id) FROM new_orders WHERE no_w_id = d_w_id AND no_d_id = d_id)",
    ),
    (
        3,
        "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of new_orders",
        "SELECT no_w_id, no_d_id FROM new_orders GROUP BY no_w_id, no_d_id \
         HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)",
    ),
    (
        4,
        "sum(O_OL_CNT) = rows of order_line",
        "SELECT o_w_id, o_d_id FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS named FROM orders \
         GROUP BY o_w_id, o_d_id) AS heads LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS found \
         FROM order_line GROUP BY ol_w_id, ol_d_id) AS bodies ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
         WHERE NOT named <=> found",
    ),
    (
        5,
        "O_CARRIER_ID is null where new_orders has the order",
        "SELECT o_w_id, o_d_id, o_id FROM orders LEFT JOIN new_orders \
         ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        9,
        "D_YTD = sum(H_AMOUNT)",
        "SELECT d_w_id, d_id FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid \
         FROM history GROUP BY h_w_id, h_d_id) AS sums ON h_w_id = d_w_id AND h_d_id = d_id \
         WHERE NOT d_ytd <=> paid",
    ),
];

/// Refuses tables that no sequence of whole transactions leaves behind.
pub fn check(dsn: &Dsn, schema: &str) -> Result<()> {
    let mut client = Client::connect_with_limit(dsn, LIMIT)?;
    client.execute(&format!("USE `{schema}`"))?;
    for (number, what, sql) in CONDITIONS {
        let broken = client.rows(sql)?;
        let Some(first) = broken.first() else { continue };
        let first: Vec<String> =
            first.iter().map(|(name, value)| format!("{name} {value}")).collect();
        return Err(format!(
            "condition {number} of TPC-C, {what}, does not hold for {} rows, {} among them",
            broken.len(),
            first.join(", ")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = include_str!("tpcc.lua");

    #[test]
    fn the_script_makes_these_tables_and_takes_these_options() {
        let made: Vec<&str> = SCRIPT
            .lines()
            .filter_map(|line| line.strip_prefix("  {\"")?.split_once("\", \"").map(|pair| pair.0))
            .collect();
        assert_eq!(made, TABLES);
        let params = Params { warehouses: Some(3), scale_percent: Some(5), ..Params::default() };
        for option in options(&params) {
            let name = option.trim_start_matches("--").split('=').next().unwrap().to_string();
            assert!(SCRIPT.contains(&format!("  {name} = {{\"")), "{option}");
        }
    }

    #[test]
    fn counts_of_all_threads() {
        let text = "[ 1s ] thds: 2\ntpcc 45 43 4 4 4 1\ntpcc 5 7 0 0 1 0\n";
        let sums = mix(text).unwrap();
        assert_eq!((&sums["new_order"], &sums["payment"]), (&json!(50), &json!(50)));
        assert_eq!((&sums["stock_level"], &sums["rolled_back"]), (&json!(5), &json!(1)));
        assert_eq!(mix("no such line"), None);
    }
}
