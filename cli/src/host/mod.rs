//! What the operating system knows about a server on this machine: process, device, file system,
//! and how fast the storage makes a write durable.
//!
//! 1. Everything is optional: without the right, or for a server elsewhere, it is absent, not zero.
//! 2. The probe writes only below the directory it was given, and removes what it made.

pub mod calls;
mod device;
mod drive;
mod journal;
mod machine;
mod probe;
mod process;
pub mod statx;
mod storage;

pub use device::{is_trimmed, mount_of, Device, DeviceCounters, Mount};
#[cfg(test)]
pub use drive::DriveCounters;
pub use drive::Tools;
pub use journal::Logged;
pub use machine::{free_bytes, machine, memory_bytes, processors};
pub use probe::{probe, quantile, Probe};
pub use process::{process_of, ProcessCounters};
#[cfg(test)]
pub use storage::JournalBytes;
pub use storage::{directories, DriveBytes, Storage, StorageBytes, StorageCounters};
