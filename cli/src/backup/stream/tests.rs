//! A stream comes back as it was; one that is cut, changed or put together anew does not.

use super::*;
use crate::backup::manifest::{Listed, Piece};
use std::fs;

/// Takes the bytes of a stream.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn manifest() -> Manifest {
    let listed = |name: &str, bytes, piece| Listed {
        name: name.into(),
        bytes,
        pieces: vec![Piece { offset: 0, bytes: piece, check: 0 }],
    };
    Manifest {
        facts: vec![("gtid_binlog_pos".into(), "0-1-2".into())],
        files: vec![listed("sluice/pages", 8192, 4096), listed("w/t.frm", 3, 3)],
    }
}

fn stream(level: Option<i32>) -> Vec<u8> {
    let bytes = Bytes::default();
    let stream = Stream::begin(Box::new(bytes.clone()), level).unwrap();
    let os = StreamOs::new(stream.clone(), PathBuf::new());
    let file = os.open(Path::new("sluice/pages"), OpenMode::default()).unwrap();
    file.set_len(8192).unwrap();
    file.write_at(&[7; 4096], 0).unwrap();
    stream.hold();
    stream.file(Path::new("w/t.frm"), 0).unwrap();
    stream.piece(Path::new("w/t.frm"), 0, b"frm").unwrap();
    stream.finish(&manifest().encode().unwrap()).unwrap();
    let all = bytes.0.lock().unwrap().clone();
    all
}

fn read(bytes: &[u8], name: &str) -> Result<Manifest> {
    let dir = std::env::temp_dir().join(format!("sluice-stream-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let found = unpack(bytes, &dir, &Pace::new("", 0, None));
    if found.is_ok() {
        let pages = fs::read(dir.join("sluice/pages")).unwrap();
        assert!(pages.len() == 8192 && pages[..4096] == [7; 4096] && pages[4096..] == [0; 4096]);
        assert_eq!(fs::read(dir.join("w/t.frm")).unwrap(), b"frm");
    }
    fs::remove_dir_all(&dir).unwrap();
    found
}

#[test]
fn a_stream_comes_back_as_it_was() {
    for (level, name) in [(None, "plain"), (Some(3), "zstd")] {
        assert_eq!(read(&stream(level), name).unwrap(), manifest());
    }
    assert!(stream(Some(3)).len() < stream(None).len() / 4);
}

#[test]
fn each_cut_and_each_changed_byte_is_found() {
    for (level, name) in [(None, "bad-plain"), (Some(3), "bad-zstd")] {
        let whole = stream(level);
        let step = (whole.len() / 300).max(1);
        for at in (0..whole.len()).step_by(step).chain(whole.len() - 40..whole.len()) {
            assert!(read(&whole[..at], name).is_err(), "{name} cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 4;
            // Some bits of zstd's own mean nothing; then all is as it was.
            if let Ok(found) = read(&changed, name) {
                assert!(level.is_some() && found == manifest(), "{name} byte {at}");
            }
        }
        let more = [&whole[..], b"x"].concat();
        assert!(read(&more, name).is_err(), "{name} with more after it");
    }
}

#[test]
fn what_no_backup_writes_is_refused() {
    let written = |write: &dyn Fn(&Stream)| {
        let bytes = Bytes::default();
        let stream = Stream::begin(Box::new(bytes.clone()), None).unwrap();
        write(&stream);
        stream.finish(&manifest().encode().unwrap()).unwrap();
        let all = bytes.0.lock().unwrap().clone();
        read(&all, "other").unwrap_err()
    };
    assert!(
        written(&|stream| stream.file(Path::new("../x"), 0).unwrap()).contains("none of a backup")
    );
    assert!(
        written(&|stream| stream.file(Path::new("/x"), 0).unwrap()).contains("none of a backup")
    );
    assert!(written(&|_| {}).contains("not as its list says"));
    let other = read(b"sluice stream 2\nxxxxxxxxxxxx", "newer").unwrap_err();
    assert!(other.contains("another release"), "{other}");
    assert!(read(b"some other file, of some length", "none").unwrap_err().contains("no stream"));
}
