//! The directory of a server: where things are in it, and the marker file by
//! which we recognise it as ours.

use super::{files, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Raised when an older `sluice` must not touch a directory any more.
const FORMAT: u32 = 1;
const FORMAT_KEY: &str = "sluice-server-format";

pub struct ServerDir {
    root: PathBuf,
}

impl ServerDir {
    /// The absolute form of `path`: the server changes its working directory.
    pub fn new(path: &Path) -> Result<ServerDir> {
        let root = std::path::absolute(path)
            .map_err(|e| format!("cannot resolve the directory {}: {e}", path.display()))?;
        // A symlink or `..` would make the server's own idea of its directory differ from ours.
        let root = fs::canonicalize(&root).unwrap_or(root);
        Ok(ServerDir { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }
    /// Where a data directory is made before it is renamed to `data`.
    pub fn unfinished_data(&self) -> PathBuf {
        self.root.join("data.unfinished")
    }
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }
    pub fn socket(&self) -> PathBuf {
        self.root.join("mysql.sock")
    }
    pub fn pid_file(&self) -> PathBuf {
        self.root.join("mariadbd.pid")
    }
    pub fn error_log(&self) -> PathBuf {
        self.root.join("error.log")
    }
    pub fn install_log(&self) -> PathBuf {
        self.root.join("install.log")
    }
    pub fn lock_file(&self) -> PathBuf {
        self.root.join("sluice.lock")
    }
    pub fn marker(&self) -> PathBuf {
        self.root.join("sluice.server")
    }

    /// The marker of this directory; `None` when the directory is missing or empty.
    /// Refuses whatever we did not make.
    pub fn read_marker(&self) -> Result<Option<Marker>> {
        match fs::read_to_string(self.marker()) {
            Ok(text) => Marker::parse(&text)
                .map(Some)
                .map_err(|reason| format!("{}: {reason}", self.marker().display())),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                self.require_empty().map(|()| None)
            }
            Err(e) => Err(format!("cannot read {}: {e}", self.marker().display())),
        }
    }

    fn require_empty(&self) -> Result<()> {
        let root = self.root.display();
        match fs::read_dir(&self.root) {
            // A start that was refused before it wrote the marker leaves the lock file.
            Ok(entries) => match entries.flatten().find(|e| e.path() != self.lock_file()) {
                None => Ok(()),
                Some(_) => Err(format!(
                    "{root} is not a directory of `sluice server`: it is not empty and has no file \
                     sluice.server. A new server needs an empty directory"
                )),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(format!("cannot use {root} as a directory: {e}")),
        }
    }

    /// Replaces the marker in one step, so that a reader never sees half of it.
    pub fn write_marker(&self, marker: &Marker) -> Result<()> {
        files::replace(&self.marker(), &marker.to_text())
    }
}

/// The marker file: the maker of the directory, and how its server was started last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub server_version: String,
    /// False for a server without the plugin. Never goes back from true to false.
    pub engine: bool,
    pub port: Option<u16>,
}

impl Marker {
    fn to_text(&self) -> String {
        let port = self.port.map_or("none".to_string(), |port| port.to_string());
        format!(
            "{FORMAT_KEY}={FORMAT}\nsluice={}\nserver={}\nengine={}\nport={port}\n",
            env!("CARGO_PKG_VERSION"),
            self.server_version,
            if self.engine { "Sluice" } else { "none" },
        )
    }

    fn parse(text: &str) -> Result<Marker> {
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
                .ok_or_else(|| format!("damaged marker file: no {key}"))
        };
        // The format is judged first: a newer one may lack any other key.
        let format: u32 = value(FORMAT_KEY)?
            .parse()
            .map_err(|_| "damaged marker file: the format is not a number".to_string())?;
        if format > FORMAT {
            return Err(format!(
                "this directory has format {format}, which is newer than this sluice (format \
                 {FORMAT}): use the sluice that made it"
            ));
        }
        let port = match value("port")? {
            "none" => None,
            port => Some(port.parse().map_err(|_| "damaged marker file: bad port".to_string())?),
        };
        Ok(Marker {
            server_version: value("server")?.to_string(),
            engine: value("engine")? == "Sluice",
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> ServerDir {
        let path =
            std::env::temp_dir().join(format!("sluice-layout-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        ServerDir::new(&path).unwrap()
    }

    #[test]
    fn marker_round_trip() {
        let dir = scratch("round-trip");
        for port in [None, Some(3307)] {
            let marker = Marker { server_version: "10.11.18".into(), engine: true, port };
            dir.write_marker(&marker).unwrap();
            assert_eq!(dir.read_marker().unwrap(), Some(marker));
        }
        fs::remove_dir_all(dir.root()).unwrap();
    }

    #[test]
    fn empty_or_missing_directory_has_no_marker() {
        let dir = scratch("empty");
        assert_eq!(dir.read_marker().unwrap(), None);
        fs::remove_dir_all(dir.root()).unwrap();
        assert_eq!(dir.read_marker().unwrap(), None);
    }

    #[test]
    fn foreign_directory_is_refused() {
        let dir = scratch("foreign");
        fs::write(dir.root().join("precious"), "x").unwrap();
        assert!(dir.read_marker().unwrap_err().contains("is not a directory of"));
        fs::remove_dir_all(dir.root()).unwrap();
    }

    #[test]
    fn newer_format_is_refused_whatever_else_it_holds() {
        let reason = Marker::parse("sluice-server-format=2\nwhatever=1\n").unwrap_err();
        assert!(reason.contains("newer"), "{reason}");
    }

    #[test]
    fn damaged_marker_is_refused() {
        for text in ["", "sluice-server-format=x\n", "sluice-server-format=1\nport=none\n"] {
            assert!(Marker::parse(text).unwrap_err().contains("damaged"), "{text:?}");
        }
    }
}
