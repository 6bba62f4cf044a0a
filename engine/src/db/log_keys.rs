//! Under which versions of its key the log is. A statement about a position holds from there on.

use crate::base::Lsn;
use crate::cipher::Oldest;
use crate::os::rank::Rank;
use crate::os::sync::{Mutex, Ranked};

pub(crate) struct LogKeys {
    /// In order: from each position to the next one nothing is older than this.
    marks: Mutex<Vec<(Oldest, Lsn)>>,
}

impl LogKeys {
    /// `claim`: what the last checkpoint says; `tail`: what the start has read, to the end; `now`: what is
    /// written from here on.
    pub fn new(claim: Option<(Oldest, Lsn)>, tail: (Oldest, Lsn), now: (Oldest, Lsn)) -> LogKeys {
        let claim = claim.filter(|(_, from)| *from < tail.1);
        let marks = claim.into_iter().chain([tail, now]).collect();
        LogKeys { marks: Mutex::ranked(Rank::LogKeys, marks) }
    }

    /// All that is encrypted from now on is under this version. `end`: the log's end, read after the version.
    pub fn note(&self, version: u32, end: impl FnOnce() -> Lsn) {
        let mut marks = self.marks.lock();
        let now = Oldest::Version(version);
        if marks.last().is_none_or(|(last, _)| *last != now) {
            marks.push((now, end()));
        }
    }

    /// Of the log from this position on.
    pub fn oldest_from(&self, lsn: Lsn) -> Oldest {
        let marks = self.marks.lock();
        let after = marks.partition_point(|(_, from)| *from <= lsn);
        match after.checked_sub(1) {
            Some(first) => marks[first..].iter().map(|mark| mark.0).min().unwrap_or_default(),
            None => Oldest::Unknown,
        }
    }

    /// The newest version, and from where on the log is under no older one.
    pub fn newest(&self) -> Option<(u32, Lsn)> {
        let marks = self.marks.lock();
        let newest = marks.last()?.0;
        let from = marks.iter().rev().take_while(|mark| mark.0 >= newest).last()?.1;
        Some((newest.version(), from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Oldest::{Foreign, Unknown, Version};

    #[test]
    fn a_position_has_the_oldest_of_all_that_comes_after_it() {
        let keys = LogKeys::new(
            Some((Version(1), Lsn(100))),
            (Oldest::None, Lsn(200)),
            (Version(1), Lsn(300)),
        );
        assert_eq!(keys.newest(), Some((1, Lsn(100))));
        keys.note(1, || unreachable!("it is known"));
        keys.note(2, || Lsn(400));
        assert_eq!(keys.newest(), Some((2, Lsn(400))));
        let found = [99, 100, 250, 399, 400, 1000].map(|at| keys.oldest_from(Lsn(at)));
        let old = Version(1);
        assert_eq!(found, [Unknown, old, old, old, Version(2), Version(2)]);
    }

    #[test]
    fn a_start_believes_what_it_has_read() {
        let claim = Some((Version(3), Lsn(250)));
        let keys = LogKeys::new(claim, (Foreign, Lsn(200)), (Version(3), Lsn(300)));
        assert_eq!(keys.newest(), Some((3, Lsn(300))));
        let found = [199, 200, 299, 300].map(|at| keys.oldest_from(Lsn(at)));
        assert_eq!(found, [Unknown, Foreign, Foreign, Version(3)]);
        let keys = LogKeys::new(None, (Version(3), Lsn(200)), (Version(3), Lsn(300)));
        assert_eq!(keys.newest(), Some((3, Lsn(200))));
    }
}
