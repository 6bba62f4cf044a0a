//! The three symbols by which the server finds a plugin.
//!
//! They stand in Rust because a cdylib exports Rust symbols only; what they point at is in
//! `cpp/plugin.cc`, which also asserts the version and the layout against the server's header, and in
//! `cpp/table_writes.cc`.
//!
//! Safety argument for `Sync`: the structure is constant and only the server reads it.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

const STORAGE_ENGINE: c_int = 1;
const INFORMATION_SCHEMA: c_int = 4;
const LICENSE_GPL: c_int = 1;
const MATURITY_EXPERIMENTAL: c_uint = 1;

#[repr(C)]
pub struct Declaration {
    kind: c_int,
    info: *const c_void,
    name: *const c_char,
    author: *const c_char,
    description: *const c_char,
    license: c_int,
    init: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    deinit: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    version: c_uint,
    status_variables: *const c_void,
    system_variables: *const c_void,
    version_text: *const c_char,
    maturity: c_uint,
}

// SAFETY: see the top of this file.
unsafe impl Sync for Declaration {}

// SAFETY: defined in cpp/plugin.cc and cpp/table_writes.cc with these types.
unsafe extern "C" {
    static sluice_plugin_engine: c_void_place;
    static sluice_plugin_status: c_void_place;
    static sluice_plugin_variables: c_void_place;
    fn sluice_plugin_start(hton: *mut c_void) -> c_int;
    fn sluice_plugin_stop(hton: *mut c_void) -> c_int;
    static sluice_plugin_table_writes: c_void_place;
    fn sluice_plugin_table_writes_start(schema_table: *mut c_void) -> c_int;
}

#[allow(non_camel_case_types)]
type c_void_place = u8;

const fn text(bytes: &'static str) -> *const c_char {
    match CStr::from_bytes_with_nul(bytes.as_bytes()) {
        Ok(text) => text.as_ptr(),
        Err(_) => panic!("text ends with a zero byte"),
    }
}

const fn number(digits: &str) -> c_uint {
    let (mut out, mut i) = (0, 0);
    while i < digits.len() {
        out = out * 10 + (digits.as_bytes()[i] - b'0') as c_uint;
        i += 1;
    }
    out
}

const VERSION: c_uint =
    number(env!("CARGO_PKG_VERSION_MAJOR")) << 8 | number(env!("CARGO_PKG_VERSION_MINOR"));

/// The end of the list.
const END: Declaration = Declaration {
    kind: 0,
    info: std::ptr::null(),
    name: std::ptr::null(),
    author: std::ptr::null(),
    description: std::ptr::null(),
    license: 0,
    init: None,
    deinit: None,
    version: 0,
    status_variables: std::ptr::null(),
    system_variables: std::ptr::null(),
    version_text: std::ptr::null(),
    maturity: 0,
};

/// What all of ours have.
const OURS: Declaration = Declaration {
    author: text("the Sluice developers\0"),
    license: LICENSE_GPL,
    version: VERSION,
    version_text: text(concat!(env!("CARGO_PKG_VERSION"), "\0")),
    maturity: MATURITY_EXPERIMENTAL,
    ..END
};

#[no_mangle]
pub static _maria_plugin_interface_version_: c_int = 0x010f;

#[no_mangle]
pub static _maria_sizeof_struct_st_plugin_: c_int = size_of::<Declaration>() as c_int;

/// INSTALL SONAME and plugin-load-add load all of them, INSTALL PLUGIN the one that it names.
#[no_mangle]
pub static _maria_plugin_declarations_: [Declaration; 3] = [
    Declaration {
        kind: STORAGE_ENGINE,
        info: &raw const sluice_plugin_engine as *const c_void,
        name: text("Sluice\0"),
        description: text("Transactional storage engine built around one log\0"),
        init: Some(sluice_plugin_start),
        deinit: Some(sluice_plugin_stop),
        status_variables: &raw const sluice_plugin_status as *const c_void,
        system_variables: &raw const sluice_plugin_variables as *const c_void,
        ..OURS
    },
    Declaration {
        kind: INFORMATION_SCHEMA,
        info: &raw const sluice_plugin_table_writes as *const c_void,
        name: text("SLUICE_TABLE_WRITES\0"),
        description: text("Bytes that Sluice has written for each table, by cause\0"),
        init: Some(sluice_plugin_table_writes_start),
        ..OURS
    },
    END,
];
