//! Log that stays because transactions under way wrote it themselves: it is not moved, unless others
//! write more than they did, the disk fills up, or nobody needs it any more.

use super::old_versions::{
    apart, assert_tidy, fill, filled, kept_log_bytes, settle, CAPACITY_BYTES,
};
use super::*;

const ROWS: u16 = 1500;
/// Of others: not among those that a large transaction changes.
const OTHER: u16 = 5000;

fn all_rows(filler: usize) -> Model {
    let rows = (0..ROWS).map(|n| filled(n, filler)).chain([apart(OTHER)]);
    rows.map(|row| (row.id, row)).collect()
}

/// An engine whose rows one transaction changes in several times the log's capacity.
fn open_filled(os: &Arc<SimOs>) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(os).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    let mut trx = engine.begin(1);
    for row in all_rows(300).values() {
        row.images().with(|w| trx.insert(&table, w)).unwrap();
        if row.id % 20 == 0 {
            trx.commit(true).unwrap();
            engine.step().unwrap();
        }
    }
    trx.commit(true).unwrap();
    settle(&engine);
    (engine, table)
}

fn update(engine: &Engine, trx: &mut Trx, table: &Table, rows: std::ops::Range<u16>, to: usize) {
    for n in rows {
        fill(trx, table, n, 300, to);
        if n % 20 == 0 {
            engine.step().unwrap();
        }
    }
}

/// A reader with a snapshot, and a session that has committed an UPDATE of all rows after it; with the log
/// that is kept for the reader as the session's own.
fn commit_large_beside_a_reader(engine: &Arc<Engine>, table: &Table) -> (Trx, Trx, u64) {
    let mut reader = engine.begin(3);
    reader.open_snapshot();
    let mut trx = engine.begin(2);
    update(engine, &mut trx, table, 0..ROWS, 301);
    let own = own_log(engine);
    trx.commit(true).unwrap();
    assert_eq!(own_log(engine), own);
    (reader, trx, own)
}

/// Another session logs so much; answers the most log that was kept meanwhile.
fn others_write(engine: &Arc<Engine>, table: &Table, bytes: u64) -> u64 {
    let mut trx = engine.begin(9);
    let end = engine.wal.end().0 + bytes;
    let mut most = 0;
    for turn in 0.. {
        fill(&mut trx, table, OTHER, 300 + turn % 2, 301 - turn % 2);
        trx.commit(true).unwrap();
        if turn % 10 == 9 {
            engine.step().unwrap();
            most = most.max(kept_log_bytes(engine));
        }
        if turn % 2 == 1 && engine.wal.end().0 > end {
            break;
        }
    }
    most
}

/// The mover takes its time, and log goes with the next checkpoint.
fn catch_up(engine: &Engine) {
    (0..20).for_each(|_| engine.step().unwrap());
    engine.checkpoint_now().unwrap();
}

fn moved(engine: &Engine) -> u64 {
    engine.ctx.old.stats().moved
}

fn own_log(engine: &Engine) -> u64 {
    engine.ctx.registry.own_log_bytes(engine.ctx.table.oldest_snapshot_csn())
}

#[test]
fn what_a_large_transaction_wrote_itself_stays_in_the_log() {
    let os = SimOs::new(1);
    let (engine, table) = open_filled(&os);
    let begin = engine.wal.end();
    let mut trx = engine.begin(2);
    update(&engine, &mut trx, &table, 0..1000, 301);
    let savepoint = trx.savepoint();
    update(&engine, &mut trx, &table, 1000..ROWS, 301);
    let own = own_log(&engine);
    let wrote = engine.wal.end().0 - begin.0;
    assert!(
        own > CAPACITY_BYTES / 2 * 3 && own <= wrote && own > wrote / 4 * 3,
        "{own} of {wrote}"
    );
    assert!(kept_log_bytes(&engine) >= own, "it is all there");
    others_write(&engine, &table, own / 2);
    assert_eq!(moved(&engine), 0);
    assert_is(&mut engine.begin(3), &table, &all_rows(300), "beside it");
    trx.rollback_to(savepoint).unwrap();
    let mut seen = all_rows(300);
    seen.extend((0..1000).map(|n| (apart(n).id, filled(n, 301))));
    assert_is(&mut trx, &table, &seen, "a part is taken back");
    trx.commit(true).unwrap();
    assert_eq!(own_log(&engine), 0);
    settle(&engine);
    assert_is(&mut engine.begin(3), &table, &seen, "at the end");
    assert_tidy(&engine, &table, seen.len());
    assert_eq!(moved(&engine), 0);
}

#[test]
fn an_idle_large_transaction_keeps_no_more_log_than_others_may_write_beside_it() {
    let os = SimOs::new(2);
    let (engine, table) = open_filled(&os);
    let mut trx = engine.begin(2);
    update(&engine, &mut trx, &table, 0..ROWS, 301);
    let own = own_log(&engine);
    let most = others_write(&engine, &table, 4 * own);
    assert!(most > 2 * own, "{most} bytes of log were kept, of {own}");
    assert!(most <= 3 * own + 2 * CAPACITY_BYTES, "{most} bytes of log were kept for {own}");
    catch_up(&engine);
    assert_eq!(moved(&engine), u64::from(ROWS), "in the end they are in the way");
    assert_eq!(own_log(&engine), 0);
    let kept = kept_log_bytes(&engine);
    assert!(kept <= CAPACITY_BYTES, "{kept} bytes of log are kept");
    assert_is(&mut trx, &table, &all_rows(301), "its own rows");
    trx.rollback();
    settle(&engine);
    assert_is(&mut engine.begin(3), &table, &all_rows(300), "at the end");
    assert_tidy(&engine, &table, all_rows(300).len());
}

#[test]
fn what_is_taken_back_within_a_transaction_keeps_no_log() {
    let os = SimOs::new(3);
    let (engine, table) = open_filled(&os);
    let mut trx = engine.begin(2);
    update(&engine, &mut trx, &table, 0..1, 301);
    let savepoint = trx.savepoint();
    update(&engine, &mut trx, &table, 1..ROWS, 301);
    trx.rollback_to(savepoint).unwrap();
    assert!(own_log(&engine) < 4096, "{}", own_log(&engine));
    others_write(&engine, &table, CAPACITY_BYTES);
    catch_up(&engine);
    assert!(kept_log_bytes(&engine) <= CAPACITY_BYTES);
    assert!(moved(&engine) > 0, "its first record, and nothing of what was taken back needs care");
    trx.rollback();
    settle(&engine);
    assert_tidy(&engine, &table, all_rows(300).len());
}

#[test]
fn a_snapshot_reads_in_the_log_what_a_large_transaction_replaced() {
    let os = SimOs::new(4);
    let (engine, table) = open_filled(&os);
    let (mut reader, _trx, own) = commit_large_beside_a_reader(&engine, &table);
    others_write(&engine, &table, own / 2);
    assert_eq!(moved(&engine), 0);
    assert_is(&mut reader, &table, &all_rows(300), "old snapshot, from the log");
    others_write(&engine, &table, 3 * own);
    catch_up(&engine);
    assert!(moved(&engine) >= u64::from(ROWS), "others wrote more");
    assert!(kept_log_bytes(&engine) <= CAPACITY_BYTES);
    assert_is(&mut reader, &table, &all_rows(300), "old snapshot, moved");
    drop(reader);
    settle(&engine);
    assert_is(&mut engine.begin(3), &table, &all_rows(301), "at the end");
    assert_tidy(&engine, &table, all_rows(301).len());
}

/// One version of each row is what an old snapshot comes back to, however often they all change.
#[test]
fn a_snapshot_keeps_the_log_of_the_first_of_many_large_transactions() {
    let os = SimOs::new(7);
    let (engine, table) = open_filled(&os);
    let (mut reader, mut trx, own) = commit_large_beside_a_reader(&engine, &table);
    assert!(own > CAPACITY_BYTES / 2 * 3);
    for turn in 0..4 {
        for n in 0..ROWS {
            fill(&mut trx, &table, n, 301 + turn % 2, 302 - turn % 2);
        }
        trx.commit(true).unwrap();
        assert!(own_log(&engine) <= own, "{turn}: {} for {own}", own_log(&engine));
        catch_up(&engine);
    }
    assert!(kept_log_bytes(&engine) <= CAPACITY_BYTES, "the later ones outweigh it");
    assert_is(&mut reader, &table, &all_rows(300), "old snapshot");
}

#[test]
fn no_log_is_kept_when_its_snapshot_has_gone() {
    let os = SimOs::new(5);
    let (engine, table) = open_filled(&os);
    let (reader, _trx, _) = commit_large_beside_a_reader(&engine, &table);
    drop(reader);
    let mut later = engine.begin(4);
    later.open_snapshot();
    assert_eq!(own_log(&engine), 0, "the snapshot that is left sees it");
    drop(later);
    settle(&engine);
    assert_tidy(&engine, &table, all_rows(301).len());
}

/// Updates all rows on a disk with so much room; answers whether that was enough. The rollback and what
/// comes after it find room in any case.
fn fits_into(room_bytes: u64) -> bool {
    let os = SimOs::new(6);
    let (engine, table) = open_filled(&os);
    os.set_capacity_bytes(Some(os.used_bytes() + room_bytes));
    let mut trx = engine.begin(2);
    let mut outcome = Ok(());
    for n in 0..ROWS {
        let (old, new) = (filled(n, 300).images(), filled(n, 301).images());
        outcome = old.with(|o| new.with(|n| trx.update(&table, o, n)));
        if outcome.is_err() {
            break;
        }
        if n % 20 == 0 {
            engine.step().unwrap();
        }
    }
    assert!(matches!(outcome, Ok(()) | Err(Error::Full { .. })), "{outcome:?}");
    assert_eq!(moved(&engine), 0, "that would need more room than it gives");
    trx.rollback();
    settle(&engine);
    assert_is(&mut engine.begin(3), &table, &all_rows(300), "at the end");
    assert_tidy(&engine, &table, all_rows(300).len());
    outcome.is_ok()
}

#[test]
fn a_disk_that_fills_up_refuses_rows_before_a_large_transaction_cannot_be_taken_back() {
    assert!(fits_into(4 << 20));
    assert!(!fits_into(1 << 20));
}

/// A large transaction with its log in place, in each state that a crash can find it in.
fn hold_and_crash(seed: u64) {
    let context = format!("seed {seed}");
    let os = SimOs::new(seed);
    let mut rng = SimRng::new(seed);
    let (engine, table) = open_filled(&os);
    let mut trx = engine.begin(2);
    update(&engine, &mut trx, &table, 0..ROWS, 301);
    let own = own_log(&engine);
    // Sometimes a part of it is moved, or all.
    others_write(&engine, &table, rng.below(4 * own));
    let (state, mut filler) = (rng.below(4), 300);
    match state {
        0 => trx.rollback(),
        1 => trx.prepare(b"held", true).unwrap(),
        2 => {
            trx.commit(true).unwrap();
            filler = 301;
        }
        _ => {}
    }
    os.fail_after(rng.below(200), Fault::PowerCut);
    for _ in 0..rng.below(40) {
        if engine.step().is_err() {
            break;
        }
    }
    drop((trx, table, engine));
    os.crash();
    let engine = open(&os).unwrap_or_else(|e| panic!("{context}: {e}"));
    let table = engine.table(TABLE).unwrap().unwrap();
    if state == 1 {
        assert_eq!(engine.prepared(), vec![b"held".to_vec()], "{context}");
        if rng.chance(50) {
            assert!(engine.commit_prepared(b"held").unwrap());
            filler = 301;
        } else {
            assert!(engine.rollback_prepared(b"held").unwrap());
        }
    }
    let seen = all_rows(filler);
    assert_is(&mut engine.begin(1), &table, &seen, &context);
    settle(&engine);
    assert_is(&mut engine.begin(1), &table, &seen, &context);
    assert_tidy(&engine, &table, seen.len());
    let faults = engine.check_table(TABLE, CheckDepth::Quick, &|| false).unwrap().faults;
    assert_eq!(faults, Vec::<String>::new(), "{context}");
}

#[test]
fn large_transactions_survive_crashes() {
    for seed in 0..12 {
        hold_and_crash(seed);
    }
}

/// Writers with rows of their own, readers with snapshots, and what may be in the log for them.
struct Crowd {
    engine: Arc<Engine>,
    table: Arc<Table>,
    rng: SimRng,
    writers: Vec<Writer>,
    /// A snapshot, what it sees, and how many commits were before it.
    readers: Vec<(Trx, Model, usize)>,
    model: Model,
    /// Bytes that each committed transaction logged.
    commits: Vec<u64>,
    /// Of those that were rolled back and are not reverted yet.
    undone: u64,
}

struct Writer {
    trx: Trx,
    /// Its rows with its own changes.
    rows: Model,
    logged: u64,
}

impl Crowd {
    const WRITERS: u16 = 3;
    const ROWS_EACH: u16 = 100;

    fn new(seed: u64) -> Crowd {
        let engine = open(&SimOs::new(seed)).unwrap();
        engine.create_table(TABLE, spec()).unwrap();
        let table = engine.table(TABLE).unwrap().unwrap();
        let mut crowd = Crowd {
            rng: SimRng::new(seed),
            writers: Vec::new(),
            readers: Vec::new(),
            model: Model::new(),
            commits: Vec::new(),
            undone: 0,
            engine,
            table,
        };
        for n in 0..Self::WRITERS {
            let rows = (n * Self::ROWS_EACH..).take(Self::ROWS_EACH.into()).map(apart);
            let rows: Model = rows.map(|row| (row.id, row)).collect();
            let mut trx = crowd.engine.begin(u64::from(n) + 1);
            for row in rows.values() {
                row.images().with(|w| trx.insert(&crowd.table, w)).unwrap();
            }
            crowd.model.extend(rows.clone());
            crowd.writers.push(Writer { trx, rows, logged: 0 });
            crowd.end(n.into(), true);
        }
        settle(&crowd.engine);
        crowd
    }

    fn write(&mut self, at: usize, changes: u64) {
        let writer = &mut self.writers[at];
        let begin = self.engine.wal.end();
        for _ in 0..changes {
            let nth = self.rng.below(writer.rows.len() as u64) as usize;
            let row = writer.rows.values_mut().nth(nth).unwrap();
            let new = Row { filler: 300 + self.rng.below(9) as usize, ..row.clone() };
            let (old, next) = (row.images(), new.images());
            old.with(|o| next.with(|n| writer.trx.update(&self.table, o, n))).unwrap();
            *row = new;
        }
        writer.logged += self.engine.wal.end().0 - begin.0;
    }

    fn end(&mut self, at: usize, commits: bool) {
        let writer = &mut self.writers[at];
        let logged = std::mem::take(&mut writer.logged);
        if commits {
            writer.trx.commit(true).unwrap();
            self.model.extend(writer.rows.clone());
            self.commits.push(logged);
            return;
        }
        writer.trx.rollback();
        self.undone += logged;
        for row in writer.rows.values_mut() {
            row.clone_from(&self.model[&row.id]);
        }
    }

    /// The most that the log may hold: three times what may be left to those who wrote it.
    fn most(&mut self) -> u64 {
        if self.engine.ctx.reverts_waiting() == 0 {
            self.undone = 0;
        }
        let open: u64 = self.writers.iter().map(|w| w.logged).sum();
        let seen = self.readers.iter().map(|r| r.2).min().unwrap_or(self.commits.len());
        let unseen: u64 = self.commits[seen..].iter().sum();
        3 * (open + self.undone + unseen) + 2 * CAPACITY_BYTES
    }

    fn turn(&mut self) {
        let at = self.rng.below(self.writers.len() as u64) as usize;
        match self.rng.below(20) {
            0 => self.end(at, true),
            1 => self.end(at, false),
            2 if self.readers.len() < 3 => {
                let mut trx = self.engine.begin(20);
                trx.open_snapshot();
                self.readers.push((trx, self.model.clone(), self.commits.len()));
            }
            3 if !self.readers.is_empty() => {
                let at = self.rng.below(self.readers.len() as u64) as usize;
                let (mut trx, seen, _) = self.readers.remove(at);
                assert_is(&mut trx, &self.table, &seen, "a snapshot at its end");
            }
            _ => {
                let changes = [5, 20, 60, 200][self.rng.below(4) as usize];
                self.write(at, changes);
            }
        }
        let most = self.most();
        for _ in 0..8 {
            self.engine.step().unwrap();
            if kept_log_bytes(&self.engine) <= most {
                return;
            }
            self.engine.checkpoint_now().unwrap();
        }
        panic!("{} bytes of log are kept, and {most} may be", kept_log_bytes(&self.engine));
    }
}

#[test]
fn the_log_stays_within_what_large_transactions_wrote() {
    let mut all_moved = 0;
    for seed in 0..4 {
        let mut crowd = Crowd::new(seed);
        (0..400).for_each(|_| crowd.turn());
        all_moved += moved(&crowd.engine);
        for (trx, seen, _) in &mut crowd.readers {
            assert_is(trx, &crowd.table, seen, "a snapshot");
        }
        crowd.readers.clear();
        crowd.writers.clear();
        settle(&crowd.engine);
        assert_is(&mut crowd.engine.begin(1), &crowd.table, &crowd.model, "at the end");
        assert_tidy(&crowd.engine, &crowd.table, crowd.model.len());
    }
    assert!(all_moved > 0, "some versions were moved all the same");
}
