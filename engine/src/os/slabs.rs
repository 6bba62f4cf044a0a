//! Memory for buffers of one size that come and go by the thousand: frames of the pool.
//!
//! They lie in slabs of their own, and what is not in use is given back to the system at once. In the heap it
//! would stay: buffers in use lie on both sides of a freed one, and what is allocated in its place comes from the
//! heap of another thread.
//!
//! Safety argument: a slab is mapped once, every byte of it is initialised by the system, and it is unmapped only
//! with `Home`, which each buffer keeps. A place of it is either in `free` or in one buffer: it is taken under the
//! mutex and comes back when its buffer is dropped. So the pointer is unique to the buffer, and slices follow
//! `&`/`&mut self`. Memory that was given back reads as zeroes, which are initialised bytes as well.

use super::aligned::AlignedBuf;
use super::rank::Rank;
use super::sync::{Mutex, Ranked};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// A mapping of its own.
const SLAB_BYTES: usize = 1 << 20;

/// Gives free memory of the heap back to the system, as far as it makes up whole pages. Other threads that allocate
/// wait meanwhile: to be called seldom.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Where buffers of one size come from.
pub struct Slabs(Arc<Home>);

struct Home {
    bytes: usize,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Nobody touches their bytes by these: they are here to be unmapped.
    slabs: Vec<AlignedBuf>,
    free: Vec<NonNull<u8>>,
}

// SAFETY: the places point into the slabs beside them; nothing depends on the thread.
unsafe impl Send for Places {}

/// A buffer; its memory goes back to the system when it is dropped.
pub struct SlabBuf {
    start: NonNull<u8>,
    home: Arc<Home>,
}

// SAFETY: the buffer is the only way to its bytes, and its home is behind a mutex.
unsafe impl Send for SlabBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for SlabBuf {}

impl Slabs {
    /// For buffers of so many bytes, a power of two from a block to a slab.
    pub fn new(bytes: usize) -> Slabs {
        let places = Mutex::ranked(Rank::Slabs, Places::default());
        assert!(bytes.is_power_of_two() && bytes <= SLAB_BYTES, "slabs for {bytes} bytes");
        Slabs(Arc::new(Home { bytes, places }))
    }

    /// A buffer with any bytes in it.
    pub fn take(&self) -> SlabBuf {
        let mut places = self.0.places.lock();
        let start = places.free.pop().unwrap_or_else(|| places.grow(self.0.bytes));
        drop(places);
        SlabBuf { start, home: Arc::clone(&self.0) }
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.0.places.lock().free.len()
    }
}

impl Places {
    /// A new slab: its first place; the others are free.
    fn grow(&mut self, bytes: usize) -> NonNull<u8> {
        let mut slab = AlignedBuf::new(SLAB_BYTES);
        let start = NonNull::from(&mut slab[..]).cast::<u8>();
        self.slabs.push(slab);
        // SAFETY: all places lie in the slab.
        let others = (bytes..SLAB_BYTES).step_by(bytes).map(|at| unsafe { start.add(at) });
        self.free.extend(others.rev());
        start
    }
}

impl Deref for SlabBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for so many initialised bytes while `home` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.home.bytes) }
    }
}

impl DerefMut for SlabBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.home.bytes) }
    }
}

impl Drop for SlabBuf {
    fn drop(&mut self) {
        // It may fail, where pages of the system are larger or all memory is locked: then it stays resident.
        // SAFETY: private memory of the slab that nobody else refers to; it reads as zeroes or as it was.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.home.bytes, libc::MADV_DONTNEED) };
        self.home.places.lock().free.push(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 16 << 10;

    #[test]
    fn buffers_do_not_overlap_and_are_used_again() {
        let slabs = Slabs::new(BYTES);
        let mut all: Vec<SlabBuf> = (0..200).map(|_| slabs.take()).collect();
        for (number, buf) in all.iter_mut().enumerate() {
            assert_eq!((buf.len(), buf.as_ptr() as usize % 4096), (BYTES, 0));
            buf.fill(number as u8);
        }
        for (number, buf) in all.iter().enumerate() {
            assert!(buf.iter().all(|byte| *byte == number as u8));
        }
        let free = slabs.free();
        all.truncate(50);
        assert_eq!(slabs.free(), free + 150);
        drop((0..100).map(|_| slabs.take()).collect::<Vec<_>>());
        assert_eq!(slabs.free(), free + 150, "no new slab");
        assert!(all.iter().enumerate().all(|(number, buf)| buf[BYTES - 1] == number as u8));
        drop(slabs);
        assert_eq!(all[49][0], 49, "a buffer keeps its slab");
    }

    /// By the system's own account, where it gives one.
    #[test]
    fn what_is_dropped_is_not_resident() {
        let slabs = Slabs::new(BYTES);
        let mut all: Vec<SlabBuf> = (0..64).map(|_| slabs.take()).collect();
        all.iter_mut().for_each(|buf| buf.fill(1));
        let start = all[0].as_ptr() as usize;
        let slab = all.iter().map(|buf| buf.as_ptr() as usize).min().unwrap_or(start);
        let mut resident = [0u8; SLAB_BYTES / 4096];
        let mut count = || {
            // SAFETY: the slab is mapped, and the array has a byte for each page of 4 KiB or more.
            let rc = unsafe { libc::mincore(slab as *mut _, SLAB_BYTES, resident.as_mut_ptr()) };
            (rc == 0).then(|| resident.iter().filter(|page| **page & 1 == 1).count())
        };
        assert_eq!(count(), Some(256));
        all.truncate(16);
        assert_eq!(count(), Some(64));
    }
}
