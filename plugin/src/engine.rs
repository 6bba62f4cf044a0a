//! The one engine of the process, and what it asks of the server.

use crate::abi_types::AbiConfig;
use crate::host::HOST;
use crate::planted;
use crate::shape::Collator;
use crate::watch::WatchedOs;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    self, Compression, Config, Durability, Encryption, Engine, FlushAtCommit, Keys, Level,
    LogCompression, Scope,
};
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

/// `AbiConfig::encrypts`; any other number: all tables are encrypted.
const ENCRYPT_OFF: u32 = 0;
const ENCRYPT_TABLES: u32 = 2;
/// Key management plugins have keys of 16 to 32 bytes.
const KEY_BYTES_MAX: usize = 255;

static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
/// Sessions whose THD is alive: a lock holder may be gone when its waiter is reported.
static SESSIONS: RwLock<Option<HashSet<u64>>> = RwLock::new(None);

thread_local! {
    /// The session whose wait was announced to the server during this call; 0 for none.
    static WAITING: Cell<u64> = const { Cell::new(0) };
}

pub fn get() -> Result<&'static Arc<Engine>> {
    ENGINE.get().ok_or_else(|| Error::Refused("the Sluice engine is not running".into()))
}

pub fn flush_mode(mode: u32) -> FlushAtCommit {
    match mode {
        0 => FlushAtCommit::EverySecond,
        2 => FlushAtCommit::WriteOnly,
        _ => FlushAtCommit::AtCommit,
    }
}

/// Method, and level in the second byte; `None` is the default of the server.
pub fn compression_of(code: u32) -> Option<Compression> {
    match (code & 0xff, code >> 8 & 0xff) {
        (0, _) => Some(Compression::None),
        (1, _) => Some(Compression::Lz4),
        (2, level) => Some(Compression::Zstd(level as i32)),
        _ => None,
    }
}

/// Of the log: the numbers are those of `sluice_log_compression`.
pub fn log_compression_of(method: u32) -> LogCompression {
    match method {
        0 => LogCompression::None,
        1 => LogCompression::Lz4,
        2 => LogCompression::Zstd,
        _ => LogCompression::Auto,
    }
}

/// Temporary tables, whose names have no database, belong to sessions: there are none yet.
pub fn drop_temporary_tables() -> Result<()> {
    let engine = get()?;
    for name in engine.table_names().iter().filter(|name| !name.contains('/')) {
        engine.drop_table(name)?;
    }
    Ok(())
}

/// How long a DDL statement waits before it looks for room in the log again.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Makes a statement durable that has happened: after an error the server would take its own half back. So it
/// waits until there is room for the log. If the log has stopped, nobody knows what is durable: the process ends,
/// and at the next start the server's log of DDL statements goes by what is there.
pub fn settle(statement: &str, durability: Durability) -> Result<()> {
    let Err(mut error) = durability.or_error().and_then(|()| planted::ddl()) else {
        return Ok(());
    };
    if planted::is("not-settled") {
        return Err(error);
    }
    log(
        Level::Error,
        &format!("{statement}: its change is logged and not yet durable: {}", describe(&error)),
    );
    while let Error::Full { .. } = error {
        std::thread::sleep(ROOM_WAIT);
        match planted::flush().and_then(|()| get()?.flush_log()) {
            Ok(()) => return Ok(()),
            Err(again) => error = again,
        }
    }
    log_error(&format!(
        "{statement}: {}. Nobody knows whether its change is durable, so the server ends here and \
         finds out at its next start",
        describe(&error)
    ));
    std::process::abort()
}

/// Where the log is unless sluice_log_dir names another place, and a file of it.
const OWN_LOG: &str = "log";
const LOG_CONTROL: &str = "control";

/// Refuses pages with a log beside them while sluice_log_dir names another one. A restored directory has its log
/// there, and that of the server before it goes on from pages of another moment.
fn refuse_two_logs(data_dir: &Path, log_dir: &Path) -> Result<()> {
    let own = data_dir.join(OWN_LOG);
    let place = |dir: &Path| fs::canonicalize(dir).ok();
    if !own.join(LOG_CONTROL).exists() || place(&own) == place(log_dir) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "there are two logs: one in {}, and sluice_log_dir is {}. Tables that sluice restore has made have the \
         first: remove the setting, or move that log to a new directory, which it names. If the second is theirs, \
         move the first away",
        own.display(),
        log_dir.display()
    )))
}

pub fn start(config: &AbiConfig, data_dir: PathBuf, log_dir: Option<PathBuf>) -> Result<()> {
    log_dir.as_deref().map_or(Ok(()), |log_dir| refuse_two_logs(&data_dir, log_dir))?;
    let config = Config {
        data_dir,
        log_dir,
        buffer_pool_bytes: config.buffer_pool_bytes,
        page_map_bytes: None,
        log_capacity_bytes: config.log_capacity_bytes,
        flush_at_commit: flush_mode(config.flush_at_commit),
        compression: compression_of(config.compression).unwrap_or(Compression::Lz4),
        log_compression: log_compression_of(config.log_compression),
        space_percent: u64::from(config.space_amplification_pct),
        encryption: Some(Encryption {
            keys: Arc::new(Server),
            writes_under: (config.encrypts != ENCRYPT_OFF).then_some(config.encryption_key_id),
            scope: match config.encrypts {
                ENCRYPT_TABLES => Scope::NamedTables,
                _ => Scope::AllTables,
            },
        }),
        rotate_key_age: config.rotate_key_age,
        page_deltas: config.page_deltas != 0,
        background: true,
    };
    let engine = Engine::open(WatchedOs::new(), config, Arc::new(Host))?;
    ENGINE.set(engine).map_err(|_| Error::Refused("the Sluice engine was started twice".into()))
}

pub fn stop() -> Result<()> {
    match ENGINE.get() {
        Some(engine) => engine.shutdown(),
        None => Ok(()),
    }
}

/// Where a pass over the prepared transactions stands: the name that was handed out last.
static RECOVER_AT: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// The next names, at most `room`. The server asks until it gets fewer than it has room for;
/// then a new pass begins.
pub fn recover_pass(room: usize) -> Result<Vec<Vec<u8>>> {
    let mut at = RECOVER_AT.lock().unwrap_or_else(|e| e.into_inner());
    let mut names = get()?.prepared();
    names.sort_unstable();
    names.retain(|name| at.as_ref().is_none_or(|last| name > last));
    names.truncate(room);
    *at = if names.len() < room { None } else { names.last().cloned() };
    Ok(names)
}

pub fn session_opened(id: u64) {
    let mut sessions = SESSIONS.write().unwrap_or_else(|e| e.into_inner());
    sessions.get_or_insert_default().insert(id);
}

pub fn session_closed(id: u64) {
    let mut sessions = SESSIONS.write().unwrap_or_else(|e| e.into_inner());
    sessions.get_or_insert_default().remove(&id);
}

pub fn log(level: Level, text: &str) {
    db::Host::log(&Host, level, text);
}

/// The text of an error for the user; damage is named and goes to the error log as well.
pub fn describe(error: &Error) -> String {
    match ENGINE.get() {
        Some(engine) => {
            engine.report_damage(error);
            engine.describe_damage(error)
        }
        None => error.to_string(),
    }
}

pub fn log_error(text: &str) {
    log(Level::Error, text);
}

/// Ends the wait that `lock_wait` announced, if there was one.
pub fn wait_over() {
    let session = WAITING.take();
    if let (true, Some(host)) = (session != 0, HOST.get()) {
        (host.wait_end)(session);
    }
}

/// Was the session, or its statement, killed?
pub fn is_killed(session: u64) -> bool {
    HOST.get().is_some_and(|host| (host.killed)(session) != 0)
}

pub struct Host;

impl db::Host for Host {
    fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Note => 0,
            Level::Warning => 1,
            Level::Error => 2,
        };
        if let Some(host) = HOST.get() {
            (host.log)(level, message.as_ptr().cast(), message.len());
        }
    }

    fn lock_wait(&self, waiter: u64, holder: u64) {
        let Some(host) = HOST.get() else { return };
        if WAITING.get() == 0 {
            WAITING.set(waiter);
            (host.wait_begin)(waiter);
        }
        {
            // Held while the server looks at the holder's THD, so that it cannot end meanwhile.
            let sessions = SESSIONS.read().unwrap_or_else(|e| e.into_inner());
            if sessions.as_ref().is_some_and(|s| s.contains(&holder)) {
                (host.lock_wait)(waiter, holder);
            }
        }
        // A kill that came before the wait began woke nobody.
        if is_killed(waiter) {
            if let Ok(engine) = get() {
                engine.interrupt(waiter);
            }
        }
    }
}

/// The server's collations and keys.
pub struct Server;

impl Keys for Server {
    fn newest(&self, id: u32) -> Option<u32> {
        let version = (HOST.get()?.key_newest)(id);
        (version != 0 && version != u32::MAX).then_some(version)
    }

    fn key(&self, id: u32, version: u32) -> Option<Vec<u8>> {
        let mut key = vec![0; KEY_BYTES_MAX];
        let bytes = (HOST.get()?.key)(id, version, key.as_mut_ptr(), KEY_BYTES_MAX as u32);
        key.truncate(bytes as usize);
        (!key.is_empty()).then_some(key)
    }
}

impl Collator for Server {
    fn weights(
        &self,
        charset: usize,
        level: u32,
        expansion: usize,
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let Some(host) = HOST.get() else { return };
        let start = out.len();
        out.resize(start + value.len() * expansion + 64, 0);
        let room = &mut out[start..];
        let charset = charset as *const c_void;
        let (to, from) = (room.as_mut_ptr(), value.as_ptr());
        let n = (host.weights)(charset, level, to, room.len(), from, value.len()).min(room.len());
        out.truncate(start + n);
    }

    fn prefix(&self, charset: usize, value: &[u8], chars: usize) -> usize {
        let Some(host) = HOST.get() else { return value.len() };
        (host.prefix)(charset as *const c_void, value.as_ptr(), value.len(), chars)
    }
}
