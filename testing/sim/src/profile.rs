//! What kind of life a seed leads: the sizes of its engine and the habits of those who use it.
//!
//! Most seeds draw everything by themselves. The others each belong to a [`Profile`], which makes
//! likely what such a seed hardly ever meets: most defects need several things at once.

use sluice_engine::db::LogCompression;
use sluice_engine::os::sched::Pace;
use sluice_engine::os::sim::SimRng;

pub const SESSIONS_MAX: u64 = 6;
/// Tells the profile's draw from the seed's other ones.
const PROFILE_SALT: u64 = 0x30_12;

/// A kind of seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Everything is drawn.
    Any,
    /// The same few rows are written, deleted and written again for long, in little log: what is
    /// left of one life of a key meets the next.
    Worn,
    /// As worn, but the power goes off in the middle of it.
    Moved,
    /// Tables are dropped between a checkpoint of the pages and one of the map, and then the power
    /// goes off: the log still tells of pages that are gone.
    Dropped,
    /// Little is flushed, much is evicted, and the power goes off after checkpoints.
    Unflushed,
    /// The machine fails now and then with what is no loss of power: single places cannot be read, a
    /// write fails, no file can be opened, the disk is full.
    Sick,
    /// The machine cannot read some places while the engine opens: what redo owes there stays owed.
    Unread,
    /// In every life a write or a sync fails, mostly in the middle of a DDL statement.
    Failing,
    /// Transactions write more than the log's share for versions, and others write beside them.
    Large,
    /// The pool is too small for the rows, and now and then there is no space for images of its pages.
    Unwritten,
}

impl Profile {
    pub const ALL: [Profile; 10] = [
        Profile::Any,
        Profile::Worn,
        Profile::Moved,
        Profile::Dropped,
        Profile::Unflushed,
        Profile::Sick,
        Profile::Unread,
        Profile::Failing,
        Profile::Large,
        Profile::Unwritten,
    ];

    pub fn of_seed(seed: u64) -> Profile {
        match SimRng::new(seed ^ PROFILE_SALT).below(100) {
            0..=14 => Profile::Worn,
            15..=24 => Profile::Moved,
            25..=32 => Profile::Dropped,
            33..=40 => Profile::Unflushed,
            41..=52 => Profile::Sick,
            53..=60 => Profile::Unread,
            61..=70 => Profile::Failing,
            71..=78 => Profile::Large,
            79..=94 => Profile::Unwritten,
            _ => Profile::Any,
        }
    }
}

/// What is wrong with a machine while sessions are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Illness {
    None,
    /// One write or sync fails.
    Writes,
    /// No image of a page can be written for a moment, as often as the operator says.
    Images,
    /// All kinds of trouble.
    All,
}

/// Sizes of a seed.
#[derive(Clone, Copy)]
pub struct Limits {
    pub lives: u64,
    pub sessions: u64,
    pub steps: u64,
    pub calls_per_life: u64,
    pub calls_per_recovery: u64,
    /// Orders of the operator, at most, in an engine that nobody uses before the power goes off.
    pub idle_orders: u64,
    pub pool_bytes: u64,
    pub page_map_bytes: u64,
    pub log_capacity_bytes: u64,
    pub log_cache_bytes: u64,
    pub segment_bytes: u64,
    /// If not, pages are as large on disk as in memory: segments fill up and are reused soon.
    pub is_compressed: bool,
    /// As a packed batch leaves blocks of the log as they were, and a plain one does not.
    pub log_compression: LogCompression,
    /// The machine has spells of trouble: of which kind while sessions are at work,
    pub illness: Illness,
    /// and in so many of a hundred openings.
    pub sick_open_percent: u64,
    pub habits: Habits,
}

/// What those who use an engine like to do.
#[derive(Clone, Copy)]
pub struct Habits {
    /// Rows have primary keys below this.
    pub ids: u64,
    /// Most rows are no longer than this.
    pub filler_bytes: u64,
    /// So many of a hundred sessions have transactions that go on for long.
    pub patient_percent: u64,
    /// Those only read.
    pub patient_read_only: bool,
    /// So many of a hundred sessions have transactions that write much.
    pub large_percent: u64,
    /// So many of a hundred checkpoints and DDL statements have the power go off right after them.
    pub sudden_percent: u64,
    /// So many of a hundred DDL statements happen.
    pub ddl_percent: u64,
    /// So many of a hundred DDL statements are a table's end, between two checkpoints.
    pub drop_percent: u64,
    /// So many of a hundred DDL statements have a trouble of their own.
    pub ddl_trouble_percent: u64,
    /// Before so many of a hundred orders of the operator there is no space for images of pages.
    pub image_trouble_percent: u64,
    /// So many of a hundred statements fill a table that looks empty, if the one that they choose does.
    pub fill_percent: u64,
    /// Commits are never flushed by themselves.
    pub never_flushes: bool,
}

impl Limits {
    /// Those of a seed, and its pace changed to fit.
    pub fn of_profile(profile: Profile, rng: &mut SimRng, pace: &mut Pace) -> Limits {
        let mut limits = Limits::random(rng);
        match profile {
            Profile::Any => {}
            Profile::Worn => limits.wear_out(pace),
            Profile::Moved => {
                limits.wear_out(pace);
                limits.lives = 4;
                limits.sessions = 4;
                limits.steps = 1000;
                limits.calls_per_life = 1_000;
                limits.habits.ids = 20 + rng.below(100);
                limits.habits.filler_bytes = 150;
                limits.habits.patient_read_only = false;
                pace.put_off_permille = 0;
            }
            Profile::Dropped => {
                limits.sessions = 2 + rng.below(3);
                limits.steps = 400;
                limits.calls_per_life = 2_000;
                limits.pool_bytes = (1 + rng.below(4)) << 14;
                limits.log_capacity_bytes = 1 << 20;
                limits.habits.ids = 20 + rng.below(100);
                limits.habits.patient_percent = 0;
                limits.habits.drop_percent = 80;
            }
            Profile::Sick => {
                limits.illness = Illness::All;
                limits.sick_open_percent = 60;
                limits.steps = 300 + rng.below(700);
                limits.calls_per_life = 3_000;
                limits.log_capacity_bytes = limits.log_capacity_bytes.min(256 << 10);
                limits.habits.filler_bytes = 1_000;
                limits.habits.sudden_percent = 0;
                limits.habits.ddl_trouble_percent = 15;
            }
            Profile::Unread => limits.read_badly(),
            Profile::Failing => limits.write_badly(),
            Profile::Large => limits.write_much(),
            Profile::Unwritten => limits.write_no_images(),
            Profile::Unflushed => limits.never_flush(rng, pace),
        }
        limits
    }

    fn random(rng: &mut SimRng) -> Limits {
        let mut one_of = |values: [u64; 4]| values[rng.below(4) as usize];
        let (lives, sessions) = (one_of([2, 3, 3, 4]), one_of([2, 3, 4, SESSIONS_MAX]));
        let habits = Habits {
            ids: one_of([6, 20, 60, 250]),
            filler_bytes: 150,
            patient_percent: 20,
            patient_read_only: false,
            large_percent: 0,
            sudden_percent: one_of([0, 0, 0, 20]),
            ddl_percent: 100,
            drop_percent: 0,
            ddl_trouble_percent: 0,
            image_trouble_percent: 0,
            fill_percent: 40,
            never_flushes: false,
        };
        Limits {
            lives,
            sessions,
            habits,
            steps: one_of([40, 100, 250, 1000]),
            calls_per_life: one_of([60, 200, 500, 2000]),
            calls_per_recovery: one_of([15, 30, 60, 120]),
            idle_orders: 4,
            illness: Illness::None,
            sick_open_percent: 0,
            pool_bytes: one_of([1, 16, 32, 64]) << 14,
            page_map_bytes: one_of([0, 0, 1 << 12, 1 << 24]),
            log_capacity_bytes: one_of([192, 256, 512, 1024]) << 10,
            log_cache_bytes: one_of([64, 64, 128, 512]) << 10,
            segment_bytes: one_of([64, 64, 64, 128]) << 10,
            is_compressed: one_of([0, 0, 1, 1]) == 1,
            log_compression: match one_of([0, 1, 1, 2]) {
                0 => LogCompression::None,
                1 => LogCompression::Auto,
                _ => LogCompression::Zstd,
            },
        }
    }

    fn never_flush(&mut self, rng: &mut SimRng, pace: &mut Pace) {
        self.lives = 4;
        self.sessions = 4 + rng.below(3);
        self.steps = 1000;
        self.calls_per_life = 2_000;
        self.pool_bytes = 1 << 14;
        self.habits.ids = 250;
        self.habits.filler_bytes = 4_000;
        self.habits.patient_percent = 0;
        self.habits.sudden_percent = 60;
        self.habits.ddl_percent = 10;
        self.habits.never_flushes = true;
        pace.jump_permille = 1;
        pace.stall_ns_max = 5_000_000;
    }

    fn read_badly(&mut self) {
        self.sick_open_percent = 100;
        self.lives = 8;
        self.steps = 400;
        self.calls_per_life = 1_000;
        self.log_capacity_bytes = 1 << 20;
        self.is_compressed = false;
        self.habits.ids = 250;
        self.habits.filler_bytes = 1_000;
        self.habits.patient_percent = 0;
        self.habits.sudden_percent = 0;
        self.habits.ddl_percent = 10;
    }

    fn write_badly(&mut self) {
        self.illness = Illness::Writes;
        self.lives = 4;
        self.sessions = 2;
        self.steps = 400;
        self.calls_per_life = 3_000;
        self.habits.ids = 20;
        self.habits.filler_bytes = 1_000;
        self.habits.patient_percent = 0;
        self.habits.sudden_percent = 0;
        self.habits.ddl_trouble_percent = 45;
    }

    fn write_much(&mut self) {
        self.lives = 4;
        self.sessions = 4;
        self.steps = 600;
        self.calls_per_life = 2_000;
        self.log_capacity_bytes = 192 << 10;
        self.habits.ids = 250;
        self.habits.filler_bytes = 2_000;
        self.habits.patient_percent = 0;
        self.habits.large_percent = 50;
        self.habits.ddl_percent = 10;
    }

    fn write_no_images(&mut self) {
        self.illness = Illness::Images;
        self.lives = 3;
        self.sessions = 5;
        self.steps = 800;
        self.calls_per_life = 6_000;
        self.pool_bytes = 1 << 14;
        self.log_capacity_bytes = 1 << 20;
        self.is_compressed = false;
        self.habits.ids = 250;
        self.habits.filler_bytes = 2_000;
        self.habits.patient_percent = 0;
        self.habits.sudden_percent = 0;
        self.habits.ddl_percent = 3;
        self.habits.image_trouble_percent = 90;
    }

    fn wear_out(&mut self, pace: &mut Pace) {
        pace.put_off_permille = 980;
        self.lives = self.lives.min(2);
        self.sessions = SESSIONS_MAX;
        self.steps = 3000;
        self.calls_per_life = 10_000;
        self.log_capacity_bytes = 192 << 10;
        self.habits = Habits {
            ids: 4,
            filler_bytes: 3_000,
            patient_percent: 50,
            patient_read_only: true,
            sudden_percent: 0,
            ddl_percent: 5,
            ..self.habits
        };
    }

    pub fn is_sick(&self) -> bool {
        self.illness != Illness::None || self.sick_open_percent > 0
    }
}
