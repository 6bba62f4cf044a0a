//! From the server's key images to keys and ranges of an index.
//!
//! 1. An image gives the first parts of a key, and stands for every key that begins with their bytes: a range
//!    ends below the successor of these, or begins there.
//! 2. Every search comes through [`Handler::encode`], which refuses an index whose order has changed.

use super::Handler;
use crate::key::{self, KeyMaker};
use crate::order::successor;
use sluice_engine::base::{Error, Result};
use sluice_engine::db::RangeEstimate;
use std::ops::Bound;

/// An end of a range as the server gives it.
#[derive(Clone, Copy)]
pub struct ImageBound<'a> {
    pub image: &'a [u8],
    pub parts: usize,
    pub inclusive: bool,
}

impl Handler {
    pub fn set_range_end(&mut self, index: usize, end: Option<ImageBound<'_>>) -> Result<()> {
        self.range_end = match end {
            None => None,
            Some(end) => Some(self.upper(index, end)?),
        };
        Ok(())
    }

    pub(super) fn encode(&mut self, index: usize, at: ImageBound<'_>) -> Result<Vec<u8>> {
        self.check_order(index)?;
        let mut out = Vec::new();
        let shape = &self.shape;
        let mut maker = KeyMaker { shape, collator: self.collator, scratch: &mut self.scratch };
        maker.put_image(index, at.image, at.parts, &mut out)?;
        Ok(out)
    }

    fn upper(&mut self, index: usize, end: ImageBound<'_>) -> Result<Bound<Vec<u8>>> {
        let key = self.encode(index, end)?;
        Ok(if end.inclusive { below_successor(&key) } else { Bound::Excluded(key) })
    }

    /// Entries between two ends, an estimate.
    pub fn rows_in_range(
        &mut self,
        index: usize,
        low: Option<ImageBound<'_>>,
        high: Option<ImageBound<'_>>,
    ) -> Result<RangeEstimate> {
        let low = match low {
            None => Bound::Unbounded,
            Some(at) => {
                let key = self.encode(index, at)?;
                if at.inclusive {
                    Bound::Included(key)
                } else {
                    at_successor(&key)
                }
            }
        };
        let high = match high {
            None => Bound::Unbounded,
            Some(at) => self.upper(index, at)?,
        };
        let range = self.table.range_estimate(index, as_bound(&low), as_bound(&high));
        range.ok_or(Error::NotFound)
    }

    pub fn encode_ref(&mut self, image: &[u8]) -> Result<Vec<u8>> {
        if self.shape.hidden_key {
            return Ok(image[..key::HIDDEN_KEY_BYTES.min(image.len())].to_vec());
        }
        let parts = self.shape.indexes[0].parts.len();
        self.encode(0, ImageBound { image, parts, inclusive: true })
    }

    pub(super) fn is_unique_entry(&self, index: usize, key: &[u8]) -> Result<bool> {
        let shape = &self.shape;
        if !shape.indexes[index].unique || shape.indexes[index].parts.is_empty() {
            return Ok(false);
        }
        let (n, has_null) = key::parts_len(shape, index, key)?;
        Ok(n == key.len() && !has_null)
    }
}

pub(super) fn as_bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Up to and with every key that begins with `prefix`.
pub(super) fn below_successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    successor(prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

/// From the first key above all that begin with `prefix`; Unbounded stands for "nothing".
pub(super) fn at_successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    successor(prefix).map_or(Bound::Unbounded, Bound::Included)
}
