//! Things of one kind with short names. They lie in chunks that never move: growth copies nothing.

use std::ops::{Index, IndexMut};

pub(super) type Id = u32;
pub(super) const NONE: Id = Id::MAX;

const CHUNK: usize = 32;

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

    /// Takes the thing out: its name is free.
    pub(super) fn take(&mut self, id: Id) -> T {
        self.free.push(id);
        std::mem::take(&mut self[id])
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

/// Large things, each in memory of its own, which goes with it.
pub(super) struct Boxes<T> {
    slab: Slab<Option<Box<T>>>,
    /// At the edge of a thing the next one comes and goes with each lock: it is kept.
    spare: Option<Box<T>>,
    len: usize,
}

impl<T> Default for Boxes<T> {
    fn default() -> Boxes<T> {
        Boxes { slab: Slab::default(), spare: None, len: 0 }
    }
}

impl<T: Default> Boxes<T> {
    /// Things for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.len + usize::from(self.spare.is_some())
    }

    pub(super) fn make(&mut self) -> Id {
        let id = self.slab.make();
        self.slab[id] = Some(self.spare.take().unwrap_or_default());
        self.len += 1;
        id
    }

    /// The thing goes, or is kept as it is: it must be as good as new.
    pub(super) fn free(&mut self, id: Id) -> Option<Box<T>> {
        self.len -= 1;
        let gone = self.slab.take(id);
        match self.spare {
            None => {
                self.spare = gone;
                None
            }
            Some(_) => gone,
        }
    }

    /// Two things at once.
    pub(super) fn with_two<R>(&mut self, a: Id, b: Id, f: impl FnOnce(&mut T, &mut T) -> R) -> R {
        let mut other = self.slab[b].take().expect("a thing");
        let answer = f(&mut self[a], &mut other);
        self.slab[b] = Some(other);
        answer
    }
}

impl<T> Index<Id> for Boxes<T> {
    type Output = T;

    fn index(&self, id: Id) -> &T {
        self.slab[id].as_deref().expect("a thing")
    }
}

impl<T> IndexMut<Id> for Boxes<T> {
    fn index_mut(&mut self, id: Id) -> &mut T {
        self.slab[id].as_deref_mut().expect("a thing")
    }
}
