//! Files that are read at a pace, whatever reads them.

use super::Pace;
use sluice_engine::base::Result;
use sluice_engine::os::{File, OpenMode, Os, RealOs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Read at a time: one long read would come at once, after a long rest.
const PIECE_BYTES: usize = 1 << 20;

/// The real files. All their readers, in whatever threads, keep one pace together. A signal ends each read
/// with `Interrupted`.
pub struct PacedOs {
    real: Arc<dyn Os>,
    pace: Arc<Pace>,
}

impl PacedOs {
    pub fn new(pace: Pace) -> Arc<PacedOs> {
        Arc::new(PacedOs { real: RealOs::new(), pace: Arc::new(pace) })
    }

    fn paced(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PacedFile { file, pace: Arc::clone(&self.pace) })
    }
}

impl Os for PacedOs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.real.open(path, mode).map(|file| self.paced(file))
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.real.exists(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.real.list(dir)
    }
    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.real.create_dir(dir)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.real.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.real.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.real.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.real.free_bytes(path)
    }
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.real.lock_dir(dir)
    }
    fn without_direct(&self) -> Option<PathBuf> {
        self.real.without_direct()
    }
    fn now_ns(&self) -> u64 {
        self.real.now_ns()
    }
    fn entropy(&self) -> u64 {
        self.real.entropy()
    }
    fn random(&self, out: &mut [u8]) -> Result<()> {
        self.real.random(out)
    }
}

struct PacedFile {
    file: Arc<dyn File>,
    pace: Arc<Pace>,
}

impl File for PacedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    /// Rests first, so that after a signal nothing more is read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let places = (offset..).step_by(PIECE_BYTES);
        for (piece, at) in buf.chunks_mut(PIECE_BYTES).zip(places) {
            self.pace.step(piece.len() as u64)?;
            self.file.read_at(piece, at)?;
        }
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(buf, offset)
    }
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_durable(buf, offset)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
    fn allocate_range(&self, from: u64, len: u64) -> Result<()> {
        self.file.allocate_range(from, len)
    }
    fn punch(&self, from: u64, len: u64) -> Result<bool> {
        self.file.punch(from, len)
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        Arc::new(PacedFile { file: self.file.renamed(to), pace: Arc::clone(&self.pace) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::db::inspect::Directory;
    use sluice_engine::db::{
        Config, Engine, Entry, Geometry, IndexSpec, NoHost, RowWrite, TableSpec,
    };
    use std::fs;
    use std::time::{Duration, Instant};

    const GEOMETRY: Geometry = Geometry {
        log_segment_bytes: 1 << 20,
        log_cache_bytes: 1 << 20,
        store_segment_bytes: 1 << 20,
    };

    /// The files of a stopped engine, with a table of some MiB.
    struct Stopped(PathBuf);

    impl Stopped {
        fn new() -> Stopped {
            let name = format!("sluice-paced-{}", std::process::id());
            let dir = Stopped(std::env::temp_dir().join(name));
            let config = Config { background: false, ..Config::new(&dir.0) };
            let engine =
                Engine::open_with(RealOs::new(), config, GEOMETRY, Arc::new(NoHost)).unwrap();
            let spec = TableSpec {
                indexes: vec![IndexSpec { unique: true }],
                definition: b"paced".to_vec(),
                autoinc_start: 1,
                compression: Some(sluice_engine::db::Compression::None),
                is_encrypted: false,
            };
            engine.create_table("db/paced", spec).unwrap();
            let table = engine.table("db/paced").unwrap().unwrap();
            let mut trx = engine.begin(1);
            for id in 0..2000_u32 {
                let (key, payload) = (id.to_be_bytes(), [id as u8; 1000]);
                let entry = Entry { key: &key, payload: &payload, parts: &[], unique: true };
                trx.insert(&table, &RowWrite { entries: &[entry] }).unwrap();
            }
            trx.commit(true).unwrap();
            engine.shutdown().unwrap();
            dir
        }

        /// Answers the time that a verification takes, and the bytes that it reads.
        fn verify(&self, rate_bytes: Option<u64>) -> (Duration, u64) {
            let os = PacedOs::new(Pace::new("", 0, rate_bytes));
            let pace = Arc::clone(&os.pace);
            let begun = Instant::now();
            let report = Directory::open(os, &self.0, None).unwrap().verify(GEOMETRY).unwrap();
            assert!(report.is_clean(), "{:?}", report.checks);
            let bytes = pace.state().bytes;
            (begun.elapsed(), bytes)
        }
    }

    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_verification_keeps_to_the_rate() {
        let dir = Stopped::new();
        let (free, bytes) = dir.verify(None);
        assert!(bytes > 2 * 2000 * 1000, "{bytes} bytes: records and tables are two readings");
        let rate = bytes / 2;
        let (paced, bytes) = dir.verify(Some(rate));
        let least = Duration::from_secs_f64(bytes as f64 / rate as f64);
        assert!(
            paced >= least,
            "{bytes} bytes in {paced:?} at {rate} a second; without it {free:?}"
        );
    }
}
