//! The C side of the plugin: mirrors the functions of `cpp/sluice_abi.h`, turns pointers into
//! references.
//!
//! Safety argument. Every function here is called by the C++ handler of this plugin only, under
//! the server's rules for handlers and handlertons:
//! 1. A pointer to a session or handler came from `sluice_session_open` or `sluice_open`, is
//!    closed once, and is used by one thread at a time. (commit_ordered may run in another
//!    thread while the owner waits for it: still one at a time.)
//! 2. A record is `record_bytes` long, as the table description said; the addresses in its BLOB
//!    columns are valid during the call.
//! 3. Descriptions, names, images and the structures of the header are valid during the call
//!    and as long as their counts say; names end with a zero byte.
//! 4. Host callbacks stay valid until the process ends: the plugin is not unloaded while used.
//! 5. No panic crosses: every function runs inside [`guard`].

pub use crate::abi_types::*;
use crate::autoinc::Wanted;
use crate::describe;
use crate::engine;
use crate::errors::{self, *};
use crate::handler::{Find, Handler, ImageBound, Keyread, UpdateOutcome};
use crate::host::HOST;
use crate::record::Record;
use crate::session::Session;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::{
    CheckDepth, Direction, Isolation, ReadMode, Savepoint, WaitPolicy, WrittenBytes,
};
use std::cell::RefCell;
use std::ffi::{c_char, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

/// How a row with an AUTO_INCREMENT value ended, for `sluice_autoinc_wrote`.
const AUTOINC_GIVEN: u32 = 0;
const AUTOINC_REPLACES: u32 = 1;
const AUTOINC_UPDATED: u32 = 3;
const AUTOINC_STORED: u32 = 4;
/// Flags of a new table.
const CREATE_TEMPORARY: u32 = 1;
const CREATE_ENCRYPTED: u32 = 2;

type Print = extern "C" fn(*mut c_void, *const c_char, usize);
type WritesRow = extern "C" fn(*mut c_void, *const c_char, usize, *const AbiWrites) -> i32;

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

fn set_message(text: String) {
    MESSAGE.with(|m| *m.borrow_mut() = text);
}

/// Runs a call; gives its number, and keeps the text of an error for `sluice_message`.
fn guard(call: impl FnOnce() -> Result<i32>) -> i32 {
    let code = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => {
            // A message that an earlier call left unread is not about this number.
            if code != 0 {
                set_message(String::new());
            }
            code
        }
        Ok(Err(error)) => {
            set_message(if errors::has_detail(&error) {
                crate::engine::describe(&error)
            } else {
                String::new()
            });
            errors::code(&error)
        }
        Err(panic) => {
            let why = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no text");
            let text = format!("internal error (panic): {why}");
            crate::engine::log_error(&text);
            set_message(text);
            HA_ERR_INTERNAL_ERROR
        }
    };
    crate::engine::wait_over();
    code
}

/// For functions that give a count or a value instead of a number. The caller sees no error, so
/// no text of it may stay: it would become a warning of another statement.
fn guard_or<T>(fallback: T, call: impl FnOnce() -> Result<T>) -> T {
    let mut out = fallback;
    let slot = &mut out;
    let code = guard(move || {
        *slot = call()?;
        Ok(0)
    });
    if code != 0 {
        set_message(String::new());
    }
    out
}

fn row_found(found: bool, otherwise: i32) -> i32 {
    if found {
        0
    } else {
        otherwise
    }
}

/// # Safety: argument 3.
unsafe fn text<'a>(at: *const c_char) -> Result<&'a str> {
    // SAFETY: argument 3.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Error::Refused("a name is not UTF-8".into()))
}

/// # Safety: argument 2.
unsafe fn record_of<'a>(handler: &Handler, at: *const u8) -> Record<'a> {
    // SAFETY: argument 2.
    unsafe { Record::new(std::slice::from_raw_parts(at, handler.shape.record_bytes())) }
}

/// # Safety: argument 2, and nobody else looks at the record during the call.
unsafe fn record_mut<'a>(handler: &Handler, at: *mut u8) -> &'a mut [u8] {
    // SAFETY: argument 2.
    unsafe { std::slice::from_raw_parts_mut(at, handler.shape.record_bytes()) }
}

/// # Safety: argument 3.
unsafe fn bound_of<'a>(at: *const AbiBound) -> Option<ImageBound<'a>> {
    // SAFETY: argument 3; null means no bound.
    let bound = unsafe { at.as_ref() }?;
    if bound.image.is_null() {
        return None;
    }
    // SAFETY: argument 3.
    let image = unsafe { std::slice::from_raw_parts(bound.image, bound.image_bytes) };
    Some(ImageBound { image, parts: bound.parts as usize, inclusive: bound.inclusive != 0 })
}

/// # Safety: argument 1.
unsafe fn borrow<'a, T>(at: *mut T) -> Result<&'a mut T> {
    // SAFETY: argument 1.
    unsafe { at.as_mut() }.ok_or_else(|| Error::Refused("called without an object".into()))
}

/// # Safety: argument 1; shared use within one call.
unsafe fn view<'a, T>(at: *const T) -> Result<&'a T> {
    // SAFETY: argument 1 or 3.
    unsafe { at.as_ref() }.ok_or_else(|| Error::Refused("called without an object".into()))
}

fn direction(backward: u32) -> Direction {
    if backward != 0 {
        Direction::Backward
    } else {
        Direction::Forward
    }
}

fn print_text(print: Print, context: *mut c_void, text: &str) {
    print(context, text.as_ptr().cast(), text.len());
}

// Every function below: SAFETY by the argument at the top of this file.
macro_rules! exports {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $(
            /// # Safety
            /// The safety argument at the top of this file.
            #[no_mangle]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret $body
        )*
    };
}

#[path = "abi_calls.rs"]
mod calls;
pub use calls::*;
#[path = "abi_alter.rs"]
mod alter_calls;
pub use alter_calls::*;
#[path = "abi_binlog.rs"]
mod binlog_calls;
pub use binlog_calls::*;

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        MESSAGE.with(|m| m.borrow().clone())
    }

    fn fails() -> Result<i32> {
        Err(Error::Refused("of the first call".into()))
    }

    #[test]
    fn a_text_belongs_to_the_call_that_failed_last() {
        assert_eq!(guard(fails), HA_ERR_INTERNAL_ERROR);
        assert!(message().contains("of the first call"));
        // It was not asked for; then a search finds nothing.
        assert_eq!(guard(|| Ok(HA_ERR_KEY_NOT_FOUND)), HA_ERR_KEY_NOT_FOUND);
        assert_eq!(message(), "");
    }

    #[test]
    fn a_call_that_cannot_report_leaves_no_text() {
        assert_eq!(guard_or(7, fails), 7);
        assert_eq!(message(), "");
    }
}
