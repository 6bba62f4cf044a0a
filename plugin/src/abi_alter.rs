//! The exported functions for ALTER TABLE in place. Safety argument: see `abi.rs`, of which this is a
//! part; an [`Alter`] is given back once, by `sluice_alter_commit` or `sluice_alter_abandon`.

use super::*;
use crate::alter::Alter;

exports! {
fn sluice_alter_begin(
    handler: *const Handler, thd: u64, table: *const AbiTable, kept: *const u32,
    to: *mut *mut Alter,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, table) = unsafe { (view(handler)?, view(table)?) };
        // SAFETY: argument 3.
        let shape = unsafe { describe::shape(table)? };
        let mut known = Vec::with_capacity(table.key_count as usize);
        for i in 0..table.key_count as usize {
            // SAFETY: argument 3: there is a number for each key.
            let key = unsafe { kept.add(i).read() };
            known.push((key != u32::MAX).then_some(key as usize));
        }
        let killed = || engine::is_killed(thd);
        let alter = Alter::begin(engine::get()?, handler, shape, &known, &killed)?;
        // SAFETY: `to` is a place for the pointer.
        unsafe { to.write(Box::into_raw(Box::new(alter))) };
        Ok(0)
    })
}

fn sluice_alter_row(alter: *mut Alter, handler: *const Handler, record: *const u8) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (alter, handler) = unsafe { (borrow(alter)?, view(handler)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_of(handler, record) };
        alter.add(record, handler.hidden_ref()).map(|()| 0)
    })
}

fn sluice_alter_build(
    alter: *mut Alter, thd: u64, handler: *mut Handler, session: *mut Session, key: *mut u32,
    record: *mut u8,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (alter, handler, session) =
            unsafe { (borrow(alter)?, borrow(handler)?, borrow(session)?) };
        let Some(duplicate) = alter.build(&|| engine::is_killed(thd))? else { return Ok(0) };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        handler.fetch_clustered(session, &duplicate.clustered, record)?;
        // SAFETY: `key` is a place for the number.
        unsafe { key.write(duplicate.key as u32) };
        Ok(HA_ERR_FOUND_DUPP_KEY)
    })
}

fn sluice_alter_commit(alter: *mut Alter, thd: u64) -> i32 {
    guard(|| {
        // SAFETY: given back once.
        let alter = unsafe { Box::from_raw(alter) };
        alter.commit(engine::get()?, &|| engine::is_killed(thd)).map(|()| 0)
    })
}

fn sluice_alter_abandon(alter: *mut Alter) -> i32 {
    guard(|| {
        // SAFETY: given back once.
        drop(unsafe { Box::from_raw(alter) });
        Ok(0)
    })
}

fn sluice_table_version(name: *const c_char) -> u64 {
    guard_or(0, || {
        // SAFETY: argument 3.
        let table = engine::get()?.table(unsafe { text(name)? })?;
        Ok(table.map_or(0, |table| table.id()))
    })
}
}
