//! A backup as a stream of bytes: what a pipe, a file or another host takes in one piece.
//!
//! 1. A frame has a number and a checksum, so none is damaged, missing or twice without notice.
//! 2. The last frame says that it is the last: a stream that ends before is no backup.
//! 3. The list of files comes at the end, as in a directory; what came before it must be just that.
//! 4. Compressed or not, the stream is the same; a reader tells by the first bytes.
//!
//! ```text
//! magic (16 bytes), frames:
//! kind 1 | number 8 | bytes of name 2 | bytes of data 4 | offset 8 | name | data | CRC-32C of all this 4
//! ```

use super::files;
use super::manifest::Manifest;
use crate::pace::Pace;
use crate::Result;
use sluice_engine::base::checksum::checksum;
use sluice_engine::base::Error;
use sluice_engine::os::{File, OpenMode, Os, RealOs};
use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const MAGIC: &[u8; 16] = b"sluice stream 1\n";
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const HEAD_BYTES: usize = 23;
const DATA_BYTES_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 4096;
const BUFFER_BYTES: usize = 256 << 10;

/// A file and its length, which may grow.
const FILE: u8 = 1;
const PIECE: u8 = 2;
/// A part of the list of files.
const LIST: u8 = 3;
const END: u8 = 4;

enum Out {
    Plain(BufWriter<Box<dyn Write + Send>>),
    Zstd(zstd::stream::write::Encoder<'static, Box<dyn Write + Send>>),
    /// Ended.
    None,
}

struct State {
    out: Out,
    number: u64,
    /// Frames that wait: while commits are held nobody waits for the reader of the stream.
    held: Option<Vec<u8>>,
    error: Option<String>,
}

/// A stream that is being written. Its copies write the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Mutex<State>>);

impl Stream {
    /// `level`: of zstd; None does not compress.
    pub fn begin(to: Box<dyn Write + Send>, level: Option<i32>) -> Result<Stream> {
        let out = match level {
            None => Out::Plain(BufWriter::with_capacity(BUFFER_BYTES, to)),
            Some(level) => {
                let encoder =
                    zstd::stream::write::Encoder::new(to, level).and_then(|mut encoder| {
                        encoder.include_checksum(true)?;
                        Ok(encoder)
                    });
                Out::Zstd(encoder.map_err(|e| format!("cannot compress: {e}"))?)
            }
        };
        let state = State { out, number: 0, held: None, error: None };
        let stream = Stream(Arc::new(Mutex::new(state)));
        stream.lock().put(MAGIC)?;
        Ok(stream)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn file(&self, name: &Path, bytes: u64) -> Result<()> {
        self.lock().frame(FILE, name, bytes, &[])
    }

    pub fn piece(&self, name: &Path, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.lock();
        for (n, part) in data.chunks(DATA_BYTES_MAX).enumerate() {
            state.frame(PIECE, name, offset + (n * DATA_BYTES_MAX) as u64, part)?;
        }
        Ok(())
    }

    /// From here on frames are kept in memory.
    pub fn hold(&self) {
        self.lock().held = Some(Vec::new());
    }

    pub fn release(&self) -> Result<()> {
        let mut state = self.lock();
        match state.held.take() {
            Some(frames) => state.put(&frames),
            None => Ok(()),
        }
    }

    /// The list of files, and the end.
    pub fn finish(&self, list: &str) -> Result<()> {
        self.release()?;
        let mut state = self.lock();
        for part in list.as_bytes().chunks(DATA_BYTES_MAX) {
            state.frame(LIST, Path::new(""), 0, part)?;
        }
        state.frame(END, Path::new(""), 0, &[])?;
        let ended = match std::mem::replace(&mut state.out, Out::None) {
            Out::Plain(mut out) => out.flush(),
            Out::Zstd(encoder) => encoder.finish().and_then(|mut out| out.flush()),
            Out::None => Ok(()),
        };
        ended.map_err(|e| format!("cannot write the stream: {e}"))
    }

    /// Why the stream could not be written.
    pub fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }
}

impl State {
    fn frame(&mut self, kind: u8, name: &Path, offset: u64, data: &[u8]) -> Result<()> {
        let name = name.to_str().ok_or_else(|| format!("{} has no plain name", name.display()))?;
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("the name {name} is too long"));
        }
        let mut frame = Vec::with_capacity(HEAD_BYTES + name.len() + data.len() + 4);
        frame.push(kind);
        frame.extend(self.number.to_le_bytes());
        frame.extend((name.len() as u16).to_le_bytes());
        frame.extend((data.len() as u32).to_le_bytes());
        frame.extend(offset.to_le_bytes());
        frame.extend(name.as_bytes());
        frame.extend(data);
        let check = checksum(0, &frame);
        frame.extend(check.to_le_bytes());
        self.number += 1;
        match &mut self.held {
            Some(held) => {
                held.extend(frame);
                Ok(())
            }
            None => self.put(&frame),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match &mut self.out {
            Out::Plain(out) => out.write_all(bytes),
            Out::Zstd(out) => out.write_all(bytes),
            Out::None => Err(std::io::Error::other("it has ended")),
        };
        written.map_err(|e| {
            let error = format!("cannot write the stream: {e}");
            self.error = Some(error.clone());
            error
        })
    }
}

/// A directory of the engine's copy that is a stream: files are only written in it.
pub struct StreamOs {
    real: Arc<dyn Os>,
    stream: Stream,
    /// What stands before the names in the stream.
    root: PathBuf,
}

impl StreamOs {
    pub fn new(stream: Stream, root: PathBuf) -> Arc<StreamOs> {
        Arc::new(StreamOs { real: RealOs::new(), stream, root })
    }
}

struct StreamFile {
    stream: Stream,
    path: PathBuf,
    name: PathBuf,
}

type Done<T> = sluice_engine::base::Result<T>;

fn only_written<T>() -> Done<T> {
    Err(Error::Refused("a stream is only written".into()))
}

impl Os for StreamOs {
    fn open(&self, path: &Path, _: OpenMode) -> Done<Arc<dyn File>> {
        let name = path.strip_prefix(&self.root).map_err(|e| Error::Refused(e.to_string()))?;
        Ok(Arc::new(StreamFile {
            stream: self.stream.clone(),
            path: path.to_owned(),
            name: name.to_owned(),
        }))
    }
    fn exists(&self, _: &Path) -> Done<bool> {
        only_written()
    }
    fn list(&self, _: &Path) -> Done<Vec<PathBuf>> {
        only_written()
    }
    fn create_dir(&self, _: &Path) -> Done<()> {
        Ok(())
    }
    fn remove(&self, _: &Path) -> Done<()> {
        only_written()
    }
    fn rename(&self, _: &Path, _: &Path) -> Done<()> {
        only_written()
    }
    fn sync_dir(&self, _: &Path) -> Done<()> {
        Ok(())
    }
    fn free_bytes(&self, _: &Path) -> Done<u64> {
        only_written()
    }
    fn lock_dir(&self, _: &Path) -> Done<Box<dyn Send + Sync>> {
        only_written()
    }
    fn now_ns(&self) -> u64 {
        self.real.now_ns()
    }
    fn entropy(&self) -> u64 {
        self.real.entropy()
    }
    fn random(&self, out: &mut [u8]) -> Done<()> {
        self.real.random(out)
    }
}

impl File for StreamFile {
    fn path(&self) -> &Path {
        &self.path
    }
    fn len(&self) -> Done<u64> {
        only_written()
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Done<()> {
        only_written()
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Done<()> {
        self.stream.piece(&self.name, offset, bytes).map_err(Error::Refused)
    }
    fn write_durable(&self, _: &[u8], _: u64) -> Done<()> {
        only_written()
    }
    fn set_len(&self, bytes: u64) -> Done<()> {
        self.stream.file(&self.name, bytes).map_err(Error::Refused)
    }
    fn allocate_range(&self, _: u64, _: u64) -> Done<()> {
        only_written()
    }
    fn punch(&self, _: u64, _: u64) -> Done<bool> {
        Ok(false)
    }
    /// The reader makes it durable.
    fn sync(&self) -> Done<()> {
        Ok(())
    }
    fn renamed(&self, to: &Path) -> Arc<dyn File> {
        Arc::new(StreamFile {
            stream: self.stream.clone(),
            path: to.to_owned(),
            name: self.name.clone(),
        })
    }
}

struct Frame {
    kind: u8,
    offset: u64,
    name: PathBuf,
    data: Vec<u8>,
}

struct Frames<R> {
    from: R,
    number: u64,
}

/// A reader of the stream in `from`, whether it is compressed or not.
fn opened<'a>(from: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
    let mut from = BufReader::with_capacity(BUFFER_BYTES, from);
    let mut first = [0; 4];
    from.read_exact(&mut first).map_err(ended)?;
    let is_packed = first == ZSTD_MAGIC;
    let whole = std::io::Cursor::new(first).chain(from);
    match is_packed {
        false => Ok(Box::new(whole)),
        true => {
            let decoder = zstd::stream::read::Decoder::new(whole);
            Ok(Box::new(decoder.map_err(|e| format!("cannot decompress the stream: {e}"))?))
        }
    }
}

fn ended(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            "the stream ends before the end of the backup: it cannot be used".into()
        }
        _ => format!("cannot read the stream: {error}"),
    }
}

impl<R: Read> Frames<R> {
    fn begin(mut from: R) -> Result<Frames<R>> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(ended)?;
        match &magic == MAGIC {
            true => Ok(Frames { from, number: 0 }),
            false if magic.starts_with(b"sluice stream ") => {
                Err("the stream is of another release: restore it with the sluice of that release"
                    .into())
            }
            false => Err("this is no stream of sluice backup".into()),
        }
    }

    fn next(&mut self) -> Result<Frame> {
        let damaged =
            || format!("the stream is damaged in frame {}: it cannot be used", self.number);
        let mut head = [0; HEAD_BYTES];
        self.from.read_exact(&mut head).map_err(ended)?;
        let number = |from: usize, bytes: usize| {
            head[from..from + bytes].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        let (name_bytes, data_bytes) = (number(9, 2) as usize, number(11, 4) as usize);
        if name_bytes > NAME_BYTES_MAX || data_bytes > DATA_BYTES_MAX || number(1, 8) != self.number
        {
            return Err(damaged());
        }
        let mut body = vec![0; name_bytes + data_bytes + 4];
        self.from.read_exact(&mut body).map_err(ended)?;
        let check = body.split_off(name_bytes + data_bytes);
        if checksum(checksum(0, &head), &body).to_le_bytes()[..] != check[..] {
            return Err(damaged());
        }
        let data = body.split_off(name_bytes);
        let name = String::from_utf8(body).map_err(|_| damaged())?;
        self.number += 1;
        Ok(Frame { kind: head[0], offset: number(15, 8), name: name.into(), data })
    }
}

/// Writes the files of the stream below `stage`, and answers its list. Everything is durable then.
pub fn unpack(from: impl Read, stage: &Path, pace: &Pace) -> Result<Manifest> {
    let mut frames = Frames::begin(opened(from)?)?;
    let mut target = Target { os: RealOs::new(), stage, current: None, bytes: BTreeMap::new() };
    let mut list = Vec::new();
    loop {
        let Frame { kind, offset, name, data } = frames.next()?;
        let bytes = data.len() as u64;
        match kind {
            FILE => target.file(&name, offset)?,
            PIECE => target.piece(&name, offset, &data)?,
            LIST => list.extend(data),
            END => break,
            _ => return Err(format!("the stream has a frame of unknown kind {kind}")),
        }
        pace.step(bytes).map_err(|_| "stopped: nothing is restored".to_owned())?;
    }
    // Also what zstd checks at its own end.
    if frames.from.read(&mut [0]).map_err(ended)? > 0 {
        return Err("the stream goes on after the end of the backup".into());
    }
    let list =
        String::from_utf8(list).map_err(|_| "the list of the stream is damaged".to_owned())?;
    let manifest = Manifest::parse(&list, "the list of the stream")?;
    target.check(&manifest)?;
    Ok(manifest)
}

struct Target<'a> {
    os: Arc<dyn Os>,
    stage: &'a Path,
    /// The file of the last frame. Others are closed: there may be many.
    current: Option<(PathBuf, Arc<dyn File>)>,
    /// Files that were made, and bytes that they were given.
    bytes: BTreeMap<PathBuf, u64>,
}

impl Target<'_> {
    fn file(&mut self, name: &Path, bytes: u64) -> Result<()> {
        let file = self.open(name)?;
        match bytes {
            0 => Ok(()),
            // Also what lies between the pieces: the engine relies on it.
            bytes => file.allocate(bytes).map_err(|e| self.failed(name, e)),
        }
    }

    fn piece(&mut self, name: &Path, offset: u64, data: &[u8]) -> Result<()> {
        let file = self.open(name)?;
        file.write_at(data, offset).map_err(|e| self.failed(name, e))?;
        *self.bytes.entry(name.to_owned()).or_default() += data.len() as u64;
        Ok(())
    }

    fn failed(&self, name: &Path, error: Error) -> String {
        files::shown(&self.stage.join(name), error)
    }

    fn open(&mut self, name: &Path) -> Result<Arc<dyn File>> {
        if let Some((_, file)) = self.current.as_ref().filter(|(current, _)| current == name) {
            return Ok(Arc::clone(file));
        }
        let is_inside = |part: Component| matches!(part, Component::Normal(_));
        if name.as_os_str().is_empty() || !name.components().all(is_inside) {
            return Err(format!(
                "the stream has a file {}, which is none of a backup",
                name.display()
            ));
        }
        let path = self.stage.join(name);
        let create = !self.bytes.contains_key(name);
        if let Some(dir) = path.parent().filter(|_| create) {
            files::make_dir(dir)?;
        }
        let file = self.os.open(&path, OpenMode { create, direct: false });
        let file = file.map_err(|e| self.failed(name, e))?;
        self.bytes.entry(name.to_owned()).or_default();
        self.current = Some((name.to_owned(), Arc::clone(&file)));
        Ok(file)
    }

    /// Exactly the files of the list are there, each with all of its pieces.
    fn check(&mut self, manifest: &Manifest) -> Result<()> {
        self.current = None;
        let is_packed = manifest.base().is_some();
        for file in &manifest.files {
            let (name, wanted) = (&file.name, file.piece_bytes());
            let given = self.bytes.remove(name);
            let path = self.stage.join(name);
            let length = std::fs::metadata(&path).map(|meta| meta.len()).ok();
            if given != Some(wanted) || length != Some(file.stored_bytes(is_packed)) {
                return Err(format!(
                    "the stream is damaged: {} is not as its list says",
                    name.display()
                ));
            }
            files::sync(&path)?;
        }
        match self.bytes.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(format!("the stream is damaged: its list does not have {}", name.display()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
