//! One prediction: a workload under a policy, until the store is in its steady state, and then as
//! long again.

use crate::machine::{Machine, OwedPolicy, PagePolicy, Peaks, Policy, Totals, Victim};
use crate::sizes::{Codec, LogCodec, RowSizes, ROWS_188, SCAN_BYTES_PER_SECOND};
use crate::store::{StorePolicy, Written};
use crate::workload::{Keys, Rows, Workload};

pub const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub enum Data {
    Rows { keys: Keys, sizes: RowSizes, index: bool },
    Tpcc { warehouses: u32 },
}

/// One prediction to make. Everything else follows from it.
#[derive(Clone, Debug)]
pub struct Case {
    pub label: String,
    pub data: Data,
    /// Tables of `rows` rows each.
    pub tables: u32,
    pub rows: u64,
    pub pool_bytes: u64,
    pub log_bytes: u64,
    /// Share of the log's capacity that the redo window may take.
    pub window_percent: u64,
    pub codec: Codec,
    pub log_codec: LogCodec,
    /// The window counts at least half of the log before compression, as the engine does.
    pub half_plain_window: bool,
    pub pages: PagePolicy,
    pub store: StorePolicy,
    pub seed: u64,
}

pub const OWED: OwedPolicy = OwedPolicy { share: 50, victim: Victim::Oldest, early: 90, deltas: 0 };

impl Case {
    /// The engine as it is, under the load of the published figures.
    pub fn today(label: &str, seed: u64) -> Case {
        Case {
            label: label.to_owned(),
            data: Data::Rows { keys: Keys::Uniform, sizes: ROWS_188, index: false },
            tables: 2,
            rows: 1_500_000,
            pool_bytes: 96 * MIB,
            log_bytes: 512 * MIB,
            window_percent: 40,
            codec: Codec::Lz4,
            log_codec: LogCodec::Plain,
            half_plain_window: false,
            pages: PagePolicy::Today,
            store: StorePolicy::today(),
            seed,
        }
    }

    /// The second design.
    pub fn owed(label: &str, seed: u64) -> Case {
        Case {
            window_percent: 70,
            log_codec: LogCodec::Lz4,
            pages: PagePolicy::Owed(OWED),
            store: StorePolicy::by_lifetime(125),
            ..Case::today(label, seed)
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut Case)) -> Case {
        change(&mut self);
        self
    }

    pub fn with_owed(mut self, change: impl FnOnce(&mut OwedPolicy)) -> Case {
        let mut owed = match self.pages {
            PagePolicy::Owed(owed) => owed,
            PagePolicy::Today => OWED,
        };
        change(&mut owed);
        self.pages = PagePolicy::Owed(owed);
        self
    }

    /// Of the log as it is written.
    fn window_bytes(&self) -> u64 {
        let bytes = self.log_bytes / 100 * self.window_percent;
        if !self.half_plain_window {
            return bytes;
        }
        let log = self.workload().log_sizes();
        let written = log.written(self.log_codec);
        bytes * written / written.max(log.plain / 2)
    }

    fn workload(&self) -> Workload {
        match self.data {
            Data::Rows { keys, sizes, index } => {
                let (tables, rows, codec) = (self.tables, self.rows, self.codec);
                let rows = Rows { keys, sizes, tables, rows, index, codec };
                Workload::rows(rows, self.log_codec, self.seed)
            }
            Data::Tpcc { warehouses } => {
                Workload::tpcc(warehouses, self.codec, self.log_codec, self.seed)
            }
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            pool_bytes: self.pool_bytes,
            window_bytes: self.window_bytes(),
            pages: self.pages,
            store: self.store,
        }
    }
}

/// Bytes and reads are those of one transaction.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub label: String,
    pub images: f64,
    pub deltas: f64,
    pub gc: f64,
    pub map: f64,
    pub log: f64,
    pub binlog: f64,
    pub changes_per_image: f64,
    pub reads: f64,
    pub delta_reads: f64,
    pub writer_reads: f64,
    pub peaks: Peaks,
    /// Of uncompressed log in the redo window.
    pub restart_seconds: f64,
    pub by_window_percent: f64,
}

impl Prediction {
    pub fn pages(&self) -> f64 {
        self.images + self.deltas + self.gc + self.map
    }

    pub fn total(&self) -> f64 {
        self.pages() + self.log + self.binlog
    }
}

/// Transactions at most, for each half of a run.
const TRANSACTIONS_MAX: u64 = 3_000_000;
/// A half ends when it has written the live bytes so often, in percent, and has filled as many
/// windows.
const REWRITTEN_PERCENT: u64 = 250;
const WINDOWS: u64 = 3;

fn rewrite(machine: &mut Machine, workload: &mut Workload, window_bytes: u64) {
    let began = machine.totals;
    let written = store_bytes(&machine.store.written);
    loop {
        for _ in 0..1000 {
            machine.run_transaction(workload);
        }
        let fresh = store_bytes(&machine.store.written) - written;
        let logged = machine.totals.log_bytes - began.log_bytes;
        let is_steady = fresh * 100 >= machine.store.live_bytes() * REWRITTEN_PERCENT
            && logged >= window_bytes * WINDOWS;
        if is_steady || machine.totals.transactions - began.transactions >= TRANSACTIONS_MAX {
            return;
        }
    }
}

fn store_bytes(written: &Written) -> u64 {
    written.image_bytes + written.delta_bytes + written.gc_bytes
}

pub fn predict(case: &Case) -> Prediction {
    let mut workload = case.workload();
    let mut machine = Machine::new(case.policy(), &workload);
    rewrite(&mut machine, &mut workload, case.window_bytes());
    machine.forget_peaks();
    let (before, store) = (machine.totals, machine.store.written);
    rewrite(&mut machine, &mut workload, case.window_bytes());
    let (after, now) = (machine.totals, machine.store.written);
    let transactions = (after.transactions - before.transactions) as f64;
    let per = |now: u64, before: u64| (now - before) as f64 / transactions;
    let of = |get: fn(&Totals) -> u64| per(get(&after), get(&before));
    let images = now.images - store.images;
    let log = workload.log_sizes();
    let window_records =
        machine.peaks.window_bytes as f64 * log.records as f64 / log.written(case.log_codec) as f64;
    let due = (after.by_window - before.by_window) as f64;
    let all = due + (after.by_memory + after.evicted - before.by_memory - before.evicted) as f64;
    Prediction {
        label: case.label.clone(),
        images: per(now.image_bytes, store.image_bytes),
        deltas: per(now.delta_bytes, store.delta_bytes),
        gc: per(now.gc_bytes, store.gc_bytes),
        map: per(now.map_bytes, store.map_bytes),
        log: of(|t| t.log_bytes),
        binlog: log.binlog as f64,
        changes_per_image: (after.changes - before.changes) as f64 / (images as f64).max(1.0),
        reads: of(|t| t.reads),
        delta_reads: of(|t| t.delta_reads),
        writer_reads: of(|t| t.writer_reads),
        peaks: machine.peaks,
        restart_seconds: window_records / SCAN_BYTES_PER_SECOND,
        by_window_percent: 100.0 * due / all.max(1.0),
    }
}

/// All of them, on every processor.
pub fn predict_all(cases: &[Case]) -> Vec<Prediction> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(usize, Prediction)> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            loop {
                let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(case) = cases.get(i) else { return mine };
                mine.push((i, predict(case)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, prediction)| prediction).collect()
}
