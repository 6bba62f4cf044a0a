//! `apply`: the only code that modifies a node. Pure: the same page, change and LSN give the same
//! bytes, in forward execution and in redo. Bytes that do not fit the page are Corrupt.

use super::codec::{decode, index, Decoded, Init};
use super::node::{
    at, entry_bytes, fence_prefix_len, head_of, Node, BODY_BYTES, CHILD_BYTES, ENTRY_PREFIX_BYTES,
    FORMAT, HAS_HIGH, HEADER_BYTES, LEVEL_MAX, SLOT_BYTES,
};
use super::verify::check_page;
use crate::base::codec::Reader;
use crate::base::entry::LSN_RANGE;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::{checked, Error, Lsn, PageId, Result, TreeId, CHECKED, PAGE_BYTES};

/// LSN of the last record applied to a page; zero for a new one.
pub fn page_lsn(page: &[u8]) -> Lsn {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[8..16]);
    Lsn(u64::from_le_bytes(bytes))
}

/// Whether redo may start from a zeroed page: the change holds the whole content.
pub fn change_creates_page(change: &[u8]) -> bool {
    change.first() == Some(&super::codec::INIT)
}

/// Makes `change` to the page and sets its LSN. On an error the page is unchanged.
pub fn apply(page: &mut [u8], page_id: PageId, change: &[u8], lsn: Lsn) -> Result<()> {
    let before = if CHECKED { page.to_vec() } else { Vec::new() };
    let made = make(page, page_id, change, lsn);
    if CHECKED {
        check_made(&before, page, lsn, &made);
    }
    made
}

/// What must hold after any change.
fn check_made(before: &[u8], page: &[u8], lsn: Lsn, made: &Result<()>) {
    if made.is_err() {
        assert!(before == page, "a change that failed has changed the page");
        return;
    }
    assert_eq!(page_lsn(page), lsn);
    if let Err(error) = check_page(page) {
        unreachable!("a change has left a broken page: {error}");
    }
}

fn make(page: &mut [u8], page_id: PageId, change: &[u8], lsn: Lsn) -> Result<()> {
    let decoded = decode(change)?;
    let Ok(page) = <&mut [u8; PAGE_BYTES]>::try_from(page) else {
        return Err(mismatch(page_id, "page size"));
    };
    if let Decoded::Init(init) = decoded {
        return apply_init(page, page_id, init, lsn);
    }
    let node = Node::new(&page[..]);
    if node.page_id() != page_id || node.flags() & !HAS_HIGH != FORMAT {
        return Err(mismatch(page_id, "not a node of this id"));
    }
    let mut editor = Editor { page, page_id };
    match decoded {
        Decoded::Init(_) => {}
        Decoded::Truncate { keep, high } => editor.truncate(keep, high)?,
        Decoded::Insert { slot, suffix, value, stamp } => {
            editor.insert(slot, suffix, value, stamp.then_some(lsn))?
        }
        Decoded::Replace { slot, value, stamp } => {
            editor.replace(slot, value, stamp.then_some(lsn))?
        }
        Decoded::Patch { slot, ranges, stamp } => {
            editor.patch(slot, ranges, stamp.then_some(lsn))?
        }
        Decoded::Remove { slot } => editor.remove(slot)?,
        Decoded::RemoveMany { slots } => editor.remove_many(slots)?,
    }
    set_u64(page, at::LSN, lsn.0);
    Ok(())
}

#[cold]
fn mismatch(page: PageId, what: &str) -> Error {
    let place = format!("page {page}");
    Error::corrupt(format!("change does not fit: {what}"), place).of_page(page)
}

fn set_u16(page: &mut [u8; PAGE_BYTES], i: usize, v: usize) {
    checked!(v <= PAGE_BYTES);
    page[i..i + 2].copy_from_slice(&(v as u16).to_le_bytes());
}

fn set_u64(page: &mut [u8; PAGE_BYTES], i: usize, v: u64) {
    page[i..i + 8].copy_from_slice(&v.to_le_bytes());
}

fn apply_init(page: &mut [u8; PAGE_BYTES], id: PageId, init: Init<'_>, lsn: Lsn) -> Result<()> {
    let mut fresh = Builder::new(id, init.tree, init.level, init.low, init.high)?;
    let mut entries = init.entries;
    for _ in 0..init.count {
        fresh.push(entries.bytes()?, entries.bytes()?)?;
    }
    entries.finish()?;
    if init.level > 0 && init.count == 0 {
        return Err(mismatch(id, "inner node without children"));
    }
    *page = fresh.page;
    set_u64(page, at::LSN, lsn.0);
    Ok(())
}

/// Makes a node from nothing, entries in ascending order.
struct Builder {
    page: [u8; PAGE_BYTES],
    id: PageId,
}

impl Builder {
    fn new(
        id: PageId,
        tree: TreeId,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<Builder> {
        let fence_max = low.len().max(high.map_or(0, <[u8]>::len));
        if level > LEVEL_MAX || fence_max > KEY_BYTES_MAX || high.is_some_and(|high| low >= high) {
            return Err(mismatch(id, "level or fences"));
        }
        let mut b = Builder { page: [0; PAGE_BYTES], id };
        set_u64(&mut b.page, at::PAGE, id.0);
        b.page[at::TREE..at::TREE + 4].copy_from_slice(&tree.0.to_le_bytes());
        b.page[at::LEVEL] = level;
        b.page[at::FLAGS] = FORMAT | if high.is_some() { HAS_HIGH } else { 0 };
        set_u16(&mut b.page, at::HEAP, PAGE_BYTES);
        b.fence(at::LOW, low);
        b.fence(at::HIGH, high.unwrap_or_default());
        set_u16(&mut b.page, at::PREFIX, fence_prefix_len(low, high));
        Ok(b)
    }

    fn fence(&mut self, i: usize, key: &[u8]) {
        let from = Node { page: &self.page }.heap_start() - key.len();
        self.page[from..from + key.len()].copy_from_slice(key);
        set_u16(&mut self.page, at::HEAP, from);
        set_u16(&mut self.page, i, from);
        set_u16(&mut self.page, i + 2, key.len());
    }

    fn push(&mut self, suffix: &[u8], value: &[u8]) -> Result<()> {
        let slot = Node { page: &self.page }.count();
        Editor { page: &mut self.page, page_id: self.id }.insert(slot, suffix, value, None)
    }
}

struct Editor<'a> {
    page: &'a mut [u8; PAGE_BYTES],
    page_id: PageId,
}

impl Editor<'_> {
    fn node(&self) -> Node<'_> {
        Node { page: self.page }
    }

    fn fail(&self, what: &str) -> Error {
        mismatch(self.page_id, what)
    }

    fn slot_in_use(&self, slot: usize) -> Result<()> {
        if slot < self.node().count() {
            Ok(())
        } else {
            Err(self.fail("no such slot"))
        }
    }

    fn insert(
        &mut self,
        slot: usize,
        suffix: &[u8],
        value: &[u8],
        stamp: Option<Lsn>,
    ) -> Result<()> {
        self.check_insert(slot, suffix, value, stamp)?;
        let node = self.node();
        let need = entry_bytes(suffix.len(), value.len());
        if need > node.gap() {
            if need > node.room() {
                return Err(self.fail("no room"));
            }
            self.compact();
        }
        let count = self.node().count();
        let from = HEADER_BYTES + slot * SLOT_BYTES;
        self.page.copy_within(from..HEADER_BYTES + count * SLOT_BYTES, from + SLOT_BYTES);
        set_u16(self.page, at::COUNT, count + 1);
        set_u16(self.page, from + 2, suffix.len());
        self.page[from + 4..from + 8].copy_from_slice(&head_of(suffix).to_le_bytes());
        self.put_heap(slot, suffix, value, stamp);
        Ok(())
    }

    fn check_insert(
        &self,
        slot: usize,
        suffix: &[u8],
        value: &[u8],
        stamp: Option<Lsn>,
    ) -> Result<()> {
        let node = self.node();
        let implied = slot == 0 && !node.is_leaf();
        self.check_value(value, stamp)?;
        if slot > node.count() || node.prefix_len() + suffix.len() > KEY_BYTES_MAX {
            return Err(self.fail("slot or key length"));
        }
        if implied && (node.count() > 0 || !suffix.is_empty()) {
            return Err(self.fail("the first child's key is the low fence"));
        }
        // Slot 0 of an inner node stands for the low fence. Keys and fences share the prefix.
        let prefix_len = node.prefix_len();
        let first = usize::from(!node.is_leaf());
        let after = if slot <= first {
            implied || suffix >= &node.low()[prefix_len..]
        } else {
            node.suffix(slot - 1) < suffix
        };
        let before = if slot == node.count() {
            implied || node.high().is_none_or(|high| suffix < &high[prefix_len..])
        } else {
            suffix < node.suffix(slot)
        };
        if after && before {
            Ok(())
        } else {
            Err(self.fail("key order"))
        }
    }

    fn check_value(&self, value: &[u8], stamp: Option<Lsn>) -> Result<()> {
        let is_leaf = self.node().is_leaf();
        if value.len() > VALUE_BYTES_MAX
            || (!is_leaf && value.len() != CHILD_BYTES)
            || (stamp.is_some() && (!is_leaf || value.len() < LSN_RANGE.end))
        {
            return Err(self.fail("value length"));
        }
        Ok(())
    }

    /// Writes the entry of a slot into the gap, which has room for it.
    fn put_heap(&mut self, slot: usize, suffix: &[u8], value: &[u8], stamp: Option<Lsn>) {
        let bytes = ENTRY_PREFIX_BYTES + suffix.len() + value.len();
        let from = self.node().heap_start() - bytes;
        let value_from = from + ENTRY_PREFIX_BYTES + suffix.len();
        set_u16(self.page, from, value.len());
        self.page[from + ENTRY_PREFIX_BYTES..value_from].copy_from_slice(suffix);
        self.page[value_from..value_from + value.len()].copy_from_slice(value);
        if let Some(lsn) = stamp {
            set_u64(self.page, value_from + LSN_RANGE.start, lsn.0);
        }
        set_u16(self.page, at::HEAP, from);
        set_u16(self.page, HEADER_BYTES + slot * SLOT_BYTES, from);
    }

    fn replace(&mut self, slot: usize, value: &[u8], stamp: Option<Lsn>) -> Result<()> {
        self.slot_in_use(slot)?;
        self.check_value(value, stamp)?;
        let node = self.node();
        let (from, len) = node.value_span(slot);
        if len == value.len() {
            self.page[from..from + len].copy_from_slice(value);
            if let Some(lsn) = stamp {
                set_u64(self.page, from + LSN_RANGE.start, lsn.0);
            }
            return Ok(());
        }
        if entry_bytes(node.suffix_len(slot), value.len()) > node.room() + node.entry_bytes(slot) {
            return Err(self.fail("no room"));
        }
        let suffix = node.suffix(slot).to_vec();
        self.remove(slot)?;
        self.insert(slot, &suffix, value, stamp)
    }

    fn patch(&mut self, slot: usize, ranges: Reader<'_>, stamp: Option<Lsn>) -> Result<()> {
        self.slot_in_use(slot)?;
        self.check_value(self.node().value(slot), stamp)?;
        let (from, len) = self.node().value_span(slot);
        let (mut check, mut end) = (ranges.clone(), 0);
        while !check.is_empty() {
            end += index(&mut check)? + check.bytes()?.len();
        }
        if end > len || !self.node().is_leaf() {
            return Err(self.fail("patch beyond the value"));
        }
        let (mut ranges, mut i) = (ranges, from);
        while !ranges.is_empty() {
            i += index(&mut ranges)?;
            let bytes = ranges.bytes()?;
            self.page[i..i + bytes.len()].copy_from_slice(bytes);
            i += bytes.len();
        }
        if let Some(lsn) = stamp {
            set_u64(self.page, from + LSN_RANGE.start, lsn.0);
        }
        Ok(())
    }

    fn remove(&mut self, slot: usize) -> Result<()> {
        self.slot_in_use(slot)?;
        let node = self.node();
        if slot == 0 && !node.is_leaf() {
            return Err(self.fail("the first child of a node stays"));
        }
        let count = node.count();
        let freed = node.entry_bytes(slot) - SLOT_BYTES;
        let (offset, heap) = (node.slot_offset(slot), node.heap_start());
        if offset == heap {
            set_u16(self.page, at::HEAP, heap + freed);
        } else {
            let garbage = node.garbage() + freed;
            set_u16(self.page, at::GARBAGE, garbage);
        }
        let from = HEADER_BYTES + slot * SLOT_BYTES;
        self.page.copy_within(from + SLOT_BYTES..HEADER_BYTES + count * SLOT_BYTES, from);
        set_u16(self.page, at::COUNT, count - 1);
        Ok(())
    }

    fn remove_many(&mut self, slots: Reader<'_>) -> Result<()> {
        let (mut slots, mut all, mut slot) = (slots, Vec::new(), 0);
        while !slots.is_empty() {
            let distance = index(&mut slots)?;
            if distance == 0 && !all.is_empty() {
                return Err(self.fail("slots are not ascending"));
            }
            slot += distance;
            self.slot_in_use(slot)?;
            all.push(slot);
        }
        if !self.node().is_leaf() {
            return Err(self.fail("only leaves have dead entries"));
        }
        all.iter().rev().try_for_each(|&slot| self.remove(slot))
    }

    fn truncate(&mut self, keep: usize, high: &[u8]) -> Result<()> {
        let node = self.node();
        let (low, old_prefix_len) = (node.low(), node.prefix_len());
        let inside = node.high().is_none_or(|old| high <= old);
        if keep > node.count() || !inside || (keep == 0 && !node.is_leaf()) {
            return Err(self.fail("split position"));
        }
        let mut fresh = Builder::new(self.page_id, node.tree(), node.level(), low, Some(high))?;
        // The new fences lie between the old ones: their prefix is at least as long, and every key
        // that stays has it.
        let more = low[..fence_prefix_len(low, Some(high))].get(old_prefix_len..);
        let more = more.ok_or_else(|| self.fail("prefix"))?;
        for i in 0..keep {
            let implied = i == 0 && !node.is_leaf();
            let suffix = if implied { Some(&[][..]) } else { node.suffix(i).strip_prefix(more) };
            let suffix = suffix.ok_or_else(|| self.fail("prefix"))?;
            fresh.push(suffix, node.value(i))?;
        }
        *self.page = fresh.page;
        Ok(())
    }

    /// Closes the holes of the heap; everything else stays.
    fn compact(&mut self) {
        let node = self.node();
        let mut fresh = [0; PAGE_BYTES];
        let slots_end = HEADER_BYTES + node.count() * SLOT_BYTES;
        fresh[..slots_end].copy_from_slice(&self.page[..slots_end]);
        let mut heap = PAGE_BYTES;
        for (i, key) in [(at::LOW, node.low()), (at::HIGH, node.high().unwrap_or_default())] {
            heap -= key.len();
            fresh[heap..heap + key.len()].copy_from_slice(key);
            set_u16(&mut fresh, i, heap);
        }
        for i in 0..node.count() {
            let (from, bytes) = (node.slot_offset(i), node.entry_bytes(i) - SLOT_BYTES);
            heap -= bytes;
            fresh[heap..heap + bytes].copy_from_slice(&node.page[from..from + bytes]);
            set_u16(&mut fresh, HEADER_BYTES + i * SLOT_BYTES, heap);
        }
        set_u16(&mut fresh, at::HEAP, heap);
        set_u16(&mut fresh, at::GARBAGE, 0);
        assert!(heap - slots_end <= BODY_BYTES);
        *self.page = fresh;
    }
}
