//! A simulated file system in memory with a live and a durable image of every file and name.
//!
//! [`SimOs::crash`] ends a life: every write that was not synced is, block by block and
//! independently, kept, dropped or torn at 512 bytes; every name that was not synced with its
//! directory is kept or dropped. `inode` has the files. Faults are planned with [`SimOs::fail_after`].

use super::inode::Inode;
use super::{File, OpenMode, Os, OPEN_FILES};
use crate::base::{Error, Result, BLOCK_BYTES};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A call of the machine: with a scheduler, others may run meanwhile.
pub use super::rng::SimRng;
#[cfg(feature = "sim")]
use super::sched::{point, stall, wrote};

#[cfg(not(feature = "sim"))]
fn point(_what: &'static str) -> bool {
    false
}

#[cfg(not(feature = "sim"))]
fn stall(_what: &'static str) {}

#[cfg(not(feature = "sim"))]
fn wrote(_path: &Path, _offset: u64, _bytes: &[u8]) {}

#[derive(Default)]
struct World {
    inodes: Vec<Inode>,
    /// Names as the running program sees them.
    live: BTreeMap<PathBuf, usize>,
    /// Names as they would be after a power cut.
    durable: BTreeMap<PathBuf, usize>,
    dirs: std::collections::BTreeSet<PathBuf>,
    clock_ns: u64,
    /// Calls that change something, counted; faults and crash points refer to this number.
    mutations: u64,
    /// Given to calls that have succeeded.
    written_bytes: u64,
    fail_at: Option<(u64, Fault)>,
    /// Reads of files whose names begin so fail with EIO.
    fail_reads_of: Option<&'static str>,
    /// Offsets that cannot be read: a read of one of them gets EIO.
    bad_places: std::collections::BTreeSet<(PathBuf, u64)>,
    /// Room that all named files together may take.
    capacity_bytes: Option<u64>,
    /// The file system knows no holes.
    without_holes: bool,
    /// Files of this life that are open, and how many may be.
    open_files: u64,
    open_files_max: Option<u64>,
    /// What is wrong with the machine now and then, and which of it some call has met.
    spells: Vec<Spell>,
    met: Vec<Trouble>,
    /// Grows with every crash: files opened in an earlier life are dead.
    life: u64,
    locked: std::collections::BTreeSet<PathBuf>,
}

/// What happens at the planned call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This call fails with EIO; later ones succeed.
    IoError,
    /// This and every later call that needs new space fails with ENOSPC.
    DiskFull,
    /// This call fails with ENOSPC even where it overwrites: a file system that copies on write.
    NoSpaceOnce,
    /// Power is lost: this and every later call fails until [`SimOs::crash`].
    PowerCut,
}

/// Files that have their troubles together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pages,
    /// Superblock and page map.
    Map,
    Log,
}

impl Kind {
    fn has(self, path: &Path) -> bool {
        match self {
            Kind::Pages => begins(path, Some("pages")),
            Kind::Map => begins(path, Some("map")) || begins(path, Some("superblock")),
            Kind::Log => path.extension().is_some_and(|end| end == "log"),
        }
    }
}

/// A fault that comes and goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Reads that touch these bytes of such a file fail with EIO.
    Reads { of: Kind, from: u64, to: u64 },
    /// The first write or sync fails with EIO; half of such writes reach the file.
    Write,
    /// The first call that makes, renames or removes a file, changes its length or punches it fails
    /// with EIO.
    Names,
    /// The first write over what is there fails with ENOSPC, as on a file system that copies on
    /// write; half of such writes reach the file.
    Overwrite,
    /// Writes to the pages file fail with ENOSPC, wherever they go.
    Images,
    /// No further file can be opened, nor a directory for a moment (`EMFILE`).
    OpenFiles,
    /// One of so many calls that need new space fails with ENOSPC; a question finds the disk full
    /// if all of them do.
    Space { one_of: u64 },
}

impl Trouble {
    pub fn is_of_reads(&self) -> bool {
        matches!(self, Trouble::Reads { .. })
    }
}

/// When the machine has which trouble.
#[derive(Clone, Copy, Debug)]
pub struct Spell {
    pub trouble: Trouble,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The simulated machine. Clones of the `Arc` share it.
pub struct SimOs {
    world: Arc<Mutex<World>>,
    rng: Mutex<SimRng>,
}

impl SimOs {
    pub fn new(seed: u64) -> Arc<SimOs> {
        Arc::new(SimOs { world: Arc::default(), rng: Mutex::new(SimRng::new(seed)) })
    }

    /// Plans `fault` for the `after`-th changing call from now (0: the next one).
    pub fn fail_after(&self, after: u64, fault: Fault) {
        let mut world = self.world.lock();
        world.fail_at = Some((world.mutations + after, fault));
    }

    pub fn clear_fault(&self) {
        self.world.lock().fail_at = None;
    }

    /// Reads of files whose names begin with `prefix` fail with EIO until this is called again.
    pub fn fail_reads_of(&self, prefix: Option<&'static str>) {
        self.world.lock().fail_reads_of = prefix;
    }

    /// Reads of this byte of a file fail with EIO from now on, or no longer.
    pub fn set_bad_place(&self, path: &Path, offset: u64, is_bad: bool) {
        let mut world = self.world.lock();
        let place = (path.to_path_buf(), offset);
        let _ = match is_bad {
            true => world.bad_places.insert(place),
            false => world.bad_places.remove(&place),
        };
    }

    /// Limits the room that all files take; calls that need more fail with ENOSPC.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.world.lock().capacity_bytes = capacity_bytes;
    }

    /// From now on the file system punches no holes.
    pub fn set_without_holes(&self) {
        self.world.lock().without_holes = true;
    }

    /// Limits the number of files that are open at a time; more are refused as by `EMFILE`.
    pub fn set_open_files_max(&self, open_files_max: Option<u64>) {
        self.world.lock().open_files_max = open_files_max;
    }

    pub fn open_files(&self) -> u64 {
        self.world.lock().open_files
    }

    /// Gives the machine a trouble for a while.
    pub fn add_spell(&self, spell: Spell) {
        self.world.lock().spells.push(spell);
    }

    /// The machine is well again. Faults that calls have met before may still be told of.
    pub fn heal(&self) {
        self.world.lock().spells.clear();
    }

    /// Nobody tells any more of what was met.
    pub fn forget_met(&self) {
        self.world.lock().met.clear();
    }

    /// Troubles that calls have failed with since the machine was well.
    pub fn met(&self) -> Vec<Trouble> {
        self.world.lock().met.clone()
    }

    /// Room that all files take: their lengths without holes.
    pub fn used_bytes(&self) -> u64 {
        self.world.lock().used_bytes()
    }

    /// Bytes of all writes that have succeeded so far.
    pub fn written_bytes(&self) -> u64 {
        self.world.lock().written_bytes
    }

    /// Changing calls so far.
    pub fn mutations(&self) -> u64 {
        self.world.lock().mutations
    }

    /// Whether the power is off.
    pub fn is_dark(&self) -> bool {
        let world = self.world.lock();
        let cut = world.fail_at.filter(|(_, fault)| *fault == Fault::PowerCut);
        cut.is_some_and(|(at, _)| world.mutations > at)
    }

    /// Ends this life: unsynced blocks and names are kept, dropped or torn at random. Every
    /// file opened before refuses from now on.
    pub fn crash(&self) {
        let mut rng = self.rng.lock();
        let mut world = self.world.lock();
        let world = &mut *world;
        world.life += 1;
        world.fail_at = None;
        world.fail_reads_of = None;
        (world.open_files, world.open_files_max) = (0, None);
        world.spells.clear();
        world.met.clear();
        world.locked.clear();
        crash_names(world, &mut rng);
        for (number, inode) in world.inodes.iter_mut().enumerate() {
            if world.live.values().any(|&i| i == number) {
                inode.crash(&mut rng);
            } else {
                *inode = Inode::default();
            }
        }
    }

    /// Changes one bit of a file, in both images (rot).
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) {
        let mut world = self.world.lock();
        if let Some(&i) = world.live.get(path) {
            world.inodes[i].flip_bit(offset, bit);
        }
    }

    pub fn advance_ns(&self, ns: u64) {
        self.world.lock().clock_ns += ns;
    }
}

fn crash_names(world: &mut World, rng: &mut SimRng) {
    let mut names = world.durable.clone();
    let all: Vec<PathBuf> = world.live.keys().chain(world.durable.keys()).cloned().collect();
    for path in all {
        let (live, durable) = (world.live.get(&path), world.durable.get(&path));
        if live != durable && rng.chance(50) {
            match live {
                Some(&i) => names.insert(path, i),
                None => names.remove(&path),
            };
        }
    }
    world.live = names.clone();
    world.durable = names;
}

impl World {
    fn used_bytes(&self) -> u64 {
        self.live.values().map(|&i| self.inodes[i].used_bytes()).sum()
    }

    /// Whether there is so much more room.
    fn check_capacity(&self, more: u64) -> Result<()> {
        let limit = self.capacity_bytes.unwrap_or(u64::MAX);
        if more > 0 && self.used_bytes() + more > limit {
            return Err(Error::Full { what: "disk" });
        }
        Ok(())
    }

    /// Counts a changing call and answers whether it must fail.
    fn mutate(&mut self, op: &'static str, path: &Path) -> Result<()> {
        let now = self.mutations;
        self.mutations += 1;
        match self.fail_at {
            Some((at, Fault::IoError)) if at == now => {
                Err(Error::io(op, path, io::Error::from_raw_os_error(libc::EIO)))
            }
            Some((at, Fault::DiskFull)) if now >= at && needs_room(op) => {
                Err(Error::Full { what: "disk" })
            }
            Some((at, Fault::NoSpaceOnce)) if at == now && op != "remove" => {
                Err(Error::Full { what: "disk" })
            }
            Some((at, Fault::PowerCut)) if now >= at => Err(power_is_off(op, path)),
            _ => self.suffer(op, path, now),
        }
    }

    /// The trouble that a changing call meets.
    fn suffer(&mut self, op: &'static str, path: &Path, now: u64) -> Result<()> {
        let hits = |trouble: &Trouble| match trouble {
            Trouble::Write => matches!(op, "write" | "overwrite" | "sync"),
            Trouble::Names => matches!(op, "open" | "rename" | "remove" | "truncate" | "punch"),
            Trouble::Overwrite => op == "overwrite",
            Trouble::Images => matches!(op, "write" | "overwrite") && Kind::Pages.has(path),
            Trouble::Space { one_of } => now % one_of == 0 && needs_room(op),
            _ => false,
        };
        match self.meet(hits) {
            Some(trouble @ (Trouble::Write | Trouble::Names)) => {
                // Nobody may try a sync again: the next one would say that all is well.
                self.spells.retain(|spell| spell.trouble != trouble);
                Err(Error::io(op, path, io::Error::from_raw_os_error(libc::EIO)))
            }
            Some(trouble) => {
                self.spells.retain(|s| s.trouble != trouble || trouble != Trouble::Overwrite);
                Err(Error::Full { what: "disk" })
            }
            None => Ok(()),
        }
    }

    /// The first trouble of now that `hits`.
    fn meet(&mut self, hits: impl Fn(&Trouble) -> bool) -> Option<Trouble> {
        if self.spells.is_empty() {
            return None;
        }
        let now_ns = self.now_ns();
        let lasts = |spell: &&Spell| (spell.from_ns..spell.to_ns).contains(&now_ns);
        let found = self.spells.iter().filter(lasts).map(|s| s.trouble).find(hits)?;
        self.met.push(found);
        Some(found)
    }

    fn now_ns(&self) -> u64 {
        #[cfg(feature = "sim")]
        if let Some(now_ns) = super::sched::now_ns() {
            return now_ns;
        }
        self.clock_ns
    }

    /// Whether one more file can be opened, be it a directory for a moment.
    fn check_open_files(&mut self) -> Result<()> {
        if self.meet(|trouble| *trouble == Trouble::OpenFiles).is_some() {
            return Err(Error::Full { what: OPEN_FILES });
        }
        match self.open_files_max {
            Some(most) if self.open_files >= most => Err(Error::Full { what: OPEN_FILES }),
            _ => Ok(()),
        }
    }

    fn check_power(&self, op: &'static str, path: &Path) -> Result<()> {
        match self.fail_at {
            Some((at, Fault::PowerCut)) if self.mutations > at => Err(power_is_off(op, path)),
            _ => Ok(()),
        }
    }
}

/// Whether a full disk refuses such a call.
fn needs_room(op: &str) -> bool {
    !matches!(op, "sync" | "remove" | "overwrite" | "reserve again" | "punch")
}

/// The file's name begins with `prefix`, if there is one.
fn begins(path: &Path, prefix: Option<&str>) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.zip(prefix).is_some_and(|(name, prefix)| name.starts_with(prefix))
}

fn power_is_off(op: &'static str, path: &Path) -> Error {
    Error::io(op, path, io::Error::other("power is off"))
}

fn no_such_file(op: &'static str, path: &Path) -> Error {
    Error::io(op, path, io::Error::from(io::ErrorKind::NotFound))
}

impl Os for SimOs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        point("open");
        let mut world = self.world.lock();
        world.check_power("open", path)?;
        world.check_open_files()?;
        let found = world.live.get(path).copied();
        let inode = match (found, mode.create) {
            (Some(i), false) => i,
            (None, true) => {
                world.mutate("open", path)?;
                world.inodes.push(Inode::default());
                let i = world.inodes.len() - 1;
                world.live.insert(path.to_path_buf(), i);
                i
            }
            (Some(_), true) => {
                return Err(Error::io("open", path, io::ErrorKind::AlreadyExists.into()))
            }
            (None, false) => return Err(no_such_file("open", path)),
        };
        world.open_files += 1;
        let (life, is_direct) = (world.life, mode.direct);
        let handle = Handle { world: Arc::clone(&self.world), inode, life, is_direct };
        Ok(Arc::new(SimFile { handle: Arc::new(handle), path: path.to_path_buf() }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let world = self.world.lock();
        Ok(world.live.contains_key(path) || world.dirs.contains(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let mut world = self.world.lock();
        world.check_open_files()?;
        Ok(world.live.keys().filter(|p| p.parent() == Some(dir)).cloned().collect())
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        // Directories are durable at once: losing one whole directory is not what we test here.
        let mut world = self.world.lock();
        if !world.dirs.contains(dir) {
            world.mutate("open", dir)?;
            world.dirs.insert(dir.to_path_buf());
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        stall("remove");
        let mut world = self.world.lock();
        world.mutate("remove", path)?;
        world.live.remove(path).map(|_| ()).ok_or_else(|| no_such_file("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        stall("rename");
        let mut world = self.world.lock();
        world.mutate("rename", from)?;
        let inode = world.live.remove(from).ok_or_else(|| no_such_file("rename", from))?;
        world.live.insert(to.to_path_buf(), inode);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        stall("sync a directory");
        let mut world = self.world.lock();
        world.check_open_files()?;
        world.mutate("sync", dir)?;
        let inside = |p: &PathBuf| p.parent() == Some(dir);
        world.durable.retain(|p, _| !inside(p));
        let names: Vec<_> =
            world.live.iter().filter(|(p, _)| inside(p)).map(|(p, &i)| (p.clone(), i)).collect();
        world.durable.extend(names);
        Ok(())
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        let mut world = self.world.lock();
        if world.meet(|trouble| *trouble == Trouble::Space { one_of: 1 }).is_some() {
            return Ok(0);
        }
        let free = world.capacity_bytes.map(|limit| limit.saturating_sub(world.used_bytes()));
        Ok(free.unwrap_or(u64::MAX / 2))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        struct Unlock(Arc<Mutex<World>>, PathBuf, u64);
        impl Drop for Unlock {
            fn drop(&mut self) {
                let mut world = self.0.lock();
                if world.life == self.2 {
                    world.locked.remove(&self.1);
                }
            }
        }
        let mut world = self.world.lock();
        world.check_open_files()?;
        if !world.locked.insert(dir.to_path_buf()) {
            return Err(Error::Refused(format!("{} is in use", dir.display())));
        }
        let life = world.life;
        Ok(Box::new(Unlock(Arc::clone(&self.world), dir.to_path_buf(), life)))
    }

    fn now_ns(&self) -> u64 {
        #[cfg(feature = "sim")]
        if let Some(now_ns) = super::sched::now_ns() {
            return now_ns;
        }
        let mut world = self.world.lock();
        world.clock_ns += 1;
        world.clock_ns
    }

    fn random(&self, out: &mut [u8]) -> Result<()> {
        for piece in out.chunks_mut(8) {
            piece.copy_from_slice(&self.entropy().to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }

    fn entropy(&self) -> u64 {
        self.rng.lock().next_u64()
    }
}

/// An open file, perhaps under several names in turn.
struct Handle {
    world: Arc<Mutex<World>>,
    inode: usize,
    life: u64,
    is_direct: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        if world.life == self.life {
            world.open_files -= 1;
        }
    }
}

struct SimFile {
    handle: Arc<Handle>,
    path: PathBuf,
}

impl SimFile {
    fn check_places(&self, len: usize, offset: u64) -> Result<()> {
        let world = self.handle.world.lock();
        let at = |offset: u64| (self.path.clone(), offset);
        let mut bad = world.bad_places.range(at(offset)..at(offset + len as u64));
        match bad.next() {
            Some(_) => Err(Error::io("read", &self.path, io::Error::from_raw_os_error(libc::EIO))),
            None => Ok(()),
        }
    }

    fn check_read(&self, from: u64, to: u64) -> Result<()> {
        let mut world = self.handle.world.lock();
        let hits = |trouble: &Trouble| match trouble {
            Trouble::Reads { of, from: bad, to: end } => {
                from < *end && *bad < to && of.has(&self.path)
            }
            _ => false,
        };
        match world.meet(hits).is_some() {
            true => Err(Error::io("read", &self.path, io::Error::from_raw_os_error(libc::EIO))),
            false => Ok(()),
        }
    }

    /// A device wants this of direct I/O: without it a real one refuses, or goes another way.
    fn check_aligned(&self, buf: &[u8], offset: u64) {
        if !self.handle.is_direct {
            return;
        }
        let (at, len, block) = (buf.as_ptr() as usize, buf.len(), BLOCK_BYTES);
        let is_aligned = at % block == 0 && len % block == 0 && offset % block as u64 == 0;
        let path = self.path.display();
        assert!(is_aligned, "direct I/O of {len} bytes at {offset} of {path}, from {at:#x}");
    }

    /// Whether there is the room that this range of the file needs.
    fn check_capacity(&self, from: u64, len: u64) -> Result<()> {
        let world = self.handle.world.lock();
        world.check_capacity(world.inodes[self.handle.inode].needed_bytes(from, len))
    }

    fn with<R>(
        &self,
        op: &'static str,
        changes: bool,
        f: impl FnOnce(&mut Inode) -> Result<R>,
    ) -> Result<R> {
        let mut world = self.handle.world.lock();
        if world.life != self.handle.life {
            return Err(power_is_off(op, &self.path));
        }
        world.check_power(op, &self.path)?;
        if op == "read" && begins(&self.path, world.fail_reads_of) {
            return Err(Error::io(op, &self.path, io::Error::from_raw_os_error(libc::EIO)));
        }
        if changes {
            if let Err(e) = world.mutate(op, &self.path) {
                // A write under way when the power goes may have reached some blocks; so may one
                // that fails.
                let writes = matches!(op, "write" | "overwrite" | "punch");
                let reached = match world.fail_at {
                    Some((_, Fault::PowerCut)) => true,
                    Some((at, Fault::IoError | Fault::NoSpaceOnce)) => at % 2 == 0,
                    _ if matches!(e, Error::Full { .. }) && op == "write" => false,
                    _ => world.mutations % 2 == 0,
                };
                if writes && reached {
                    f(&mut world.inodes[self.handle.inode])?;
                }
                return Err(e);
            }
        }
        f(&mut world.inodes[self.handle.inode])
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        self.with("stat", false, |inode| Ok(inode.live.len() as u64))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        stall("read");
        self.check_aligned(buf, offset);
        self.check_places(buf.len(), offset)?;
        self.check_read(offset, offset + buf.len() as u64)?;
        self.with("read", false, |inode| {
            let from = offset as usize;
            let Some(bytes) = inode.live.get(from..from + buf.len()) else {
                let place = format!("{} offset {offset}", self.path.display());
                return Err(Error::corrupt("file is too short", place));
            };
            buf.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        stall("write");
        self.check_aligned(buf, offset);
        // Blocks that are there already need no new space.
        let end = offset as usize + buf.len();
        let (inside, in_hole) = self.with("stat", false, |inode| {
            Ok((end <= inode.live.len(), inode.has_hole(offset, buf.len() as u64)))
        })?;
        // On a full disk such a write would fail, after it was promised.
        assert!(!in_hole, "a write at {offset} of {}, into a hole", self.path.display());
        let op = if inside { "overwrite" } else { "write" };
        self.check_capacity(offset, buf.len() as u64)?;
        wrote(&self.path, offset, buf);
        self.with(op, true, |inode| {
            inode.write(buf, offset);
            Ok(())
        })?;
        self.handle.world.lock().written_bytes += buf.len() as u64;
        Ok(())
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        stall("data sync");
        self.with("sync", true, |inode| {
            inode.sync_range(offset, buf.len());
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        stall("set length");
        self.check_capacity(len, 0)?;
        self.with("truncate", true, |inode| {
            inode.set_len(len);
            Ok(())
        })
    }

    fn allocate_range(&self, from: u64, len: u64) -> Result<()> {
        stall("allocate");
        self.check_capacity(from, len)?;
        let needed = self.with("stat", false, |inode| Ok(inode.needed_bytes(from, len)))?;
        let op = if needed > 0 { "write" } else { "reserve again" };
        self.with(op, true, |inode| {
            inode.allocate(from, len);
            Ok(())
        })
    }

    fn punch(&self, from: u64, len: u64) -> Result<bool> {
        stall("punch");
        let block = BLOCK_BYTES as u64;
        assert!(from % block == 0 && len % block == 0, "a hole of {len} bytes at {from}");
        if self.handle.world.lock().without_holes {
            return Ok(false);
        }
        self.with("punch", true, |inode| {
            inode.punch(from, len);
            Ok(true)
        })
    }

    /// Covers what was written when it began; what others write meanwhile is as unsynced as before.
    fn sync(&self) -> Result<()> {
        point("sync");
        let begun = self.with("stat", false, |inode| Ok(inode.begin_sync()))?;
        stall("syncing");
        self.with("sync", true, |inode| {
            inode.end_sync(begun);
            Ok(())
        })
    }

    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        Arc::new(SimFile { handle: Arc::clone(&self.handle), path: to.to_path_buf() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(os: &SimOs, name: &str) -> Arc<dyn File> {
        os.open(Path::new(name), OpenMode { create: true, direct: false }).unwrap()
    }

    #[test]
    fn synced_bytes_survive_every_crash() {
        for seed in 0..50 {
            let os = SimOs::new(seed);
            let f = file(&os, "/d/a");
            f.write_at(&[1; 8192], 0).unwrap();
            f.sync().unwrap();
            os.sync_dir(Path::new("/d")).unwrap();
            f.write_at(&[2; 4096], 4096).unwrap();
            os.crash();
            assert!(f.len().is_err(), "a file of an earlier life must refuse");
            let f = os.open(Path::new("/d/a"), OpenMode::default()).unwrap();
            let mut buf = [0; 8192];
            f.read_at(&mut buf, 0).unwrap();
            assert_eq!(buf[..4096], [1; 4096]);
            assert!(buf[4096..].iter().all(|&b| b == 1 || b == 2));
        }
    }

    #[test]
    fn unsynced_writes_are_lost_in_some_crash() {
        let lost = (0..50).filter(|&seed| {
            let os = SimOs::new(seed);
            let f = file(&os, "/d/a");
            f.write_at(&[0; 4096], 0).unwrap();
            f.sync().unwrap();
            os.sync_dir(Path::new("/d")).unwrap();
            f.write_at(&[7; 4096], 0).unwrap();
            os.crash();
            let f = os.open(Path::new("/d/a"), OpenMode::default()).unwrap();
            let mut buf = [0; 4096];
            f.read_at(&mut buf, 0).unwrap();
            buf != [7; 4096]
        });
        assert!(lost.count() > 10);
    }

    /// A hole reads as zeros; after a crash as zeros or as before, block by block.
    #[test]
    fn a_punched_block_is_a_hole_or_as_before_after_a_crash() {
        let (mut holes, mut old) = (0, 0);
        for seed in 0..50 {
            let os = SimOs::new(seed);
            let f = file(&os, "/d/a");
            f.write_at(&[1; 3 * BLOCK_BYTES], 0).unwrap();
            f.sync().unwrap();
            os.sync_dir(Path::new("/d")).unwrap();
            assert!(f.punch(BLOCK_BYTES as u64, BLOCK_BYTES as u64).unwrap());
            let mut buf = [7; 3 * BLOCK_BYTES];
            f.read_at(&mut buf, 0).unwrap();
            assert!(buf[BLOCK_BYTES..2 * BLOCK_BYTES] == [0; BLOCK_BYTES]);
            assert_eq!(os.used_bytes(), 2 * BLOCK_BYTES as u64);
            if seed % 5 == 0 {
                f.sync().unwrap();
            }
            os.crash();
            let f = os.open(Path::new("/d/a"), OpenMode::default()).unwrap();
            f.read_at(&mut buf, 0).unwrap();
            let is_hole = os.used_bytes() == 2 * BLOCK_BYTES as u64;
            let byte = u8::from(!is_hole);
            assert!(buf[BLOCK_BYTES..2 * BLOCK_BYTES] == [byte; BLOCK_BYTES]);
            assert!(is_hole || seed % 5 != 0, "it was synced");
            (holes, old) = (holes + u64::from(is_hole), old + u64::from(!is_hole));
        }
        assert!(holes > 20 && old > 5, "{holes} {old}");
    }

    #[test]
    fn a_hole_needs_room_again() {
        let os = SimOs::new(1);
        let f = file(&os, "/d/a");
        let block = BLOCK_BYTES as u64;
        f.allocate(4 * block).unwrap();
        os.set_capacity_bytes(Some(4 * block));
        assert!(matches!(f.allocate(5 * block), Err(Error::Full { .. })));
        assert!(f.punch(block, 2 * block).unwrap());
        f.allocate(5 * block).unwrap_err();
        f.allocate_range(4 * block, block).unwrap();
        f.allocate_range(block, block).unwrap();
        assert!(matches!(f.allocate_range(2 * block, block), Err(Error::Full { .. })));
        f.allocate_range(block, block).unwrap();
        os.set_without_holes();
        assert!(!f.punch(0, block).unwrap());
    }
}
