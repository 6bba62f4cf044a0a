//! Verification of one page.

use super::node::{
    at, fence_prefix_len, head_of, Node, CHILD_BYTES, ENTRY_PREFIX_BYTES, FORMAT, HAS_HIGH,
    HEADER_BYTES, LEVEL_MAX, SLOT_BYTES,
};
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{Error, PageId, Result, PAGE_BYTES};

/// Verifies the structure of a page: afterwards no access to the node can go out of bounds.
pub fn check_page(page: &[u8]) -> Result<()> {
    if page.len() != PAGE_BYTES {
        return Err(Error::corrupt("page size", "node"));
    }
    let node = Node::new(page);
    match verify(node) {
        Ok(()) => Ok(()),
        Err(what) => Err(Error::corrupt(what, format!("page {}", node.page_id()))),
    }
}

fn verify(node: Node<'_>) -> std::result::Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    ensure(node.page_id() != PageId::ZERO, "page id zero")?;
    ensure(node.flags() & !HAS_HIGH == FORMAT, "node format")?;
    ensure(node.level() <= LEVEL_MAX, "node level")?;
    let (slots_end, heap) = (HEADER_BYTES + node.count() * SLOT_BYTES, node.heap_start());
    ensure(slots_end <= heap && heap <= PAGE_BYTES, "slots over heap")?;
    ensure(node.is_leaf() || node.count() > 0, "inner node without children")?;
    for i in [at::LOW, at::HIGH] {
        let (from, len) = (node.u16_at(i), node.u16_at(i + 2));
        ensure(from >= heap && from + len <= PAGE_BYTES && len <= KEY_BYTES_MAX, "fence place")?;
    }
    let (low, high) = (node.low(), node.high());
    ensure(high.is_none_or(|high| low < high), "fence order")?;
    ensure(node.prefix_len() == fence_prefix_len(low, high), "prefix length")?;
    let mut heap_bytes = node.garbage() + node.u16_at(at::LOW + 2) + node.u16_at(at::HIGH + 2);
    for i in 0..node.count() {
        verify_entry(node, i)?;
        heap_bytes += node.entry_bytes(i) - SLOT_BYTES;
    }
    ensure(heap + heap_bytes == PAGE_BYTES, "heap size")
}

fn verify_entry(node: Node<'_>, i: usize) -> std::result::Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let (offset, suffix_len) = (node.slot_offset(i), node.suffix_len(i));
    ensure(offset >= node.heap_start(), "entry place")?;
    let value_from = offset + ENTRY_PREFIX_BYTES + suffix_len;
    ensure(value_from <= PAGE_BYTES, "entry place")?;
    ensure(node.prefix_len() + suffix_len <= KEY_BYTES_MAX, "key length")?;
    let (_, value_len) = node.value_span(i);
    ensure(value_from + value_len <= PAGE_BYTES, "value place")?;
    ensure(value_len <= VALUE_BYTES_MAX, "value length")?;
    ensure(node.head(i) == head_of(node.suffix(i)), "key head")?;
    if node.is_leaf() {
        ensure(i == 0 || node.suffix(i - 1) < node.suffix(i), "key order")?;
    } else {
        ensure(value_len == CHILD_BYTES, "child reference")?;
        ensure(i > 0 || suffix_len == 0, "first child's key")?;
        ensure(i < 2 || node.suffix(i - 1) < node.suffix(i), "key order")?;
    }
    if i + 1 < node.count() && i > 0 {
        return Ok(());
    }
    // The ends lie between the fences, so all between them do.
    ensure(node.covers(&node.key(i)), "key outside of its fences")
}
