//! Byte strings whose `memcmp` order is the order of the values: the parts keys are made of.
//!
//! Each encoding is prefix-free, so that parts can be put one after the other, and can be measured
//! from its own bytes. `mask` is 0xff in a part that the bytes of are complemented (DESC).
//!
//! * escaped: a zero byte becomes `00 ff`, the end is `00 00`. Longer sorts after its prefix.
//! * padded: pieces of [`piece_bytes`] weight bytes, the last filled with the weight of a space,
//!   each followed by a marker that tells how the rest compares with spaces without end. A value
//!   and the same value with spaces after it have equal bytes.

use sluice_engine::base::{Error, Result};

const LESS: u8 = 1;
const END: u8 = 2;
const GREATER: u8 = 3;

/// Weight bytes in one piece: whole spaces, about eight bytes.
pub fn piece_bytes(space: usize) -> usize {
    debug_assert!((1..=8).contains(&space));
    space * (8 / space).max(1)
}

pub fn put_escaped(value: &[u8], out: &mut Vec<u8>) {
    for (i, run) in value.split(|&b| b == 0).enumerate() {
        if i > 0 {
            out.extend_from_slice(&[0, 0xff]);
        }
        out.extend_from_slice(run);
    }
    out.extend_from_slice(&[0, 0]);
}

/// Length of the escaped value at the front of `bytes`, its end mark included.
pub fn escaped_len(bytes: &[u8], mask: u8) -> Result<usize> {
    let mut at = 0;
    loop {
        if *bytes.get(at).ok_or_else(short)? ^ mask != 0 {
            at += 1;
            continue;
        }
        match *bytes.get(at + 1).ok_or_else(short)? ^ mask {
            0 => return Ok(at + 2),
            0xff => at += 2,
            _ => return Err(Error::corrupt("bad escape in a key", "key")),
        }
    }
}

/// Puts the value of an escaped string of known extent at the front of `to`, as much of it as has room
/// there; answers how many bytes.
pub fn take_escaped(bytes: &[u8], mask: u8, to: &mut [u8]) -> usize {
    let body = &bytes[..bytes.len().saturating_sub(2)];
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        let room = &mut to[end..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        end += n;
    };
    for (i, run) in body.split(|byte| byte ^ mask == 0).enumerate() {
        match run.split_first() {
            // A zero byte was here, and its run begins with the rest of the escape.
            Some((_, rest)) if i > 0 => [&[mask][..], rest].into_iter().for_each(&mut put),
            _ => put(run),
        }
    }
    to[..end].iter_mut().for_each(|byte| *byte ^= mask);
    end
}

/// `weights` in pieces; `space` is the weight of one space.
pub fn put_padded(weights: &[u8], space: &[u8], out: &mut Vec<u8>) {
    let piece = piece_bytes(space.len());
    let mut rest = trim(weights, space);
    loop {
        let n = rest.len().min(piece);
        out.extend_from_slice(&rest[..n]);
        for i in n..piece {
            out.push(space[i % space.len()]);
        }
        rest = &rest[n..];
        if rest.is_empty() {
            out.push(END);
            return;
        }
        out.push(if below_spaces(rest, space) { LESS } else { GREATER });
    }
}

pub fn padded_len(bytes: &[u8], space: usize, mask: u8) -> Result<usize> {
    let piece = piece_bytes(space);
    let mut at = piece;
    loop {
        match *bytes.get(at).ok_or_else(short)? ^ mask {
            END => return Ok(at + 1),
            LESS | GREATER => at += piece + 1,
            _ => return Err(Error::corrupt("bad marker in a key", "key")),
        }
    }
}

/// A value, or its weights, without spaces at its end.
pub fn trim<'a>(mut value: &'a [u8], space: &[u8]) -> &'a [u8] {
    // A CHAR of utf8mb4 is mostly padding.
    if let [space] = *space {
        while let Some(rest) = value.strip_suffix(&[space; 16]) {
            value = rest;
        }
    }
    // Whole spaces only: an odd tail is not one.
    while value.len() % space.len() == 0 && value.ends_with(space) {
        value = &value[..value.len() - space.len()];
    }
    value
}

/// Is the non-empty, trimmed `rest` less than spaces without end?
fn below_spaces(rest: &[u8], space: &[u8]) -> bool {
    for (i, &b) in rest.iter().enumerate() {
        let s = space[i % space.len()];
        if b != s {
            return b < s;
        }
    }
    false
}

#[cold]
fn short() -> Error {
    Error::corrupt("key ends early", "key")
}

/// The least byte string above every string that starts with `prefix`; `None` if there is none.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut out = prefix[..=keep].to_vec();
    out[keep] += 1;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::cmp::Ordering;

    fn padded_compare(a: &[u8], b: &[u8], space: &[u8]) -> Ordering {
        let at = |v: &[u8], i: usize| v.get(i).copied().unwrap_or(space[i % space.len()]);
        (0..a.len().max(b.len()))
            .map(|i| at(a, i).cmp(&at(b, i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn sample(random: &mut Random, unit: usize, space: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..random.below(14) {
            match random.below(4) {
                0 | 1 => out.extend_from_slice(space),
                2 => out.extend((0..unit).map(|_| random.below(4) as u8)),
                _ => out.extend((0..unit).map(|_| [0, 0x1f, 0x20, 0x21, 0xff][random.below(5)])),
            }
        }
        out
    }

    #[test]
    fn padded_order_is_the_order_of_padded_values() {
        let mut random = Random::new(1);
        for space in [&[0x20][..], &[0x02, 0x09], &[0, 0, 0x20], &[0, 0, 0, 0x20]] {
            for _ in 0..20_000 {
                let a = sample(&mut random, space.len(), space);
                let b = sample(&mut random, space.len(), space);
                let (mut x, mut y) = (Vec::new(), Vec::new());
                put_padded(&a, space, &mut x);
                put_padded(&b, space, &mut y);
                assert_eq!(x.cmp(&y), padded_compare(&a, &b, space), "{a:x?} {b:x?} {space:x?}");
                let n = x.len();
                x.extend_from_slice(&y);
                assert_eq!(padded_len(&x, space.len(), 0).unwrap(), n);
                x.iter_mut().for_each(|b| *b = !*b);
                assert_eq!(padded_len(&x, space.len(), 0xff).unwrap(), n);
            }
        }
    }

    #[test]
    fn escaped_order_and_round_trip() {
        let mut random = Random::new(2);
        for _ in 0..50_000 {
            let a = sample(&mut random, 1, &[0]);
            let b = sample(&mut random, 1, &[0]);
            let (mut x, mut y) = (Vec::new(), Vec::new());
            put_escaped(&a, &mut x);
            put_escaped(&b, &mut y);
            assert_eq!(x.cmp(&y), a.cmp(&b));
            let n = x.len();
            x.extend_from_slice(&y);
            assert_eq!(escaped_len(&x, 0).unwrap(), n);
            let mut back = [7; 64];
            let took = take_escaped(&x[..n], 0, &mut back);
            assert_eq!(back[..took], a);
            x.iter_mut().for_each(|b| *b = !*b);
            let room = random.below(64);
            let took = take_escaped(&x[..n], 0xff, &mut back[..room]);
            assert_eq!(back[..took], a[..room.min(a.len())]);
        }
    }

    #[test]
    fn successor_is_above_every_continuation() {
        assert_eq!(successor(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(successor(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(successor(&[0xff]), None);
        assert_eq!(successor(&[]), None);
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(escaped_len(&[1, 2, 0], 0).is_err());
        assert!(escaped_len(&[0, 7], 0).is_err());
        assert!(padded_len(&[0; 8], 1, 0).is_err());
        assert!(padded_len(&[9; 9], 1, 0).is_err());
    }
}
