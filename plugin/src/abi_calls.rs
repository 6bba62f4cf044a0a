//! The exported functions. Safety argument: see `abi.rs`, of which this is a part.

use super::*;

exports! {
fn sluice_start(config: *const AbiConfig, host: *const AbiHost) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let (config, host) = unsafe { (view(config)?, *view(host)?) };
        let _ = HOST.set(host);
        // SAFETY: argument 3.
        let data_dir = unsafe { text(config.data_dir)? }.into();
        let log_dir = match config.log_dir.is_null() {
            true => None,
            // SAFETY: argument 3.
            false => Some(unsafe { text(config.log_dir)? }).filter(|d| !d.is_empty()),
        };
        engine::start(config, data_dir, log_dir.map(Into::into))?;
        Ok(0)
    })
}

fn sluice_stop() -> i32 {
    guard(|| engine::stop().map(|()| 0))
}

fn sluice_message(to: *mut c_char, room: usize) -> usize {
    let message = MESSAGE.with(|m| std::mem::take(&mut *m.borrow_mut()));
    if room == 0 {
        return 0;
    }
    let mut n = message.len().min(room - 1);
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    // SAFETY: `to` has `room` bytes, argument 3.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), to.cast::<u8>(), n);
        *to.add(n) = 0;
    }
    n
}

fn sluice_flush_log() -> i32 {
    guard(|| {
        crate::planted::flush()?;
        engine::get()?.flush_log().map(|()| 0)
    })
}

fn sluice_backup_begin() -> i32 {
    guard(|| engine::get()?.begin_backup().map(|_| 0))
}

fn sluice_backup_end() -> i32 {
    guard(|| {
        engine::get()?.end_backup();
        Ok(0)
    })
}

fn sluice_set_flush_at_commit(mode: u32) -> i32 {
    guard(|| {
        engine::get()?.set_flush_at_commit(engine::flush_mode(mode));
        Ok(0)
    })
}

fn sluice_set_statistics(recalculates: u32, sample_pages: u64) -> i32 {
    guard(|| {
        let engine = engine::get()?;
        engine.set_statistics_recalculation(recalculates != 0);
        engine.set_statistics_sample_pages(sample_pages as usize);
        Ok(0)
    })
}

fn sluice_set_buffer_pool_bytes(bytes: u64) -> i32 {
    guard(|| {
        engine::get()?.set_buffer_pool_bytes(bytes);
        Ok(0)
    })
}

fn sluice_set_log_capacity_bytes(bytes: u64) -> i32 {
    guard(|| {
        engine::get()?.set_log_capacity_bytes(bytes);
        Ok(0)
    })
}

fn sluice_set_log_compression(compression: u32) -> i32 {
    guard(|| {
        engine::get()?.set_log_compression(engine::log_compression_of(compression));
        Ok(0)
    })
}

fn sluice_set_space_amplification(pct: u32) -> i32 {
    guard(|| {
        engine::get()?.set_space_percent(u64::from(pct));
        Ok(0)
    })
}

fn sluice_set_page_deltas(is_on: u32) -> i32 {
    guard(|| {
        engine::get()?.set_page_deltas(is_on != 0);
        Ok(0)
    })
}

fn sluice_set_rotate_key_age(versions: u32) -> i32 {
    guard(|| {
        engine::get()?.set_rotate_key_age(versions);
        Ok(0)
    })
}

fn sluice_status(to: *mut AbiStatusValue, room: usize) -> usize {
    guard_or(0, || {
        let values = engine::get()?.status();
        let n = values.len().min(room);
        for (i, (name, value)) in values.into_iter().take(n).enumerate() {
            let mut out = AbiStatusValue { name: [0; 64], value };
            let len = name.len().min(63);
            out.name[..len].copy_from_slice(&name.as_bytes()[..len]);
            // SAFETY: `to` has room for `room` values.
            unsafe { to.add(i).write(out) };
        }
        Ok(n)
    })
}

fn sluice_status_text(print: Print, context: *mut c_void) -> i32 {
    guard(|| {
        print_text(print, context, &engine::get()?.status_text());
        Ok(0)
    })
}

fn sluice_table_writes(row: WritesRow, context: *mut c_void) -> i32 {
    guard(|| {
        for (of, bytes) in engine::get()?.writes_by_table() {
            let WrittenBytes { log, build, eviction, checkpoint, gc, other } = bytes;
            let total = bytes.total();
            let bytes = AbiWrites { log, build, eviction, checkpoint, gc, other, total };
            let name = of.name();
            if row(context, name.as_ptr().cast(), name.len(), &bytes) != 0 {
                break;
            }
        }
        Ok(0)
    })
}

fn sluice_interrupt(session: u64) -> i32 {
    guard(|| {
        engine::get()?.interrupt(session);
        Ok(0)
    })
}

fn sluice_create_table(
    thd: u64, name: *const c_char, table: *const AbiTable, autoinc_start: u64, compression: u32,
    flags: u32,
) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let (name, shape) = unsafe { (text(name)?, describe::shape(view(table)?)?) };
        let mut spec = describe::spec(&shape, autoinc_start);
        spec.compression = engine::compression_of(compression);
        spec.is_encrypted = flags & CREATE_ENCRYPTED != 0;
        let killed = || engine::is_killed(thd);
        engine::get()?.create_table_unless(&killed, name, spec, flags & CREATE_TEMPORARY != 0).map(|()| 0)
    })
}

fn sluice_drop_temporary_tables() -> i32 {
    guard(|| engine::drop_temporary_tables().map(|()| 0))
}

fn sluice_drop_table(name: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let existed = engine::get()?.drop_table(unsafe { text(name)? })?;
        Ok(row_found(existed, HA_ERR_NO_SUCH_TABLE))
    })
}

fn sluice_rename_table(thd: u64, from: *const c_char, to: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let (from, to) = unsafe { (text(from)?, text(to)?) };
        let killed = || engine::is_killed(thd);
        let durability = engine::get()?.rename_table_unless(&killed, from, to)?;
        engine::settle("RENAME TABLE", durability).map(|()| 0)
    })
}

fn sluice_truncate_table(thd: u64, name: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let name = unsafe { text(name)? };
        let killed = || engine::is_killed(thd);
        let durability = engine::get()?.truncate_table_unless(&killed, name, 1)?;
        engine::settle("TRUNCATE TABLE", durability).map(|()| 0)
    })
}

fn sluice_session_open(id: u64, to: *mut *mut Session) -> i32 {
    guard(|| {
        let session = Box::new(Session::new(engine::get()?, id));
        engine::session_opened(id);
        // SAFETY: `to` is a place for the pointer.
        unsafe { to.write(Box::into_raw(session)) };
        Ok(0)
    })
}

fn sluice_session_close(session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1; closed once.
        let session = unsafe { Box::from_raw(session) };
        engine::session_closed(session.id);
        session.close();
        Ok(0)
    })
}

fn sluice_statement_start(session: *mut Session, isolation: u32, timeout_ms: u64) -> i32 {
    guard(|| {
        let isolation = match isolation {
            0 => Isolation::ReadUncommitted,
            1 => Isolation::ReadCommitted,
            3 => Isolation::Serializable,
            _ => Isolation::RepeatableRead,
        };
        // SAFETY: argument 1.
        let session = unsafe { borrow(session)? };
        let open = session.statement_start(isolation, Duration::from_millis(timeout_ms));
        Ok(if open { 0 } else { HA_ERR_WRONG_COMMAND })
    })
}

fn sluice_statement_end(session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(session)? }.statement_end()?;
        Ok(0)
    })
}

fn sluice_statement_rollback(session: *mut Session) -> i32 {
    // SAFETY: argument 1.
    guard(|| unsafe { borrow(session)? }.statement_rollback().map(|()| 0))
}

fn sluice_wait_for_prepared(
    session: *mut Session, name: *const c_char, timeout_ms: u64,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (session, name) = unsafe { (borrow(session)?, text(name)?) };
        session.wait_for_prepared(name, Duration::from_millis(timeout_ms)).map(|()| 0)
    })
}

fn sluice_table_count() -> u64 {
    guard_or(0, || Ok(engine::get()?.table_names().len() as u64))
}

fn sluice_drop_database(
    session: *mut Session, prefix: *const c_char, timeout_ms: u64,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (session, prefix) = unsafe { (borrow(session)?, text(prefix)?) };
        for name in engine::get()?.table_names().iter().filter(|n| n.starts_with(prefix)) {
            session.wait_for_prepared(name, Duration::from_millis(timeout_ms))?;
            engine::get()?.drop_table(name)?;
        }
        Ok(0)
    })
}

fn sluice_open_snapshot(session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(session)? }.trx.open_snapshot();
        Ok(0)
    })
}

fn sluice_prepare(session: *mut Session, xid: *const AbiXid, hooked: i32) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (session, xid) = unsafe { (borrow(session)?, view(xid)?) };
        session.prepare(&describe::xid_bytes(xid), hooked != 0).map(|()| 0)
    })
}

fn sluice_commit_ordered(session: *mut Session, covered: i32) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(session)? }.commit_ordered(covered != 0);
        Ok(0)
    })
}

fn sluice_commit(session: *mut Session, binlog_decides: i32) -> i32 {
    // SAFETY: argument 1.
    guard(|| unsafe { borrow(session)? }.commit(binlog_decides != 0).map(|()| 0))
}

fn sluice_rollback(session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(session)? }.rollback();
        Ok(0)
    })
}

fn sluice_savepoint_set(session: *mut Session, to: *mut c_void) -> i32 {
    const { assert!(size_of::<Savepoint>() <= 16) };
    guard(|| {
        // SAFETY: argument 1; the server keeps 16 bytes for us (savepoint_offset).
        unsafe { to.cast::<Savepoint>().write_unaligned(borrow(session)?.savepoint()) };
        Ok(0)
    })
}

fn sluice_savepoint_rollback(session: *mut Session, from: *const c_void) -> i32 {
    guard(|| {
        // SAFETY: argument 1; the bytes are those that sluice_savepoint_set wrote.
        let (session, to) = unsafe {
            (borrow(session)?, from.cast::<Savepoint>().read_unaligned())
        };
        session.trx.rollback_to(to).map(|()| 0)
    })
}

fn sluice_holds_no_locks(session: *const Session) -> i32 {
    // SAFETY: argument 1.
    guard_or(0, || Ok(i32::from(unsafe { view(session)? }.trx.holds_no_locks())))
}

fn sluice_recover(to: *mut AbiXid, room: usize) -> usize {
    guard_or(0, || {
        let mut n = 0;
        for bytes in engine::recover_pass(room)? {
            let Some(xid) = describe::xid_of(&bytes) else { continue };
            // SAFETY: `to` has room for `room` values.
            unsafe { to.add(n).write(xid) };
            n += 1;
        }
        Ok(n)
    })
}

fn sluice_commit_xid(xid: *const AbiXid) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let bytes = describe::xid_bytes(unsafe { view(xid)? });
        Ok(row_found(engine::get()?.commit_prepared(&bytes)?, XAER_NOTA))
    })
}

fn sluice_rollback_xid(xid: *const AbiXid) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let bytes = describe::xid_bytes(unsafe { view(xid)? });
        Ok(row_found(engine::get()?.rollback_prepared(&bytes)?, XAER_NOTA))
    })
}

fn sluice_open(name: *const c_char, table: *const AbiTable, to: *mut *mut Handler) -> i32 {
    guard(|| {
        // SAFETY: argument 3.
        let (name, shape) = unsafe { (text(name)?, describe::shape(view(table)?)?) };
        let handler = Handler::open(engine::get()?, name, shape, &engine::Server)?;
        // SAFETY: `to` is a place for the pointer.
        unsafe { to.write(Box::into_raw(Box::new(handler))) };
        Ok(0)
    })
}

fn sluice_close(handler: *mut Handler) -> i32 {
    guard(|| {
        // SAFETY: argument 1; closed once.
        drop(unsafe { Box::from_raw(handler) });
        Ok(0)
    })
}

fn sluice_lock(handler: *mut Handler, lock: u32, wait: u32) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let handler = unsafe { borrow(handler)? };
        let wait = match wait {
            1 => WaitPolicy::NoWait,
            2 => WaitPolicy::SkipLocked,
            _ => WaitPolicy::Wait,
        };
        handler.mode = match lock {
            0 => ReadMode::Snapshot,
            1 if crate::planted::is("L2") => ReadMode::Snapshot,
            lock => ReadMode::Lock { exclusive: lock == 2 && !crate::planted::is("L1"), wait },
        };
        handler.refresh(engine::get()?).map(|()| 0)
    })
}

fn sluice_set_replace(handler: *mut Handler, on: u32) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(handler)? }.replace = on != 0;
        Ok(0)
    })
}

fn sluice_copy_begin(handler: *mut Handler, session: *mut Session, loads: u32) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        handler.copies = true;
        session.copy_begin(&handler.table, loads != 0);
        Ok(0)
    })
}

fn sluice_copy_duplicate(handler: *mut Handler, session: *mut Session, record: *mut u8) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        handler.put_duplicate(session, record).map(|()| 0)
    })
}

fn sluice_copy_end(handler: *mut Handler, session: *mut Session, keep: u32) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        handler.copies = false;
        match keep {
            0 => session.copy_abort(),
            _ => session.copy_end()?,
        }
        Ok(0)
    })
}

fn sluice_bulk_begin(handler: *mut Handler, session: *mut Session, bytes: u64) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        handler.bulk = true;
        session.bulk_begin(&handler.table, usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(0)
    })
}

fn sluice_bulk_end(handler: *mut Handler, session: *mut Session, keep: u32) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        handler.bulk = false;
        session.bulk_end(keep != 0)?;
        Ok(0)
    })
}

fn sluice_reset(handler: *mut Handler) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(handler)? }.reset();
        Ok(0)
    })
}

fn sluice_set_columns(handler: *mut Handler, bits: *const u8, bytes: usize, all: u32) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, bits) = unsafe {
            (borrow(handler)?, std::slice::from_raw_parts(bits, bytes))
        };
        handler.want(bits, all != 0);
        Ok(0)
    })
}

fn sluice_planted(name: *const c_char) -> u32 {
    // SAFETY: argument 3.
    guard_or(0, || Ok(u32::from(crate::planted::is(unsafe { text(name)? }))))
}

fn sluice_set_keyread(handler: *mut Handler, on: u32) -> i32 {
    guard(|| {
        let keyread = match on {
            0 => Keyread::Off,
            1 => Keyread::On,
            _ => Keyread::KeepOthers,
        };
        // SAFETY: argument 1.
        unsafe { borrow(handler)? }.set_keyread(keyread);
        Ok(0)
    })
}

fn sluice_try_semi_consistent(handler: *mut Handler, on: u32) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(handler)? }.try_semi_consistent(on != 0);
        Ok(0)
    })
}

fn sluice_was_semi_consistent(handler: *const Handler) -> i32 {
    // SAFETY: argument 1.
    guard_or(0, || Ok(i32::from(unsafe { view(handler)? }.was_semi_consistent())))
}

fn sluice_insert(handler: *mut Handler, session: *mut Session, record: *const u8) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_of(handler, record) };
        handler.insert(session, record).map(|()| 0)
    })
}

fn sluice_update(
    handler: *mut Handler, session: *mut Session, before: *const u8, after: *const u8,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let (before, after) = unsafe { (record_of(handler, before), record_of(handler, after)) };
        match handler.update(session, before, after)? {
            UpdateOutcome::Done => Ok(0),
            UpdateOutcome::Failed(code) => Ok(code),
        }
    })
}

fn sluice_delete(handler: *mut Handler, session: *mut Session, record: *const u8) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 2.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_of(handler, record) };
        handler.delete(session, record).map(|()| 0)
    })
}

fn sluice_duplicate_key(handler: *const Handler, session: *mut Session) -> u32 {
    // SAFETY: argument 1.
    guard_or(u32::MAX, || unsafe { Ok(view(handler)?.duplicate_key(borrow(session)?) as u32) })
}

fn sluice_range_end(handler: *mut Handler, key: u32, end: *const AbiBound) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, end) = unsafe { (borrow(handler)?, bound_of(end)) };
        let index = handler.shape.index_of_key(key as usize);
        handler.set_range_end(index, end).map(|()| 0)
    })
}

fn sluice_seek(
    handler: *mut Handler, session: *mut Session, key: u32, at: *const AbiBound, find: u32,
    record: *mut u8,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, session, at) = unsafe {
            (borrow(handler)?, borrow(session)?, bound_of(at))
        };
        let at = at.ok_or_else(|| Error::Refused("a search without a key".into()))?;
        let index = handler.shape.index_of_key(key as usize);
        let find = match find {
            0 => Find::Exact,
            1 => Find::AtOrAfter,
            2 => Find::AtOrBefore,
            3 => Find::After,
            4 => Find::Before,
            _ => Find::Last,
        };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        let found = handler.seek(session, index, at, find, record)?;
        Ok(row_found(found, HA_ERR_KEY_NOT_FOUND))
    })
}

fn sluice_first(
    handler: *mut Handler, session: *mut Session, key: u32, backward: u32, record: *mut u8,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        let index = match key {
            u32::MAX => 0,
            key => handler.shape.index_of_key(key as usize),
        };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        let found = handler.start(session, index, key == u32::MAX, direction(backward), record)?;
        Ok(row_found(found, HA_ERR_END_OF_FILE))
    })
}

fn sluice_step(
    handler: *mut Handler, session: *mut Session, backward: u32, record: *mut u8,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        let found = handler.step(session, direction(backward), record)?;
        Ok(row_found(found, HA_ERR_END_OF_FILE))
    })
}

fn sluice_step_same(handler: *mut Handler, session: *mut Session, record: *mut u8) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        Ok(row_found(handler.step_same(session, record)?, HA_ERR_END_OF_FILE))
    })
}

fn sluice_scan_end(handler: *mut Handler) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(handler)? }.scan_end();
        Ok(0)
    })
}

fn sluice_fetch(
    handler: *mut Handler, session: *mut Session, reference: *const u8, ref_bytes: usize,
    record: *mut u8,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, session, image) = unsafe {
            (borrow(handler)?, borrow(session)?, std::slice::from_raw_parts(reference, ref_bytes))
        };
        // SAFETY: argument 2.
        let record = unsafe { record_mut(handler, record) };
        Ok(row_found(handler.fetch(session, image, record)?, HA_ERR_KEY_NOT_FOUND))
    })
}

fn sluice_hidden_ref(handler: *const Handler, to: *mut u8) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let key = unsafe { view(handler)? }.hidden_ref();
        let n = key.len().min(crate::key::HIDDEN_KEY_BYTES);
        // SAFETY: a reference has 8 bytes in such a table.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), to, n) };
        Ok(0)
    })
}

fn sluice_compare_refs(
    handler: *mut Handler, left: *const u8, right: *const u8, ref_bytes: usize,
) -> i32 {
    guard_or(0, || {
        // SAFETY: arguments 1 and 3.
        let (handler, left, right) = unsafe {
            (
                borrow(handler)?,
                std::slice::from_raw_parts(left, ref_bytes),
                std::slice::from_raw_parts(right, ref_bytes),
            )
        };
        Ok(handler.encode_ref(left)?.cmp(&handler.encode_ref(right)?) as i32)
    })
}

fn sluice_unlock_row(handler: *mut Handler, session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        handler.unlock_row(session);
        Ok(0)
    })
}

fn sluice_check_table(handler: *mut Handler, quick: u32, print: Print, context: *mut c_void) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let handler = unsafe { borrow(handler)? };
        let depth = if quick != 0 { CheckDepth::Quick } else { CheckDepth::Full };
        // The context is the session, as its handle for the host.
        let killed = || engine::is_killed(context as u64);
        let faults = handler.check(engine::get()?, depth, &killed)?.faults;
        faults.iter().for_each(|fault| print_text(print, context, fault));
        Ok(if faults.is_empty() { 0 } else { HA_ERR_CRASHED })
    })
}

fn sluice_is_stale(handler: *const Handler) -> i32 {
    // SAFETY: argument 1.
    guard_or(0, || Ok(i32::from(unsafe { view(handler)? }.is_stale())))
}

fn sluice_info_of(handler: *const Handler, to: *mut AbiInfo) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let table = &unsafe { view(handler)? }.table;
        let size = table.size();
        let info = AbiInfo {
            rows: size.rows,
            data_bytes: size.data_bytes,
            index_bytes: size.index_bytes,
            next_autoinc: table.autoinc_peek(),
            clustered_pages: size.clustered_pages,
            statistics_version: table.statistics().1,
        };
        // SAFETY: `to` is a place for it.
        unsafe { to.write(info) };
        Ok(0)
    })
}

fn sluice_key_statistics_of(
    handler: *const Handler, key: u32, to: *mut AbiKeyStatistics,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let handler = unsafe { view(handler)? };
        let index = handler.shape.index_of_key(key as usize);
        let mut out =
            AbiKeyStatistics { entries: 0, leaf_pages: 0, distinct: [0; 64], count: 0, reserved: 0 };
        if let Some(found) = handler.key_statistics(index) {
            let count = found.distinct.len().min(out.distinct.len());
            out.distinct[..count].copy_from_slice(&found.distinct[..count]);
            (out.entries, out.leaf_pages, out.count) = (found.entries, found.leaf_pages, count as u32);
        }
        // SAFETY: `to` is a place for it.
        unsafe { to.write(out) };
        Ok(0)
    })
}

fn sluice_analyze_table(handler: *mut Handler, session: u64, sample_pages: u64) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let handler = unsafe { borrow(handler)? };
        handler.analyze(engine::get()?, session, sample_pages as usize).map(|()| 0)
    })
}

fn sluice_rows_in_range(
    handler: *mut Handler, key: u32, low: *const AbiBound, high: *const AbiBound,
    to: *mut AbiRange,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, low, high) = unsafe { (borrow(handler)?, bound_of(low), bound_of(high)) };
        let index = handler.shape.index_of_key(key as usize);
        let found = handler.rows_in_range(index, low, high)?;
        let (first_page, last_page) = (found.first_leaf.0, found.last_leaf.0);
        // SAFETY: `to` is a place for it.
        unsafe { to.write(AbiRange { rows: found.entries, first_page, last_page }) };
        Ok(0)
    })
}

fn sluice_autoinc_get(
    handler: *mut Handler, session: *mut Session, wanted: *const AbiAutoinc, first: *mut u64,
    count: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: arguments 1 and 3.
        let (handler, session, wanted) = unsafe {
            (borrow(handler)?, borrow(session)?, view(wanted)?)
        };
        // SAFETY: `first` is a place for it, and has a value.
        let from = unsafe { *first };
        let wanted = Wanted {
            offset: wanted.offset,
            increment: wanted.increment,
            rows: wanted.rows,
            max: wanted.max,
            is_alter: wanted.is_alter != 0,
            first: from,
        };
        let values = handler.autoinc.get(&handler.table, &mut session.autoinc_rows, wanted);
        // SAFETY: places for them.
        unsafe {
            first.write(values.first);
            count.write(values.count);
        }
        Ok(0)
    })
}

fn sluice_autoinc_wrote(
    handler: *mut Handler, session: *mut Session, value: u64, max: u64, how: u32,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let (handler, session) = unsafe { (borrow(handler)?, borrow(session)?) };
        let Handler { autoinc, table, .. } = handler;
        match how {
            AUTOINC_UPDATED => autoinc.updated(table, value, max),
            AUTOINC_STORED => autoinc.keep(table, value, max),
            _ => session.autoinc_rows = session.autoinc_rows.saturating_sub(1),
        }
        if matches!(how, AUTOINC_GIVEN | AUTOINC_REPLACES) {
            autoinc.wrote(table, value, max, how == AUTOINC_REPLACES);
        }
        Ok(0)
    })
}

fn sluice_autoinc_statement(session: *mut Session) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        unsafe { borrow(session)? }.autoinc_rows = 0;
        Ok(0)
    })
}

fn sluice_autoinc_bulk(
    handler: *mut Handler, on: u32, offset: u64, increment: u64,
) -> i32 {
    guard(|| {
        // SAFETY: argument 1.
        let handler = unsafe { borrow(handler)? };
        handler.autoinc.set_bulk(&handler.table, on != 0);
        if increment != 0 {
            handler.autoinc.set_series(offset, increment);
        }
        Ok(0)
    })
}
}
