//! Files of another format: those that the repository keeps are read, newer ones are refused with the
//! release that reads them.
#![allow(clippy::disallowed_methods, reason = "it unpacks files")]

use sluice_engine::base::checksum::checksum;
use sluice_engine::base::formats::{Release, FORMATS};
use sluice_engine::base::{Error, Result};
use sluice_engine::db::inspect::Directory;
use sluice_engine::db::{CheckDepth, Config, Engine, Geometry, NoHost};
use sluice_engine::os::{sim::SimOs, OpenMode, Os, RealOs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;
const LATER: Release = Release(7, 8, 9);

fn open(os: &Arc<SimOs>) -> Result<Arc<Engine>> {
    open_in(Arc::clone(os) as Arc<dyn Os>, Path::new("/data"), SMALL)
}

const SMALL: Geometry = Geometry {
    log_segment_bytes: 64 << 10,
    log_cache_bytes: 256 << 10,
    store_segment_bytes: 64 << 10,
};

fn open_in(os: Arc<dyn Os>, dir: &Path, geometry: Geometry) -> Result<Arc<Engine>> {
    let mut config = Config::new(dir);
    config.background = false;
    config.buffer_pool_bytes = 1 << 20;
    config.log_capacity_bytes = 512 << 10;
    Engine::open_with(os, config, geometry, Arc::new(NoHost))
}

/// A file that begins with a version.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Superblock,
    LogControl,
    LogSegment,
}

impl Kind {
    fn path(self, os: &SimOs) -> PathBuf {
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "log");
        match self {
            Kind::Superblock => "/data/superblock".into(),
            Kind::LogControl => "/data/log/control".into(),
            Kind::LogSegment => {
                let names = os.list(Path::new("/data/log")).unwrap();
                names.into_iter().find(is_segment).expect("a segment of the log")
            }
        }
    }

    /// Blocks with the version.
    fn blocks(self) -> usize {
        if self == Kind::LogSegment {
            1
        } else {
            2
        }
    }

    /// A sound block of another version, which [`LATER`] reads (docs/format.md).
    fn change(self, block: &mut [u8], change: impl Fn(u32) -> u32) {
        let version = u32::from_le_bytes(block[8..12].try_into().unwrap());
        block[8..12].copy_from_slice(&change(version).to_le_bytes());
        let since = LATER.to_u32().to_le_bytes();
        if self == Kind::Superblock {
            block[BLOCK_BYTES - 4..].copy_from_slice(&since);
            let check = checksum(checksum(0, &block[..12]), &block[16..]);
            block[12..16].copy_from_slice(&check.to_le_bytes());
            return;
        }
        block[12..16].copy_from_slice(&since);
        let body = if self == Kind::LogControl { 32 } else { 24 };
        let magic = u32::from_le_bytes(block[..4].try_into().unwrap());
        let check = checksum(magic, &block[8..8 + body]);
        block[4..8].copy_from_slice(&check.to_le_bytes());
    }
}

/// Why the engine does not open when a file is of another version.
fn refusal(kind: Kind, change: impl Fn(u32) -> u32) -> String {
    let os = SimOs::new(1);
    drop(open(&os).unwrap());
    let path = kind.path(&os);
    let file = os.open(&path, OpenMode::default()).unwrap();
    let mut bytes = vec![0; kind.blocks() * BLOCK_BYTES];
    file.read_at(&mut bytes, 0).unwrap();
    bytes.chunks_mut(BLOCK_BYTES).for_each(|block| kind.change(block, &change));
    file.write_at(&bytes, 0).unwrap();
    drop(file);
    let Err(Error::Refused(why)) = open(&os) else { panic!("{} was taken", path.display()) };
    assert!(why.contains(&*path.to_string_lossy()), "{why}");
    why
}

#[test]
fn newer_files_are_refused_with_the_release_that_reads_them() {
    for kind in [Kind::Superblock, Kind::LogControl, Kind::LogSegment] {
        let why = refusal(kind, |version| version + 3);
        assert!(why.contains("was made by a newer Sluice"), "{why}");
        assert!(why.ends_with("Start release 7.8.9 or a later one"), "{why}");
    }
}

#[test]
fn files_before_the_oldest_format_are_refused() {
    for kind in [Kind::Superblock, Kind::LogControl, Kind::LogSegment] {
        let oldest = match kind {
            Kind::Superblock => FORMATS[0].store,
            Kind::LogControl | Kind::LogSegment => FORMATS[0].log,
        };
        let why = refusal(kind, |_| oldest - 1);
        assert!(why.contains("was made by an older Sluice"), "{why}");
    }
}

/// A kept data directory, unpacked for one test.
struct Kept(PathBuf);

impl Kept {
    /// `of`: the test, which may run beside others.
    fn unpack(format: Release, of: &str) -> Kept {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let archive = workspace.join(format!("testing/formats/{format}/data.tar.xz"));
        let name = format!("sluice-formats.{}.{of}.{format}", std::process::id());
        let kept = Kept(std::env::temp_dir().join(name));
        fs::create_dir(&kept.0).expect("a new directory");
        let mut tar = Command::new("tar");
        tar.args(["--no-same-owner", "-xJf"]).arg(&archive).arg("-C").arg(&kept.0);
        assert!(tar.status().is_ok_and(|s| s.success()), "unpacking {}", archive.display());
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All of it is read and checked: files, log, pages, tables. The server's tests compare the rows.
#[test]
fn kept_directories_are_sound() {
    for format in FORMATS {
        let kept = Kept::unpack(format.since, "sound");
        let directory = Directory::open(RealOs::new(), kept.0.join("sluice"), None).unwrap();
        let report = directory.verify(Geometry::default()).unwrap();
        assert!(report.is_clean(), "{}: {:#?}", format.since, report.checks);
        let has_log =
            |line: &String| line.contains(" log records in ") && !line.contains(": 0 log");
        assert!(report.remarks.iter().any(has_log), "{}: {:?}", format.since, report.remarks);
    }
}

/// The first start writes pages that its recovery changed. The next one changes none, and a check that reads
/// all of them does not either.
#[test]
fn a_start_rewrites_no_page_of_an_older_format() {
    for format in FORMATS {
        let kept = Kept::unpack(format.since, "start");
        let dir = kept.0.join("sluice");
        let start = |reads: bool| {
            let engine = open_in(RealOs::new(), &dir, Geometry::default()).unwrap();
            for name in engine.table_names().iter().filter(|_| reads) {
                let report = engine.check_table(name, CheckDepth::Quick, &|| false).unwrap();
                assert!(report.faults.is_empty(), "{:?}", report.faults);
            }
            engine.shutdown().unwrap();
        };
        let pages = || fs::read(dir.join("pages")).unwrap();
        let kept_pages = pages();
        start(false);
        let first = pages();
        assert!(first != kept_pages, "{}: recovery has changed no page", format.since);
        start(true);
        assert!(pages() == first, "{}", format.since);
    }
}
