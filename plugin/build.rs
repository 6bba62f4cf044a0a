//! Compiles the C++ handler against the headers of one exact server release.
//!
//! `SLUICE_PREFIX` (default: `.prefix` in the workspace) holds `build.env`, written by
//! `make build`, which says where the headers are.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

/// Compares the headers with the table of releases.
const RELEASE: &str = "server_release.cc";

/// Includes all sources.
const ALL: &str = "all.cc";

fn main() {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    if architecture != "x86_64" {
        // The layouts in server_compat.h are those of x86-64.
        eprintln!("ha_sluice: this build is for {architecture}: Sluice runs on x86-64 only");
        process::exit(1);
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let workspace = root.parent().expect("plugin/ is in the workspace");
    let prefix = env::var_os("SLUICE_PREFIX").map_or(workspace.join(".prefix"), PathBuf::from);
    println!("cargo:rerun-if-env-changed=SLUICE_PREFIX");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/cpp");

    let settings_file = prefix.join("build.env");
    println!("cargo:rerun-if-changed={}", settings_file.display());
    let Ok(settings) = fs::read_to_string(&settings_file) else {
        eprintln!("ha_sluice: {} is missing: run `make build`", settings_file.display());
        process::exit(1);
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    compile(&root.join("src/cpp"), &settings);
    weaken(&out, &prefix.join("usr/sbin/mariadbd"));
    link(&out);
}

fn setting<'a>(settings: &'a str, name: &str) -> &'a str {
    let found = settings.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| {
        eprintln!("ha_sluice: build.env has no {name}: run `make build` again");
        process::exit(1);
    })
}

/// Is there a line for it in the table of server_compat.h?
fn is_known(source_dir: &Path, version_id: &str) -> bool {
    let table = fs::read_to_string(source_dir.join("server_compat.h")).expect("in the checkout");
    table.lines().any(|line| line.trim_start().starts_with(&format!("{{{version_id}, ")))
}

fn compile(source_dir: &Path, settings: &str) {
    let mut build = cc::Build::new();
    build.cpp(true).std("gnu++17").opt_level(2).pic(true).warnings(false).cargo_metadata(false);
    build.flag("-Wall").flag("-fvisibility=hidden");
    // Without MYSQL_DYNAMIC_PLUGIN: services are called in the server directly. Their pointers
    // would have to be exported to be filled in, and a cdylib exports Rust symbols only.
    for define in ["DBUG_OFF", "HAVE_CONFIG_H"] {
        build.define(define, None);
    }
    // Foreign headers: their warnings are not ours.
    for dir in setting(settings, "MARIADB_INCLUDE").split(':') {
        build.flag("-isystem").flag(dir);
    }
    build.include(source_dir);
    let version = setting(settings, "MARIADB_VERSION");
    if !is_known(source_dir, setting(settings, "MARIADB_VERSION_ID")) {
        // The compiler's message has the numbers of the line that is missing.
        let _ = build.file(source_dir.join(RELEASE)).try_compile("sluice_handler");
        eprintln!(
            "ha_sluice: MariaDB {version} is not among the releases in plugin/src/cpp/server_compat.h. \
             Adding a release is one line and one run of the tests: see docs/install.md"
        );
        process::exit(1);
    }
    build.file(source_dir.join(ALL)).compile("sluice_handler");
}

fn run(command: &mut Command) -> Vec<u8> {
    let ended = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    ended.stdout
}

/// Makes the references to what the server has weak. A server of another series lacks some of it:
/// the loader would stop there with the name of a symbol, and `server_release.cc` could not say
/// which release is wanted. `scripts/install-plugin` looks whether this server has them all.
fn weaken(out: &Path, server: &Path) {
    let args = ["--dynamic", "--defined-only", "--format=just-symbols"];
    let names = run(Command::new("nm").args(args).arg(server));
    let list = out.join("symbols-of-the-server");
    fs::write(&list, names).expect("the output directory can be written");
    let library = out.join("libsluice_handler.a");
    run(Command::new("objcopy").arg("--weaken-symbols").arg(list).arg(library));
}

/// The handler goes in whole; `src/declare.rs` exports what the server looks for.
fn link(out: &Path) {
    let out = out.display();
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--whole-archive");
    println!("cargo:rustc-cdylib-link-arg={out}/libsluice_handler.a");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-whole-archive");
    println!("cargo:rustc-cdylib-link-arg=-lstdc++");
}
