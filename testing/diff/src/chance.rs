//! Small helpers over the rig's generator.

use sluice_rig::rng::Rng;

pub trait Chance {
    /// True in `percent` of 100 calls on average.
    fn percent(&mut self, percent: i64) -> bool;
    fn below(&mut self, count: usize) -> usize;
    fn one<'a>(&mut self, items: &[&'a str]) -> &'a str;
    /// An index, by weight.
    fn weighted(&mut self, weights: &[u32]) -> usize;
    /// Some of the items, in their order, at least `min` if there are so many.
    fn some<T: Clone>(&mut self, items: &[T], min: usize, max: usize) -> Vec<T>;
    fn shuffle<T>(&mut self, items: &mut [T]);
}

impl Chance for Rng {
    fn percent(&mut self, percent: i64) -> bool {
        self.between(1, 100) <= percent
    }

    fn below(&mut self, count: usize) -> usize {
        self.between(0, count.max(1) as i64 - 1) as usize
    }

    fn one<'a>(&mut self, items: &[&'a str]) -> &'a str {
        self.pick(items).copied().unwrap_or("")
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u32 = weights.iter().sum();
        let mut at = self.below(total as usize) as u32;
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        0
    }

    fn some<T: Clone>(&mut self, items: &[T], min: usize, max: usize) -> Vec<T> {
        let max = max.min(items.len());
        let count = self.between(min.min(max) as i64, max as i64) as usize;
        let mut chosen: Vec<usize> = (0..items.len()).collect();
        self.shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
        chosen.into_iter().map(|at| items[at].clone()).collect()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at + 1);
            items.swap(at, other);
        }
    }
}
