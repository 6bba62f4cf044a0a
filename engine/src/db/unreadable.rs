//! Reads that the disk refuses (EIO), while work that nobody waits for needs them: how long such
//! work tries again before it is put aside.
//!
//! Giving up cannot be taken back, and a disk can be away for a while (a cable, a path that is
//! switched). So a place is given up only after many tries, spread over time, and only while the
//! same disk answers reads of another place.

use crate::base::{Error, PageId};
use crate::os::hash::HashMap;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};
use crate::os::{Os, SIMULATED};
use crate::store::Store;
use std::path::PathBuf;
use std::sync::Arc;

/// Tries before a place is given up, and the least time between two that count.
const TRIES: u32 = 10;
const SPACING_NS: u64 = if cfg!(test) { 1 } else { 2_000_000_000 };
/// A place that nobody asked for so long begins anew. In the simulator hours pass between two steps
/// of a thread.
const FORGET_NS: u64 = if SIMULATED { 10_000_000_000_000_000 } else { 120_000_000_000 };

#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Page(PageId),
    File(PathBuf),
}

struct Tries {
    count: u32,
    last_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may pass.
    TryAgain,
    GiveUp,
    /// Nothing can be read there: it is the disk, not the place.
    DiskAway,
}

/// Judges failed reads.
pub(crate) struct Unreadable {
    places: Places,
    os: Arc<dyn Os>,
    store: Arc<Store>,
}

impl Unreadable {
    pub fn new(os: Arc<dyn Os>, store: Arc<Store>) -> Unreadable {
        Unreadable { places: Places::new(), os, store }
    }

    /// To be asked once for each time that a read has failed. Damage is given up at once.
    pub fn judge(&self, error: &Error) -> Verdict {
        self.places.judge(error, self.os.now_ns(), || self.store.answers())
    }
}

/// The places that could not be read lately.
struct Places(Mutex<HashMap<Place, Tries>>);

impl Places {
    fn new() -> Places {
        Places(Mutex::ranked(Rank::Unreadable, HashMap::default()))
    }

    /// `answers` tries to read another place of the same disk.
    fn judge(&self, error: &Error, now_ns: u64, answers: impl FnOnce() -> bool) -> Verdict {
        let Error::Io { path, page, .. } = error else { return Verdict::GiveUp };
        let place = page.map_or_else(|| Place::File(path.clone()), Place::Page);
        if self.count(&place, now_ns) < TRIES {
            return Verdict::TryAgain;
        }
        if answers() {
            return Verdict::GiveUp;
        }
        // A failure meanwhile says nothing about the place.
        self.0.lock().remove(&place);
        Verdict::DiskAway
    }

    fn count(&self, place: &Place, now_ns: u64) -> u32 {
        let mut places = self.0.lock();
        places.retain(|_, tries| now_ns.saturating_sub(tries.last_ns) < FORGET_NS);
        let tries = places.entry(place.clone()).or_insert(Tries { count: 0, last_ns: 0 });
        let is_spaced = now_ns.saturating_sub(tries.last_ns) >= SPACING_NS;
        if tries.count == 0 || is_spaced {
            tries.count += 1;
            tries.last_ns = now_ns;
        }
        tries.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(page: u64) -> Error {
        Error::io("read", "/data/pages", std::io::Error::from_raw_os_error(libc::EIO))
            .of_page(PageId(page))
    }

    #[test]
    fn a_place_is_given_up_after_tries_while_the_disk_answers() {
        let places = Places::new();
        let now = std::cell::Cell::new(0);
        let tick = || now.replace(now.get() + SPACING_NS);
        for _ in 1..TRIES {
            let verdict = places.judge(&error(7), tick(), || panic!("asked too early"));
            assert_eq!(verdict, Verdict::TryAgain);
        }
        assert_eq!(places.judge(&error(7), tick(), || true), Verdict::GiveUp);
        assert_eq!(places.judge(&error(7), tick(), || true), Verdict::GiveUp, "and stays so");
        assert_eq!(places.judge(&error(8), tick(), || true), Verdict::TryAgain, "its own tries");
        assert_eq!(places.judge(&error(7), tick(), || false), Verdict::DiskAway);
        assert_eq!(places.judge(&error(7), tick(), || true), Verdict::TryAgain, "begins anew");
    }

    #[test]
    fn tries_of_long_ago_do_not_count() {
        let places = Places::new();
        for round in 0..3 * u64::from(TRIES) {
            let verdict = places.judge(&error(7), round * FORGET_NS, || true);
            assert_eq!(verdict, Verdict::TryAgain);
        }
    }
}
