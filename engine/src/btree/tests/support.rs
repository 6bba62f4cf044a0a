use crate::os::sim::SimOs;
use crate::store::{Store, StoreOptions};
use crate::wal::{Wal, WalOptions};
use std::sync::Arc;

pub fn store_options() -> StoreOptions {
    StoreOptions { segment_bytes: 256 << 10, ..StoreOptions::new("/store") }
}

pub fn wal_options() -> WalOptions {
    let dir = "/wal";
    WalOptions {
        capacity_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        ..WalOptions::new(dir)
    }
}

pub fn new_store(os: &Arc<SimOs>) -> Arc<Store> {
    Store::create(os.clone(), store_options()).unwrap()
}

pub fn new_wal(os: &Arc<SimOs>) -> Arc<Wal> {
    Wal::create(os.clone(), wal_options()).unwrap()
}
