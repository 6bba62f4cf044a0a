//! What the tests of this room share: a small generator and a collator that needs no server.

use crate::shape::Collator;

/// xorshift64*: the same values for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
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
