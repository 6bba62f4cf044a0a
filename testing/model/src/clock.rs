//! The frames of the pool: a clock with second chances, as `buffer/evict.rs` turns it.

const NOWHERE: u32 = u32::MAX;

struct Slot {
    page: u32,
    referenced: bool,
}

pub struct Clock {
    capacity: usize,
    slots: Vec<Slot>,
    hand: usize,
    /// The slot of each page.
    place: Vec<u32>,
}

impl Clock {
    pub fn new(capacity: usize) -> Clock {
        assert!(capacity > 0, "a pool has frames");
        Clock { capacity, slots: Vec::with_capacity(capacity), hand: 0, place: Vec::new() }
    }

    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.capacity
    }

    pub fn holds(&self, page: u32) -> bool {
        self.place.get(page as usize).is_some_and(|&at| at != NOWHERE)
    }

    #[cfg(test)]
    pub fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.page)
    }

    /// Whether the page is in memory; if so it gets a second chance.
    pub fn touch(&mut self, page: u32) -> bool {
        match self.place.get(page as usize) {
            Some(&at) if at != NOWHERE => {
                self.slots[at as usize].referenced = true;
                true
            }
            _ => false,
        }
    }

    pub fn insert(&mut self, page: u32) {
        assert!(!self.is_full() && !self.holds(page), "a free frame, and a page without one");
        if self.place.len() <= page as usize {
            self.place.resize(page as usize + 1, NOWHERE);
        }
        self.place[page as usize] = self.slots.len() as u32;
        self.slots.push(Slot { page, referenced: true });
    }

    /// Moves the hand past the next page without a second chance, and answers that page.
    pub fn candidate(&mut self) -> u32 {
        assert!(!self.slots.is_empty(), "a candidate among frames");
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            self.hand += 1;
            if !std::mem::take(&mut slot.referenced) {
                return slot.page;
            }
        }
    }

    /// The last slot takes the place of the one that goes.
    pub fn remove(&mut self, page: u32) {
        let at = std::mem::replace(&mut self.place[page as usize], NOWHERE) as usize;
        self.slots.swap_remove(at);
        if let Some(moved) = self.slots.get(at) {
            self.place[moved.page as usize] = at as u32;
        }
        // The slot that was moved here has not been looked at.
        self.hand = self.hand.min(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(pages: u32) -> Clock {
        let mut clock = Clock::new(pages as usize);
        (0..pages).for_each(|page| clock.insert(page));
        clock
    }

    #[test]
    fn a_page_that_was_touched_is_passed_over_once() {
        let mut clock = full(4);
        // The first round takes all second chances away.
        assert_eq!(clock.candidate(), 0);
        assert!(clock.touch(2) && !clock.touch(4));
        let next: Vec<u32> = (0..5).map(|_| clock.candidate()).collect();
        assert_eq!(next, [1, 3, 0, 1, 2]);
    }

    #[test]
    fn pages_that_nobody_touches_leave_in_about_the_order_they_came() {
        let mut clock = full(100);
        for page in 100..5000 {
            let victim = clock.candidate();
            clock.remove(victim);
            clock.insert(page);
            assert!(page - victim <= 300, "page {victim} is still there at {page}");
        }
    }

    #[test]
    fn places_stay_right_when_slots_move() {
        let mut clock = full(100);
        for page in 100..5000 {
            let victim = clock.candidate();
            clock.remove(victim);
            clock.insert(page);
            assert!(!clock.holds(victim) && clock.holds(page) && clock.is_full());
        }
        let mut pages: Vec<u32> = clock.pages().collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 100);
        assert!(pages.iter().all(|&page| clock.holds(page)));
    }
}
