//! What the tests of this room share: a small generator and a collator that needs no server.

use crate::shape::Collator;
use sluice_engine::os::sim::SimRng;

/// The engine's generator, with numbers for indexes.
pub struct Random(SimRng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(SimRng::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// As Thai with its tone marks: `^` weighs after everything else, spaces included.
pub struct MarksLast;

impl Collator for MarksLast {
    fn weights(&self, _: usize, _: u32, _: usize, value: &[u8], out: &mut Vec<u8>) {
        out.extend(value.iter().filter(|b| **b != b'^'));
        out.extend(value.iter().filter(|b| **b == b'^'));
    }

    fn prefix(&self, _charset: usize, value: &[u8], chars: usize) -> usize {
        value.len().min(chars)
    }
}

/// ASCII without regard to case; one byte a character.
pub struct CaseBlind;

impl Collator for CaseBlind {
    fn weights(&self, _: usize, level: u32, _: usize, value: &[u8], out: &mut Vec<u8>) {
        // The second level tells capitals from small letters.
        let weigh = |b: &u8| match level {
            2 => 1 + u8::from(b.is_ascii_uppercase()),
            _ => b.to_ascii_uppercase(),
        };
        out.extend(value.iter().map(weigh));
    }

    fn prefix(&self, _charset: usize, value: &[u8], chars: usize) -> usize {
        value.len().min(chars)
    }
}
