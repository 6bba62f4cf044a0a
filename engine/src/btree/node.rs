//! The slotted page, read-only: layout, search, sizes.
//!
//! ```text
//! 0   page id u64             8   page LSN u64
//! 16  tree id u32             20  level u8 (0 = leaf)      21  format and flags u8
//! 22  count u16               24  heap start u16           26  garbage bytes in the heap u16
//! 28  prefix length u16       30  low fence: offset u16, length u16
//! 34  high fence: offset u16, length u16                   38  reserved, zero
//! 48  slots, 8 bytes each: heap offset u16, suffix length u16, head u32
//! ..  free ..  heap, growing down: value length u16, key suffix, value; fences
//! ```
//! The head is the first four bytes of the suffix, big-endian, padded with zeroes: most
//! comparisons of a search end in the slots. Values of inner nodes are child page ids.

use crate::base::{checked, formats, PageId, TreeId, PAGE_BYTES};
use std::cmp::Ordering;

pub(super) const HEADER_BYTES: usize = 48;
pub(super) const SLOT_BYTES: usize = 8;
/// In front of each entry of the heap.
pub(super) const ENTRY_PREFIX_BYTES: usize = 2;
pub(super) const CHILD_BYTES: usize = 8;
pub(super) const LEVEL_MAX: u8 = 32;

/// In the upper bits of the flags byte.
pub(super) const FORMAT: u8 = formats::CURRENT.node << 4;
pub(super) const HAS_HIGH: u8 = 1;

/// Bytes that fences and entries of a node share.
pub(super) const BODY_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// A node that uses less is a candidate for merging.
pub(super) const UNDERFULL_BYTES: usize = BODY_BYTES / 4;
/// Two nodes are merged only if the result leaves room for growth.
pub(super) const MERGED_BYTES_MAX: usize = BODY_BYTES * 3 / 4;

pub(super) mod at {
    pub const PAGE: usize = 0;
    pub const LSN: usize = 8;
    pub const TREE: usize = 16;
    pub const LEVEL: usize = 20;
    pub const FLAGS: usize = 21;
    pub const COUNT: usize = 22;
    pub const HEAP: usize = 24;
    pub const GARBAGE: usize = 26;
    pub const PREFIX: usize = 28;
    pub const LOW: usize = 30;
    pub const HIGH: usize = 34;
}

/// Slot of a key, or (Err) where it would stand.
pub(super) type Found = Result<usize, usize>;

/// A view of a page that passed `check_page` (or was just made by `apply`).
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub page: &'a [u8; PAGE_BYTES],
}

impl<'a> Node<'a> {
    pub fn new(page: &'a [u8]) -> Node<'a> {
        match page.try_into() {
            Ok(page) => Node { page },
            Err(_) => unreachable!("pages have PAGE_BYTES"),
        }
    }

    pub fn u16_at(self, i: usize) -> usize {
        usize::from(u16::from_le_bytes([self.page[i], self.page[i + 1]]))
    }

    fn u32_at(self, i: usize) -> u32 {
        let b = &self.page[i..i + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    fn u64_at(self, i: usize) -> u64 {
        let mut b = [0; 8];
        b.copy_from_slice(&self.page[i..i + 8]);
        u64::from_le_bytes(b)
    }

    pub fn page_id(self) -> PageId {
        PageId(self.u64_at(at::PAGE))
    }

    #[cfg(test)]
    pub fn lsn(self) -> crate::base::Lsn {
        crate::base::Lsn(self.u64_at(at::LSN))
    }

    pub fn tree(self) -> TreeId {
        TreeId(self.u32_at(at::TREE))
    }

    pub fn level(self) -> u8 {
        self.page[at::LEVEL]
    }

    pub fn flags(self) -> u8 {
        self.page[at::FLAGS]
    }

    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    pub fn count(self) -> usize {
        self.u16_at(at::COUNT)
    }

    pub fn heap_start(self) -> usize {
        self.u16_at(at::HEAP)
    }

    pub fn garbage(self) -> usize {
        self.u16_at(at::GARBAGE)
    }

    pub fn prefix_len(self) -> usize {
        self.u16_at(at::PREFIX)
    }

    pub fn low(self) -> &'a [u8] {
        self.span(at::LOW)
    }

    pub fn high(self) -> Option<&'a [u8]> {
        (self.flags() & HAS_HIGH != 0).then(|| self.span(at::HIGH))
    }

    fn span(self, i: usize) -> &'a [u8] {
        let (from, len) = (self.u16_at(i), self.u16_at(i + 2));
        &self.page[from..from + len]
    }

    pub fn prefix(self) -> &'a [u8] {
        &self.low()[..self.prefix_len()]
    }

    pub fn slot_offset(self, i: usize) -> usize {
        self.u16_at(HEADER_BYTES + i * SLOT_BYTES)
    }

    pub fn suffix_len(self, i: usize) -> usize {
        self.u16_at(HEADER_BYTES + i * SLOT_BYTES + 2)
    }

    pub fn head(self, i: usize) -> u32 {
        self.u32_at(HEADER_BYTES + i * SLOT_BYTES + 4)
    }

    pub fn suffix(self, i: usize) -> &'a [u8] {
        let from = self.slot_offset(i) + ENTRY_PREFIX_BYTES;
        &self.page[from..from + self.suffix_len(i)]
    }

    /// Where the value of slot `i` lies.
    pub fn value_span(self, i: usize) -> (usize, usize) {
        let offset = self.slot_offset(i);
        (offset + ENTRY_PREFIX_BYTES + self.suffix_len(i), self.u16_at(offset))
    }

    pub fn value(self, i: usize) -> &'a [u8] {
        let (from, len) = self.value_span(i);
        &self.page[from..from + len]
    }

    pub fn child(self, i: usize) -> PageId {
        PageId(self.u64_at(self.value_span(i).0))
    }

    /// Bytes of slot and heap that entry `i` takes.
    pub fn entry_bytes(self, i: usize) -> usize {
        entry_bytes(self.suffix_len(i), self.u16_at(self.slot_offset(i)))
    }

    /// Appends the full key of slot `i` to `out`.
    pub fn key_to(self, i: usize, out: &mut Vec<u8>) {
        if i == 0 && !self.is_leaf() {
            out.extend_from_slice(self.low());
        } else {
            out.extend_from_slice(self.prefix());
            out.extend_from_slice(self.suffix(i));
        }
    }

    pub fn key(self, i: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_to(i, &mut key);
        key
    }

    /// Bytes free between slots and heap.
    pub fn gap(self) -> usize {
        self.heap_start() - HEADER_BYTES - self.count() * SLOT_BYTES
    }

    /// Bytes free after compaction.
    pub fn room(self) -> usize {
        self.gap() + self.garbage()
    }

    pub fn used(self) -> usize {
        BODY_BYTES - self.room()
    }

    fn compare(self, i: usize, head: u32, suffix: &[u8]) -> Ordering {
        self.head(i).cmp(&head).then_with(|| self.suffix(i).cmp(suffix))
    }

    /// Slot of `key`, or where it would stand. In inner nodes slot 0 counts as below every key.
    pub fn search(self, key: &[u8]) -> Found {
        checked!(self.covers(key));
        let suffix = &key[self.prefix_len()..];
        let head = head_of(suffix);
        let first = usize::from(!self.is_leaf() && self.count() > 0);
        let (mut low, mut high) = (first, self.count());
        while low < high {
            let middle = (low + high) / 2;
            match self.compare(middle, head, suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Slot of the child whose range holds `key`.
    pub fn child_slot(self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(i) => i,
            Err(i) => i.saturating_sub(1),
        }
    }

    /// Slot of the child whose range holds the keys right below `key`, which is above the low fence.
    pub fn child_slot_below(self, key: &[u8]) -> usize {
        // The key may be this node's high fence: then it need not share the prefix.
        if self.high().is_some_and(|high| key >= high) {
            return self.count() - 1;
        }
        match self.search(key) {
            Ok(i) | Err(i) => i.saturating_sub(1),
        }
    }

    pub fn covers(self, key: &[u8]) -> bool {
        self.low() <= key && self.high().is_none_or(|high| key < high)
    }
}

pub(super) fn entry_bytes(suffix_len: usize, value_len: usize) -> usize {
    SLOT_BYTES + ENTRY_PREFIX_BYTES + suffix_len + value_len
}

pub(super) fn head_of(suffix: &[u8]) -> u32 {
    if let Some(head) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    head[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(head)
}

pub(super) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Length of the prefix that every key between the fences has.
pub(super) fn fence_prefix_len(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_prefix_len(low, high))
}

/// The shortest key above `below` and not above `at` (suffix truncation; Bayer, Unterauer 1977).
pub(super) fn separator<'a>(below: &[u8], at: &'a [u8]) -> &'a [u8] {
    assert!(below < at);
    &at[..common_prefix_len(below, at) + 1]
}
