//! Transactions that change rows that others changed after their snapshot: their own rows
//! are theirs by every index, all others as the snapshot sees them.

use super::*;

fn start(seed: u64) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(&SimOs::new(seed)).unwrap();
    engine.create_table(TABLE, spec()).unwrap();
    let table = engine.table(TABLE).unwrap().unwrap();
    table.name_rows(Arc::new(row_key_of));
    (engine, table)
}

fn row(id: u32, plain: u8, unique: u16) -> Row {
    Row { id, plain, unique, filler: 5 }
}

fn add(trx: &mut Trx, table: &Table, row: &Row) {
    row.images().with(|w| trx.insert(table, w)).unwrap();
}

fn change(trx: &mut Trx, table: &Table, old: &Row, new: &Row) {
    old.images().with(|o| new.images().with(|n| trx.update(table, o, n))).unwrap();
}

fn remove(trx: &mut Trx, table: &Table, row: &Row) {
    row.images().with(|w| trx.delete(table, w)).unwrap();
}

fn commit(engine: &Arc<Engine>, f: impl FnOnce(&mut Trx)) {
    let mut trx = engine.begin(2);
    f(&mut trx);
    trx.commit(true).unwrap();
}

fn model(rows: &[&Row]) -> Model {
    rows.iter().map(|&row| (row.id, row.clone())).collect()
}

#[test]
fn a_row_that_was_moved_behind_the_snapshot_is_seen_once() {
    let (engine, table) = start(1);
    let (old, moved) = (row(1, 1, 10), row(1, 2, 20));
    commit(&engine, |t| add(t, &table, &old));
    let mut trx = engine.begin(1);
    trx.open_snapshot();
    commit(&engine, |t| change(t, &table, &old, &moved));
    assert_is(&mut trx, &table, &model(&[&old]), "before");
    // Nothing but an unindexed column changes; then everything.
    let savepoint = trx.savepoint();
    let own = Row { filler: 77, ..moved.clone() };
    change(&mut trx, &table, &moved, &own);
    assert_is(&mut trx, &table, &model(&[&own]), "the rest of the row");
    let again = row(1, 3, 30);
    change(&mut trx, &table, &own, &again);
    assert_is(&mut trx, &table, &model(&[&again]), "all of the row");
    // Back under the keys that the snapshot knows.
    change(&mut trx, &table, &again, &old);
    assert_is(&mut trx, &table, &model(&[&old]), "back");
    remove(&mut trx, &table, &old);
    assert_is(&mut trx, &table, &model(&[]), "deleted");
    trx.rollback_to(savepoint).unwrap();
    assert_is(&mut trx, &table, &model(&[&old]), "rolled back");
    // Not its own any more, so somebody else may go on with it.
    commit(&engine, |t| change(t, &table, &moved, &again));
    assert_is(&mut trx, &table, &model(&[&old]), "changed once more");
    trx.rollback();
    assert_is(&mut trx, &table, &model(&[&again]), "a new snapshot");
}

#[test]
fn a_unique_key_that_was_given_up_behind_the_snapshot_shows_both_rows() {
    let (engine, table) = start(2);
    let (first, second) = (row(1, 1, 10), row(2, 2, 20));
    commit(&engine, |t| {
        add(t, &table, &first);
        add(t, &table, &second);
    });
    let mut trx = engine.begin(1);
    trx.open_snapshot();
    commit(&engine, |t| {
        remove(t, &table, &first);
        change(t, &table, &second, &row(2, 2, 21));
    });
    let (own, over) = (row(9, 9, 10), row(0, 9, 20));
    add(&mut trx, &table, &own);
    add(&mut trx, &table, &over);
    let seen = model(&[&first, &second, &own, &over]);
    assert_is(&mut trx, &table, &seen, "both");
    let keys = |trx: &mut Trx, way| -> Vec<Vec<u8>> {
        scan(trx, &table, 2, way).into_iter().map(|entry| entry.1).collect()
    };
    let ids = |ids: &[u32]| ids.iter().map(|id| id.to_be_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(&mut trx, Direction::Forward), ids(&[1, 9, 0, 2]));
    assert_eq!(keys(&mut trx, Direction::Backward), ids(&[2, 0, 9, 1]));
    let mut payload = Vec::new();
    let key = 10u16.to_be_bytes();
    assert!(trx.get(&table, 2, &key, ReadMode::Snapshot, &mut payload).unwrap());
    assert_eq!(payload, 1u32.to_be_bytes());
    remove(&mut trx, &table, &own);
    assert_is(&mut trx, &table, &model(&[&first, &second, &over]), "its own is gone again");
}

#[test]
fn a_key_that_somebody_else_took_over_shows_the_row_of_the_snapshot_or_none() {
    let (engine, table) = start(3);
    let (old, moved) = (row(1, 1, 10), row(1, 2, 20));
    commit(&engine, |t| add(t, &table, &old));
    let mut trx = engine.begin(1);
    trx.open_snapshot();
    commit(&engine, |t| {
        change(t, &table, &old, &moved);
        add(t, &table, &row(5, 1, 10));
    });
    assert_is(&mut trx, &table, &model(&[&old]), "before");
    let own = Row { filler: 9, ..moved.clone() };
    change(&mut trx, &table, &moved, &own);
    assert_is(&mut trx, &table, &model(&[&own]), "taken over");
    let mut other = engine.begin(3);
    change(&mut other, &table, &row(5, 1, 10), &row(5, 1, 40));
    add(&mut other, &table, &row(6, 1, 10));
    assert_is(&mut trx, &table, &model(&[&own]), "by one at work");
    other.rollback();
    assert_is(&mut trx, &table, &model(&[&own]), "by one rolled back");
}

/// Rows whose entries in the other indexes nobody may touch besides the transaction.
fn is_free(trx_rows: &BTreeMap<u32, Option<Row>>, taken: &BTreeSet<u16>, row: &Row) -> bool {
    !trx_rows.contains_key(&row.id) && !taken.contains(&row.unique)
}

/// A random change of one row that no unique key is in the way of; answers old and new.
fn some_change(rng: &mut SimRng, newest: &Model) -> Option<(Option<Row>, Option<Row>)> {
    let mut new = Row::random(rng);
    (new.id, new.unique) = (new.id % 12, new.unique % 16);
    let old = newest.get(&new.id).cloned();
    if old.is_some() && rng.chance(30) {
        return Some((old, None));
    }
    let taken = newest.values().any(|row| row.unique == new.unique && row.id != new.id);
    (!taken).then_some((old, Some(new)))
}

fn apply(trx: &mut Trx, table: &Table, old: Option<&Row>, new: Option<&Row>) {
    match (old, new) {
        (None, Some(new)) => add(trx, table, new),
        (Some(old), None) => remove(trx, table, old),
        (Some(old), Some(new)) => change(trx, table, old, new),
        (None, None) => {}
    }
}

fn overtake(seed: u64) {
    let mut rng = SimRng::new(seed);
    let (engine, table) = start(seed);
    let mut newest = Model::new();
    for round in 0..12 {
        let mut trx = engine.begin(1);
        trx.open_snapshot();
        let snapshot = newest.clone();
        let mut own: BTreeMap<u32, Option<Row>> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let mut with_own = newest.clone();
        let mut savepoint = (trx.savepoint(), own.clone(), with_own.clone());
        for step in 0..25 {
            let context = format!("seed {seed} round {round} step {step}");
            let Some((old, new)) = some_change(&mut rng, &with_own) else { continue };
            let id = old.as_ref().or(new.as_ref()).unwrap().id;
            let by_other = rng.chance(50);
            let mut both = old.iter().chain(&new);
            if by_other && !both.all(|row| is_free(&own, &taken, row)) {
                continue;
            }
            let mut other = engine.begin(2);
            let writer = if by_other { &mut other } else { &mut trx };
            apply(writer, &table, old.as_ref(), new.as_ref());
            if by_other && rng.chance(20) {
                other.rollback();
            } else {
                match &new {
                    Some(row) => drop(with_own.insert(id, row.clone())),
                    None => drop(with_own.remove(&id)),
                }
                if by_other {
                    other.commit(true).unwrap();
                    // What others commit stays after a rollback to a savepoint.
                    savepoint = (trx.savepoint(), own.clone(), with_own.clone());
                } else {
                    taken.extend(old.iter().chain(&new).map(|row| row.unique));
                    own.insert(id, new);
                }
            }
            if rng.chance(5) {
                trx.rollback_to(savepoint.0).unwrap();
                (own, with_own) = (savepoint.1.clone(), savepoint.2.clone());
            }
            let mut seen = snapshot.clone();
            for (id, row) in &own {
                match row {
                    Some(row) => drop(seen.insert(*id, row.clone())),
                    None => drop(seen.remove(id)),
                }
            }
            assert_is(&mut trx, &table, &seen, &context);
            if rng.chance(10) {
                engine.step().unwrap();
            }
        }
        if rng.chance(30) {
            trx.rollback();
            newest = rows(&mut engine.begin(3), &table);
        } else {
            trx.commit(true).unwrap();
            newest = with_own;
        }
        assert_is(&mut engine.begin(3), &table, &newest, &format!("seed {seed} round {round}"));
    }
}

#[test]
fn own_rows_are_found_by_every_index_as_they_are() {
    for seed in 0..60 {
        overtake(seed);
    }
}
