//! Things of one kind with short names. They lie in chunks that never move: growth copies nothing.

use std::ops::{Index, IndexMut};

pub(super) type Id = u32;
pub(super) const NONE: Id = Id::MAX;

const CHUNK: usize = 16;

pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<Id>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// Things for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    pub(super) fn make(&mut self) -> Id {
        if let Some(id) = self.free.pop() {
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let at = self.chunks.len() - 1;
        self.chunks[at].push(T::default());
        let id = at * CHUNK + self.chunks[at].len() - 1;
        Id::try_from(id).ok().filter(|&id| id != NONE).expect("fewer than 2^32 locks in a tree")
    }

    /// The thing is used again as it is: it must be as good as new.
    pub(super) fn free(&mut self, id: Id) {
        self.free.push(id);
    }
}

impl<T> Index<Id> for Slab<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl<T> IndexMut<Id> for Slab<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}
