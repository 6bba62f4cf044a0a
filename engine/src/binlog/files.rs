//! Small files beside the binlog: read whole, replaced whole.

use crate::base::Result;
use crate::os::{OpenMode, Os};
use std::path::{Path, PathBuf};

/// `None`: there is no such file.
pub fn read(os: &dyn Os, path: &Path) -> Result<Option<Vec<u8>>> {
    if !os.exists(path)? {
        return Ok(None);
    }
    let file = os.open(path, OpenMode::default())?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

/// Afterwards the file has these bytes, durably; a crash on the way leaves the old ones or these.
pub fn replace(os: &dyn Os, path: &Path, bytes: &[u8]) -> Result<()> {
    let new = beside(path, ".new");
    if os.exists(&new)? {
        os.remove(&new)?;
    }
    let file = os.open(&new, OpenMode { create: true, direct: false })?;
    if !bytes.is_empty() {
        file.write_at(bytes, 0)?;
    }
    file.sync()?;
    os.rename(&new, path)?;
    os.sync_dir(directory(path))
}

/// Removes the file durably, if it is there.
pub fn remove(os: &dyn Os, path: &Path) -> Result<()> {
    if os.exists(path)? {
        os.remove(path)?;
        os.sync_dir(directory(path))?;
    }
    Ok(())
}

/// The same path with something after its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
