//! A trace like TPC-C's: hot warehouses and districts, uniform stock, orders that are appended at
//! ten places per warehouse. Only tables that are written, and those read that fill the pool.

use crate::sizes::{Codec, LogSizes};
use crate::workload::{below, Visit};
use sluice_rig::rng::Rng;

/// Rows of each table per warehouse, and per leaf: sizes of the rows in TPC-C, with the entry's
/// header, in leaves that a load has filled.
const STOCK: (u32, u32) = (100_000, 46);
const CUSTOMERS: (u32, u32) = (30_000, 27);
const ORDER_LINES_PER_LEAF: u32 = 170;
const ORDERS_PER_LEAF: u32 = 290;
const HISTORY_PER_LEAF: u32 = 190;
const DISTRICTS: u32 = 10;
/// Leaves of items, which all warehouses share and nobody changes.
const ITEM_LEAVES: u32 = 850;
/// Orders that were there at the start, by warehouse.
const ORDERS_LOADED: u32 = 30_000;

/// Changes: quantity and counters of a stock row, of customers with their data, whole new rows.
const STOCK_CHANGE: u32 = 40;
const CUSTOMER_CHANGE: u32 = 60;
const COUNTER_CHANGE: u32 = 30;
const ORDER_LINE: u32 = 90;
const ORDER: u32 = 55;
const HISTORY: u32 = 80;
const DELIVERY_LINE_CHANGE: u32 = 30;

/// Text of TPC-C compresses to about this share of a page.
const IMAGE_LZ4: u32 = 9_800;
const IMAGE_ZSTD: u32 = 7_200;

/// A growing sequence of rows at one place.
#[derive(Clone, Copy)]
struct Tail {
    page: u32,
    room: u32,
}

pub struct Tpcc {
    warehouses: u32,
    codec: Codec,
    loaded: u32,
    next_page: u32,
    lines: Vec<Tail>,
    orders: Vec<Tail>,
    history: Tail,
    /// Pages of order lines that wait for their delivery, by district.
    undelivered: Vec<std::collections::VecDeque<u32>>,
}

impl Tpcc {
    /// Estimated, not measured: rows of TPC-C, before and after in the binlog, before and changes in
    /// the record; 0.45 new orders of ten lines, 0.43 payments, 0.04 deliveries.
    pub const LOG: LogSizes =
        LogSizes { records: 9300, plain: 9600, lz4: 4500, zstd: 3500, binlog: 5600 };

    pub fn new(warehouses: u32, codec: Codec) -> Tpcc {
        let leaves = |(rows, per_leaf): (u32, u32)| rows.div_ceil(per_leaf);
        let orders = ORDERS_LOADED * 10 / ORDER_LINES_PER_LEAF + ORDERS_LOADED / ORDERS_PER_LEAF;
        let per_warehouse = leaves(STOCK) + leaves(CUSTOMERS) + 2 + orders;
        let loaded = ITEM_LEAVES + warehouses * per_warehouse;
        let mut tpcc = Tpcc {
            warehouses,
            codec,
            loaded,
            next_page: loaded,
            lines: Vec::new(),
            orders: Vec::new(),
            history: Tail { page: 0, room: 0 },
            undelivered: vec![Default::default(); (warehouses * DISTRICTS) as usize],
        };
        let none = Tail { page: 0, room: 0 };
        tpcc.lines = vec![none; (warehouses * DISTRICTS) as usize];
        tpcc.orders = tpcc.lines.clone();
        tpcc
    }

    pub fn loaded_pages(&self) -> u32 {
        self.loaded
    }

    pub fn image_bytes(&self, _page: u32) -> u32 {
        match self.codec {
            Codec::Lz4 => IMAGE_LZ4,
            Codec::Zstd => IMAGE_ZSTD,
        }
    }

    fn first_page(&self, warehouse: u32) -> u32 {
        ITEM_LEAVES + warehouse * ((self.loaded - ITEM_LEAVES) / self.warehouses)
    }

    pub fn next(&mut self, rng: &mut Rng, visits: &mut Vec<Visit>) {
        let warehouse = below(rng, u64::from(self.warehouses)) as u32;
        match below(rng, 100) {
            0..=44 => self.new_order(warehouse, rng, visits),
            45..=87 => self.payment(warehouse, rng, visits),
            88..=91 => self.delivery(warehouse, rng, visits),
            92..=95 => self.stock_level(warehouse, rng, visits),
            _ => {
                let page = self.customer(warehouse, rng);
                visits.push(Visit { page, change_bytes: 0 });
            }
        }
    }

    fn new_order(&mut self, warehouse: u32, rng: &mut Rng, visits: &mut Vec<Visit>) {
        let first = self.first_page(warehouse);
        let district = warehouse * DISTRICTS + below(rng, u64::from(DISTRICTS)) as u32;
        visits.push(Visit { page: first, change_bytes: 0 });
        visits.push(Visit { page: first + 1, change_bytes: COUNTER_CHANGE });
        visits.push(Visit { page: self.customer(warehouse, rng), change_bytes: 0 });
        let page = grow(&mut self.orders[district as usize], ORDERS_PER_LEAF, &mut self.next_page);
        visits.push(Visit { page, change_bytes: ORDER });
        for _ in 0..10 {
            let item = below(rng, u64::from(ITEM_LEAVES)) as u32;
            visits.push(Visit { page: item, change_bytes: 0 });
            let page = self.stock(warehouse, rng);
            visits.push(Visit { page, change_bytes: STOCK_CHANGE });
            let tail = &mut self.lines[district as usize];
            let page = grow(tail, ORDER_LINES_PER_LEAF, &mut self.next_page);
            visits.push(Visit { page, change_bytes: ORDER_LINE });
        }
        let page = self.lines[district as usize].page;
        self.undelivered[district as usize].push_back(page);
    }

    fn payment(&mut self, warehouse: u32, rng: &mut Rng, visits: &mut Vec<Visit>) {
        let first = self.first_page(warehouse);
        visits.push(Visit { page: first, change_bytes: COUNTER_CHANGE });
        visits.push(Visit { page: first + 1, change_bytes: COUNTER_CHANGE });
        let page = self.customer(warehouse, rng);
        visits.push(Visit { page, change_bytes: CUSTOMER_CHANGE });
        let page = grow(&mut self.history, HISTORY_PER_LEAF, &mut self.next_page);
        visits.push(Visit { page, change_bytes: HISTORY });
    }

    /// The oldest order of each district.
    fn delivery(&mut self, warehouse: u32, rng: &mut Rng, visits: &mut Vec<Visit>) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let Some(page) = self.undelivered[district as usize].pop_front() else { continue };
            let change_bytes = DELIVERY_LINE_CHANGE;
            visits.extend(std::iter::repeat_n(Visit { page, change_bytes }, 10));
            let page = self.customer(warehouse, rng);
            visits.push(Visit { page, change_bytes: CUSTOMER_CHANGE });
        }
    }

    fn stock_level(&mut self, warehouse: u32, rng: &mut Rng, visits: &mut Vec<Visit>) {
        for _ in 0..200 {
            let page = self.stock(warehouse, rng);
            visits.push(Visit { page, change_bytes: 0 });
        }
    }

    fn stock(&self, warehouse: u32, rng: &mut Rng) -> u32 {
        let row = below(rng, u64::from(STOCK.0)) as u32;
        self.first_page(warehouse) + 2 + row / STOCK.1
    }

    /// NURand: some customers are asked for more often.
    fn customer(&self, warehouse: u32, rng: &mut Rng) -> u32 {
        let district = below(rng, u64::from(DISTRICTS)) as u32;
        let row = ((below(rng, 1024) | (1 + below(rng, 3000))) % 3000) as u32 + district * 3000;
        self.first_page(warehouse) + 2 + STOCK.0.div_ceil(STOCK.1) + row / CUSTOMERS.1
    }
}

/// The page that takes the next row.
fn grow(tail: &mut Tail, rows_per_leaf: u32, next_page: &mut u32) -> u32 {
    if tail.room == 0 {
        *tail = Tail { page: *next_page, room: rows_per_leaf };
        *next_page += 1;
    }
    tail.room -= 1;
    tail.page
}
