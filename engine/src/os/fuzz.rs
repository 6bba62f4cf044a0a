//! A small seeded fuzzer for decoders: structure-aware by starting from valid inputs.
//!
//! A target gets mutated inputs until its time is over; it must not panic, hang or allocate
//! without bound. `SLUICE_FUZZ_SECONDS` (`make fuzz SECONDS=n`) is the time for each target, and
//! `SLUICE_FUZZ_SEED` where it begins; without them it is a fixed, short share of every test run.

use super::sim::SimRng;
use std::time::{Duration, Instant};

const ITERATIONS: u64 = 20_000;
const INTERESTING: [u8; 8] = [0, 1, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x10];

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Changes `input` in one to eight places.
pub fn mutate(rng: &mut SimRng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + rng.below(8) {
        let at = rng.below(input.len() as u64 + 1) as usize;
        match rng.below(8) {
            0 => input.truncate(at),
            1 => input.insert(at, INTERESTING[rng.below(8) as usize]),
            2 if at < input.len() => {
                input.remove(at);
            }
            3 if at < input.len() => input[at] = INTERESTING[rng.below(8) as usize],
            4 if at < input.len() => {
                // A varint of many bytes.
                let end = (at + 9).min(input.len());
                input[at..end].fill(0xff);
            }
            5 if !other.is_empty() => {
                let from = rng.below(other.len() as u64) as usize;
                let n = (1 + rng.below(32) as usize).min(other.len() - from);
                let piece = other[from..from + n].to_vec();
                let end = (at + n).min(input.len());
                input.splice(at..end, piece);
            }
            _ if at < input.len() => input[at] ^= 1 << rng.below(8),
            _ => input.push(rng.next_u64() as u8),
        }
    }
}

/// Feeds `target` with mutations of `corpus`; answers how many inputs it saw.
pub fn fuzz(name: &str, corpus: &[Vec<u8>], target: &mut dyn FnMut(&[u8])) -> u64 {
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|input| target(input));
    let time = setting("SLUICE_FUZZ_SECONDS").map(Duration::from_secs);
    let first = setting("SLUICE_FUZZ_SEED").unwrap_or(1);
    let begin = Instant::now();
    let mut seed = first;
    while time.map_or(seed < first + ITERATIONS, |time| begin.elapsed() < time) {
        let mut rng = SimRng::new(seed);
        let pick = |rng: &mut SimRng| &corpus[rng.below(corpus.len() as u64) as usize];
        let mut input = pick(&mut rng).clone();
        let other = pick(&mut rng);
        mutate(&mut rng, &mut input, other);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&input)));
        assert!(caught.is_ok(), "fuzz {name}: SLUICE_FUZZ_SEED={seed}, input {input:02x?}");
        seed += 1;
    }
    println!("fuzz {name}: {} inputs", seed - first);
    seed - first
}
