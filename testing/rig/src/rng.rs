//! A small seeded generator (SplitMix64, Steele et al. 2014), so that a seed means the same
//! workload on every machine and with every version of every library.

#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// An independent stream for one part of a run (a round, a session).
    pub fn fork(&self, stream: u64) -> Rng {
        let mut child = Rng(self.0 ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        child.next_u64();
        child
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high);
        low + (self.next_u64() % (high - low + 1) as u64) as i64
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: i64) -> bool {
        self.between(1, n) == 1
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        match items.len() {
            0 => None,
            n => items.get(self.between(0, n as i64 - 1) as usize),
        }
    }
}
