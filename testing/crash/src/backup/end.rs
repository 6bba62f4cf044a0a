//! How and when a backup is ended. The kinds come in decks, so that no seed leaves one out; the moment is
//! some time after a mark that the backup has reached, so that short phases are met as often as long ones.

use sluice_rig::rng::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Nothing,
    ProgramKilled,
    ProgramTold,
    SessionKilled,
    ServerKilled,
}

impl End {
    pub const ALL: [End; 5] =
        [End::Nothing, End::ProgramKilled, End::ProgramTold, End::SessionKilled, End::ServerKilled];

    pub fn name(self) -> &'static str {
        match self {
            End::Nothing => "left alone",
            End::ProgramKilled => "program killed",
            End::ProgramTold => "program told to end",
            End::SessionKilled => "session killed",
            End::ServerKilled => "server killed",
        }
    }

    /// The kind of the run's increment of this number.
    pub fn of_increment(seed: u64, number: u64) -> End {
        End::of(seed, INCREMENTS + number)
    }

    /// The kind of a round.
    pub fn of(seed: u64, round: u64) -> End {
        let mut deck = DECK;
        let size = deck.len() as u64;
        let mut rng = Rng::new(seed).fork(DECK_STREAM + round / size);
        loop {
            for n in (1..deck.len()).rev() {
                deck.swap(n, rng.between(0, n as i64) as usize);
            }
            if finishes_a_third(&deck) {
                return deck[(round % size) as usize];
            }
        }
    }
}

/// Apart from the numbers of rounds.
const INCREMENTS: u64 = 10 << 30;

/// Also after its first rounds: a run may have few.
fn finishes_a_third(deck: &[End]) -> bool {
    let finished = |count| deck[..count].iter().filter(|end| **end == End::Nothing).count();
    (1..=deck.len()).all(|count| finished(count) >= count / 3)
}

const DECK: [End; 10] = [
    End::Nothing,
    End::Nothing,
    End::Nothing,
    End::Nothing,
    End::ProgramKilled,
    End::ProgramKilled,
    End::ProgramTold,
    End::SessionKilled,
    End::ServerKilled,
    End::ServerKilled,
];
/// Apart from the streams of rounds.
const DECK_STREAM: u64 = 1 << 40;

/// Where a backup goes.
#[derive(Clone, Debug)]
pub enum To {
    Dir(PathBuf),
    /// A stream in a file.
    Stream(PathBuf),
}

impl To {
    pub fn path(&self) -> &Path {
        match self {
            To::Dir(path) | To::Stream(path) => path,
        }
    }
}

/// How far a backup is, by the files that it and the server have made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// It asks the server, which keeps nothing for it so far.
    Begins,
    /// Pages and log are copied.
    Pages,
    /// DDL statements wait.
    Definitions,
    /// Commits wait.
    Held,
    /// The server goes on; the copy is made durable and verified.
    Copied,
    /// Its list is there.
    Listed,
}

impl Phase {
    pub const ALL: [Phase; 6] = [
        Phase::Begins,
        Phase::Pages,
        Phase::Definitions,
        Phase::Held,
        Phase::Copied,
        Phase::Listed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Begins => "begins",
            Phase::Pages => "pages",
            Phase::Definitions => "DDL held",
            Phase::Held => "commits held",
            Phase::Copied => "copied",
            Phase::Listed => "listed",
        }
    }

    /// Of the backup in `to`, from a server on `data`. A stream shows less.
    pub fn of(to: &To, data: &Path) -> Phase {
        let is_kept = kept_file(data).exists();
        match to {
            To::Dir(dir) => Phase::of_directory(dir, is_kept),
            To::Stream(_) if is_kept => Phase::Pages,
            To::Stream(file) => {
                match fs::metadata(file).is_ok_and(|meta| meta.len() > HEAD_BYTES) {
                    true => Phase::Copied,
                    false => Phase::Begins,
                }
            }
        }
    }

    fn of_directory(dir: &Path, is_kept: bool) -> Phase {
        let copy = dir.join("data");
        match () {
            () if dir.join(LIST).exists() => Phase::Listed,
            () if copy.join("mysql").exists() && !is_kept => Phase::Copied,
            () if copy.join("mysql").exists() => Phase::Held,
            () if copy.join("k9").exists() => Phase::Definitions,
            () if is_kept => Phase::Pages,
            () => Phase::Begins,
        }
    }
}

/// A stream has no more than that before the server keeps anything for it.
const HEAD_BYTES: u64 = 1 << 10;

/// A directory with it is a backup.
pub const LIST: &str = "sluice_backup_info";

/// The server has it as long as it keeps files for a backup.
pub fn kept_file(data: &Path) -> PathBuf {
    data.join("sluice/superblock.backup")
}

/// Some time after a backup has reached a phase.
pub struct Moment {
    pub mark: Phase,
    pub rest: Duration,
}

impl Moment {
    /// `pages` is how long the copy of the pages will take.
    pub fn draw(rng: &mut Rng, to: &To, pages: Duration) -> Moment {
        let marks = [Phase::Begins, Phase::Pages, Phase::Definitions, Phase::Held, Phase::Copied];
        let shown = match to {
            To::Dir(_) => &marks[..],
            // The time after it reaches into the later phases.
            To::Stream(_) => &marks[..2],
        };
        let mark = *rng.pick(shown).unwrap_or(&Phase::Pages);
        let at_most_us = match mark {
            Phase::Begins => 60_000,
            Phase::Pages => pages.as_micros() as i64 + 100_000,
            Phase::Definitions => 20_000,
            Phase::Held => 30_000,
            Phase::Copied | Phase::Listed => 300_000,
        };
        let rest = Duration::from_micros(rng.between(0, at_most_us) as u64);
        Moment { mark, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deck_has_every_kind() {
        for seed in 0..50 {
            let of_deck = |n: u64| (n * 10..n * 10 + 10).map(move |round| End::of(seed, round));
            for deck in [0, 7, INCREMENTS / 10] {
                assert!(End::ALL.iter().all(|end| of_deck(deck).any(|found| found == *end)));
                assert!(finishes_a_third(&of_deck(deck).collect::<Vec<_>>()));
            }
        }
        let order = |seed| (0..10).map(|round| End::of(seed, round)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
    }
}
