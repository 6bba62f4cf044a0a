//! Binlog files, and mariadb-binlog, which reads them.

use sluice_server_tests::binlog::mariadb_binlog;
use sluice_server_tests::site::Site;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that an index names, in their order.
pub fn binlogs(index: &Path, data: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(index).expect("an index of binlogs");
    text.lines().map(|name| data.join(name.strip_prefix("./").unwrap_or(name))).collect()
}

/// Takes the last file out of an index.
pub fn drop_last(index: &Path) {
    let text = fs::read_to_string(index).expect("an index of binlogs");
    let lines: Vec<_> = text.lines().collect();
    let kept: String = lines[..lines.len() - 1].iter().map(|line| format!("{line}\n")).collect();
    fs::write(index, kept).expect("an index without its last line");
}

pub fn size(file: &Path) -> u64 {
    fs::metadata(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).len()
}

pub fn name(file: &Path) -> String {
    file.file_name().expect("a file name").to_string_lossy().into_owned()
}

pub fn copy_into(file: &Path, dir: &Path) -> PathBuf {
    let copy = dir.join(name(file));
    fs::copy(file, &copy).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    copy
}

pub fn copy_dir(from: &Path, to: &Path) {
    sluice_rig::server::copy_tree(from, to).expect("a copy of a directory");
}

const AS_ROWS: [&str; 2] = ["--base64-output=decode-rows", "-v"];

fn remote(site: &Site, options: &[&str], first: &str) -> Vec<String> {
    let socket = format!("--socket={}", site.socket().display());
    let common = ["--read-from-remote-server", "-uroot", &socket, "--to-last-log"];
    common.iter().chain(options).chain([&first]).map(|option| option.to_string()).collect()
}

/// Inserted rows of table test.s in these files, whose checksums are verified.
#[track_caller]
pub fn rows_of_s(files: &[PathBuf]) -> usize {
    let mut arguments = vec!["--verify-binlog-checksum".to_string()];
    arguments.extend(AS_ROWS.map(String::from));
    arguments.extend(files.iter().map(|file| file.display().to_string()));
    inserts_into_s(&mariadb_binlog(&arguments))
}

/// The same, as the server sends them from the file `first` on.
#[track_caller]
pub fn rows_of_s_sent(site: &Site, first: &str) -> usize {
    inserts_into_s(&mariadb_binlog(&remote(site, &AS_ROWS, first)))
}

/// A row's first column follows two lines after its statement.
fn inserts_into_s(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_row = |at: &usize| {
        let after = lines[*at..].iter().take(3);
        lines[*at].contains("INSERT INTO `test`.`s`")
            && after.into_iter().any(|l| l.contains("@1="))
    };
    (0..lines.len()).filter(is_row).count()
}

/// Copies the files from `first` on byte by byte, as the server sends them.
#[track_caller]
pub fn copy_raw(site: &Site, first: &str, to: &Path) {
    let result = format!("--result-file={}/", to.display());
    mariadb_binlog(&remote(site, &["--raw", &result], first));
}
