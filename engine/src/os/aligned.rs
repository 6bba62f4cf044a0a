//! Block-aligned byte buffers for direct I/O.
//!
//! Safety argument: the allocation is made once with the layout kept in `self`, is zeroed (so
//! every byte is initialised), is never resized, and is freed exactly once in `drop` with the same
//! layout. The pointer is unique to the buffer, so handing out slices follows `&`/`&mut self`.

use crate::base::BLOCK_BYTES;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zeroed buffer whose address and length are multiples of [`BLOCK_BYTES`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its bytes; nothing else points to them.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` is rounded up to whole blocks; zero gives one block.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_BYTES);
        let layout = Layout::from_size_align(len, BLOCK_BYTES).expect("length within isize");
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuf { start, layout }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `layout.size()` initialised bytes while `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
