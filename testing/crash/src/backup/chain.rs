//! A chain: a full backup and increments, with load between them, restarts and kills of the server.
//! Each that was finished is restored with all that it rests on.

use super::end::End;
use super::{Link, Load, Site, Tally, Wish};
use crate::kill9::{one, Checked, Plan};
use sluice_rig::rng::Rng;
use std::thread;
use std::time::Duration;

/// Apart from the streams of rounds.
const STREAM: u64 = 1 << 41;

/// Is the round's backup a chain? One of two rounds.
pub fn is_one(seed: u64, round: u64) -> bool {
    let is_first = Rng::new(seed).fork(STREAM + round / 2).one_in(2);
    is_first == (round % 2 == 0)
}

impl Site {
    pub(super) fn chain(&mut self, plan: &Plan, rng: &mut Rng, tally: &mut Tally) -> Checked<()> {
        let full = Wish { base: None, end: End::Nothing, is_base: true };
        let full = self.attempt(plan, &full, rng, tally)?;
        let mut links: Vec<Link> = full.into_iter().collect();
        for _ in 0..rng.between(2, 4) {
            self.meanwhile(plan, rng, tally)?;
            let end = End::of_increment(plan.seed, tally.increments());
            let wish = Wish { base: base(&links, rng), end, is_base: false };
            let link = self.attempt(plan, &wish, rng, tally)?;
            links.extend(link);
        }
        for link in &links {
            self.compare(plan, link, rng, tally)?;
            self.refuse_gap(link)?;
        }
        tally.count_chain(&links);
        Ok(())
    }

    /// What happens to the server before the next increment.
    fn meanwhile(&mut self, plan: &Plan, rng: &mut Rng, tally: &mut Tally) -> Checked<()> {
        match rng.between(1, 5) {
            1 => {
                tally.restarts += 1;
                self.restart_cleanly()
            }
            2 | 3 => {
                tally.kills += 1;
                let load = Load::draw(rng);
                let rest = Duration::from_millis(rng.between(50, 1500) as u64);
                self.under_load(plan, &load, rng, tally, |server, _| {
                    thread::sleep(rest);
                    let killed = server.take().map_or(Ok(()), |server| server.kill());
                    killed.map_err(one("killing the server"))
                })
            }
            _ => Ok(()),
        }
    }
}

/// Mostly the newest that something can rest on: several increments may rest on one.
fn base<'a>(links: &'a [Link], rng: &mut Rng) -> Option<&'a Link> {
    let bases: Vec<&Link> = links.iter().filter(|link| !link.is_stream()).collect();
    match rng.one_in(5) {
        true => rng.pick(&bases).copied(),
        false => bases.last().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_rounds_are_chains() {
        for seed in 0..20 {
            let chains = (0..60).filter(|round| is_one(seed, *round)).count();
            assert_eq!(chains, 30, "seed {seed}");
        }
        let order = |seed| (0..60).map(|round| is_one(seed, round)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
    }
}
