//! The layers below the files of a server: file systems with their journals, block devices, drives.

use super::device::{Device, DeviceCounters};
use super::drive::{Drive, DriveCounters, Tools};
use super::journal::{Journal, JournalCounters, Logged};
use crate::db::Counters;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Variables with a directory of files that a server writes all the time.
const DIRECTORIES: [&str; 7] = [
    "datadir",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "sluice_log_dir",
    "rocksdb_datadir",
    "rocksdb_wal_dir",
];

#[derive(Default)]
pub struct Storage {
    devices: Vec<Device>,
    journals: Vec<Journal>,
    drives: Vec<Drive>,
    /// Figures that cannot be had, and why.
    pub missing: Vec<String>,
}

/// In the order of [`Storage`].
#[derive(Default)]
pub struct StorageCounters {
    devices: Vec<Option<DeviceCounters>>,
    journals: Vec<Option<JournalCounters>>,
    drives: Vec<Option<DriveCounters>>,
}

/// Written between two readings. Other programs are in all of it.
#[derive(Clone, Debug, Default)]
pub struct StorageBytes {
    pub devices: Vec<(String, DeviceCounters)>,
    pub journals: Vec<JournalBytes>,
    pub drives: Vec<DriveBytes>,
}

#[derive(Clone, Debug)]
pub struct JournalBytes {
    pub device: String,
    pub kind: String,
    pub logged: Logged,
}

#[derive(Clone, Debug)]
pub struct DriveBytes {
    pub name: String,
    pub bytes: DriveCounters,
    /// Since it was made.
    pub life: DriveCounters,
}

/// The directories of a server on this machine.
pub fn directories(variables: &Counters) -> Vec<PathBuf> {
    let data = PathBuf::from(variables.text("datadir").unwrap_or_default());
    let mut all: Vec<PathBuf> = DIRECTORIES
        .iter()
        .filter_map(|name| variables.text(name))
        .map(|dir| data.join(dir))
        .collect();
    let binlog = variables.text("log_bin_basename").filter(|_| variables.is_on("log_bin"));
    all.extend(binlog.and_then(|path| Some(data.join(path).parent()?.to_path_buf())));
    all
}

impl Storage {
    pub fn below(dirs: &[PathBuf], tools: &Tools) -> Storage {
        let mut storage = Storage::default();
        let mut seen = BTreeSet::new();
        for dir in dirs {
            match fs::metadata(dir) {
                Ok(data) if seen.insert(data.dev()) => storage.add(dir),
                Ok(_) => {}
                Err(e) => storage.missing.push(format!("file system of {}: {e}", dir.display())),
            }
        }
        let disks: BTreeSet<String> =
            storage.devices.iter().flat_map(Device::disks).map(|disk| disk.name).collect();
        for disk in disks {
            storage.add_drive(&disk, tools);
        }
        storage
    }

    fn add(&mut self, dir: &Path) {
        match Journal::of(dir) {
            Ok(journal) => self.journals.push(journal),
            Err(why) => self.missing.push(format!("bytes of the journal of {why}")),
        }
        match Device::of(dir) {
            Some(device) if self.devices.iter().any(|known| known.name == device.name) => {}
            Some(device) => self.devices.push(device),
            None => self.missing.push(format!(
                "bytes of the device below {}: its file system is on no single block device",
                dir.display()
            )),
        }
    }

    fn add_drive(&mut self, disk: &str, tools: &Tools) {
        let inside = |why: String| format!("bytes inside of the drive {why}");
        match Drive::of(disk, tools) {
            Ok((drive, why)) => {
                self.drives.push(drive);
                self.missing.extend(why.map(inside));
            }
            Err(why) => self.missing.push(inside(why)),
        }
    }

    pub fn read(&self) -> StorageCounters {
        StorageCounters {
            devices: self.devices.iter().map(Device::counters).collect(),
            journals: self.journals.iter().map(Journal::counters).collect(),
            drives: self.drives.iter().map(Drive::counters).collect(),
        }
    }

    pub fn between(&self, then: &StorageCounters, now: &StorageCounters) -> StorageBytes {
        let devices = pairs(&self.devices, &then.devices, &now.devices);
        let journals = pairs(&self.journals, &then.journals, &now.journals);
        let drives = pairs(&self.drives, &then.drives, &now.drives);
        StorageBytes {
            devices: devices.map(|(d, then, now)| (d.name.clone(), now.since(&then))).collect(),
            journals: journals
                .filter_map(|(journal, then, now)| {
                    Some(JournalBytes {
                        device: journal.device.clone(),
                        kind: journal.kind.clone(),
                        logged: journal.between(then, now)?,
                    })
                })
                .collect(),
            drives: drives
                .map(|(drive, then, now)| DriveBytes {
                    name: drive.name.clone(),
                    bytes: now.since(&then),
                    life: now,
                })
                .collect(),
        }
    }
}

/// Those that could be read both times.
fn pairs<'a, T, C: Copy>(
    all: &'a [T],
    then: &'a [Option<C>],
    now: &'a [Option<C>],
) -> impl Iterator<Item = (&'a T, C, C)> {
    let both = then.iter().zip(now);
    all.iter().zip(both).filter_map(|(one, (then, now))| Some((one, (*then)?, (*now)?)))
}

impl StorageBytes {
    /// Of all devices together.
    pub fn device(&self) -> Option<DeviceCounters> {
        self.devices.iter().map(|(_, counters)| *counters).reduce(DeviceCounters::and)
    }

    /// Of all journals that are known; `None` if none is.
    pub fn journal(&self) -> Option<Logged> {
        let all = self.journals.iter().map(|journal| journal.logged);
        all.reduce(|a, b| Logged {
            transactions: a.transactions.zip(b.transactions).map(|(a, b)| a + b),
            bytes: a.bytes + b.bytes,
            least_bytes: a.least_bytes + b.least_bytes,
            most_bytes: a.most_bytes + b.most_bytes,
        })
    }

    pub fn to_json(&self) -> Value {
        json!({
            "devices": self.devices_json(), "journals": self.journals_json(),
            "drives": self.drives_json(),
        })
    }

    fn devices_json(&self) -> Value {
        let one = |(name, d): &(String, DeviceCounters)| {
            json!({
                "name": name, "written_bytes": d.written_bytes, "flushes": d.flushes,
                "discarded_bytes": d.discarded_bytes,
            })
        };
        self.devices.iter().map(one).collect()
    }

    fn journals_json(&self) -> Value {
        let one = |journal: &JournalBytes| {
            let logged = journal.logged;
            json!({
                "device": journal.device, "file_system": journal.kind,
                "transactions": logged.transactions, "bytes": logged.bytes,
                "bytes_least": logged.least_bytes, "bytes_most": logged.most_bytes,
            })
        };
        self.journals.iter().map(one).collect()
    }

    fn drives_json(&self) -> Value {
        let one = |drive: &DriveBytes| {
            json!({
                "name": drive.name, "host_bytes": drive.bytes.host_bytes,
                "media_bytes": drive.bytes.media_bytes,
                "write_amplification": drive.bytes.amplification(),
                "life_host_bytes": drive.life.host_bytes,
                "life_media_bytes": drive.life.media_bytes,
                "life_write_amplification": drive.life.amplification(),
            })
        };
        self.drives.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_those_of_the_variables() {
        let variables = Counters::parse(
            "datadir /data/\nlog_bin ON\nlog_bin_basename /logs/bin\ninnodb_log_group_home_dir ./\n\
             sluice_log_dir sluice/log\n",
        );
        let wanted = ["/data/", "/data/./", "/data/sluice/log", "/logs"];
        assert_eq!(directories(&variables), wanted.map(PathBuf::from));
        let without = Counters::parse("datadir /data/\nlog_bin OFF\nlog_bin_basename /logs/bin\n");
        assert_eq!(directories(&without), [PathBuf::from("/data/")]);
    }

    #[test]
    fn a_file_system_is_looked_at_once_and_a_missing_one_is_named() {
        let dir = std::env::temp_dir();
        let gone = dir.join("no-such-directory");
        let storage = Storage::below(&[dir.clone(), dir, gone], &Tools::default());
        assert!(storage.journals.len() <= 1 && storage.devices.len() <= 1);
        let of_journals = storage.missing.iter().filter(|m| m.contains("journal of")).count();
        assert_eq!(of_journals + storage.journals.len(), 1, "known or not: {:?}", storage.missing);
        assert!(storage.missing[..].iter().any(|m| m.contains("no-such-directory")));
    }

    #[test]
    fn journals_add_up_with_their_bounds() {
        let one = |bytes, least_bytes, most_bytes| JournalBytes {
            device: "vda".to_string(),
            kind: "ext4".to_string(),
            logged: Logged { transactions: Some(2), bytes, least_bytes, most_bytes },
        };
        let mut bytes = StorageBytes::default();
        assert_eq!(bytes.journal(), None, "none is known");
        bytes.journals = vec![one(10, 5, 15), one(100, 100, 100)];
        let both = bytes.journal().unwrap();
        assert_eq!((both.bytes, both.least_bytes, both.most_bytes), (110, 105, 115));
        assert_eq!(both.transactions, Some(4));
        assert_eq!(bytes.journals_json()[0]["bytes_most"], 15);
    }
}
