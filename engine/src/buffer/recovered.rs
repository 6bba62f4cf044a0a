//! Pages that recovery left for later: which of them come next, and several of them by one read.

use super::owed_pages::OwedPage;
use super::pool::Pool;
use super::table::SHARDS;
use crate::base::{PageId, Result, TreeId};
use crate::os::planted::{self, Bug};
use crate::os::SIMULATED;
use crate::store::Stretch;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

/// Pages with so many ids in a row are put into the order of the file together.
const ORDERED_IDS: u64 = if SIMULATED { 32 } else { 1 << 16 };

impl Pool {
    /// Up to `limit` pages of trees below `end` that recovery found, each time the next ones, round
    /// and round.
    pub fn next_owed(&self, limit: usize, end: TreeId) -> Vec<(PageId, TreeId)> {
        let mut found: Vec<(PageId, TreeId)> = Vec::new();
        let known = match end.0 <= self.first_owing_tree.load(Relaxed) {
            true => &self.owed.recovered_own,
            false => &self.owed.recovered,
        };
        if known.load(SeqCst) == 0 {
            return found;
        }
        let last = PageId(self.owed.cursor.load(Relaxed));
        let home = last.0 as usize % SHARDS;
        let others = (1..SHARDS).map(|n| (home + n, (Unbounded, Unbounded)));
        let spans = std::iter::once((home, (Excluded(last), Unbounded))).chain(others);
        for (n, span) in spans.chain(std::iter::once((home, (Unbounded, Included(last))))) {
            let shard = self.table.nth(n);
            let wanted = shard.owed.pages.range(span).filter(|(_, o)| o.recovered && o.tree < end);
            let left = limit - found.len();
            found.extend(wanted.take(left).map(|(&page, owed)| (page, owed.tree)));
            if found.len() >= limit {
                break;
            }
        }
        if let Some((last, _)) = found.last() {
            self.owed.cursor.store(last.0, Relaxed);
        }
        found
    }

    /// Up to `limit` pages that recovery found, the next ones in the order of the file: those that
    /// [`Pool::pay_together`] reads together. Round and round.
    pub fn next_in_file(&self, limit: usize) -> Vec<(PageId, TreeId)> {
        while self.recovered_pages() > 0 {
            let mut next = self.owed.file_order.take(limit);
            if next.is_empty() {
                next = self.put_in_order();
                let rest = next.split_off(limit.min(next.len()));
                self.owed.file_order.put(rest);
            }
            next.retain(|&(page, _)| self.is_owed(page));
            if !next.is_empty() {
                return next;
            }
        }
        Vec::new()
    }

    /// Recovered pages of the next ids, in the order of the file. One whose image has all changes is settled by
    /// that.
    fn put_in_order(&self) -> Vec<(PageId, TreeId)> {
        let mut found = Vec::new();
        while found.is_empty() {
            let after = PageId(self.owed.file_order.end.load(Relaxed));
            let Some(from) = self.first_recovered(after).or(self.first_recovered(PageId::ZERO))
            else {
                return found;
            };
            let to = PageId(from.0.saturating_add(ORDERED_IDS));
            self.owed.file_order.end.store(to.0, Relaxed);
            for n in 0..SHARDS {
                let shard = self.table.nth(n);
                let wanted = shard.owed.pages.range(from..to).filter(|(_, owed)| owed.recovered);
                found.extend(wanted.map(|(&page, owed)| (page, owed.tree)));
            }
            // Of one that cannot be looked up, the payment tells.
            found.retain(|&(page, _)| {
                let owed = self.owed_to(page);
                owed.is_some_and(|owed| !self.forget_stored(page, &owed).unwrap_or(false))
            });
        }
        found.sort_by_cached_key(|&(page, _)| self.store.place_in_file(page));
        found
    }

    fn first_recovered(&self, from: PageId) -> Option<PageId> {
        let is_recovered = |entry: &(&PageId, &OwedPage)| entry.1.recovered;
        let first = |n| {
            let shard = self.table.nth(n);
            let found = shard.owed.pages.range(from..).find(is_recovered).map(|(&page, _)| page);
            found
        };
        (0..SHARDS).filter_map(first).min()
    }

    /// As [`Pool::pay`] for each of these pages. Those that lie close to each other in the file, and follow each
    /// other here, come from one read.
    pub fn pay_together(&self, pages: &[(PageId, TreeId)]) -> Vec<Result<()>> {
        let pages: Vec<PageId> = pages.iter().map(|&(page, _)| page).collect();
        let mut paid = Vec::with_capacity(pages.len());
        Stretch::lent(|stretch| {
            while paid.len() < pages.len() {
                let rest = &pages[paid.len()..];
                let run = self.store.plan_stretch(rest, stretch).max(1);
                let mut shared = (run > 1).then_some(&mut *stretch);
                if let Some(stretch) = shared.as_deref_mut() {
                    self.store.load_stretch(stretch);
                }
                let pay = |&page| self.pay_from(page, shared.as_deref_mut());
                paid.extend(rest[..run].iter().map(pay));
            }
        });
        paid
    }

    /// Recovery gathered from the redo point on, whatever the image of a page holds. After this the
    /// page owes what its image lacks, as one that was evicted.
    pub fn trim_recovered(&self, page: PageId) {
        let image = self.image_of(page);
        let mut shard = self.table.shard(page);
        if !shard.owed.pages.get(&page).is_some_and(|owed| owed.recovered) {
            return;
        }
        let Some(mut owed) = self.remove_owed(&mut shard, page) else { return };
        let image = if planted::is(Bug::OlderImagePays) { owed.last() } else { image };
        if owed.last() <= image {
            return;
        }
        if owed.delta.map_or(owed.first, |delta| delta.last) <= image {
            let changes = owed.changes.after(image);
            let Some(first) = changes.first() else { return };
            (owed.first, owed.delta, owed.changes) = (first, None, Arc::new(changes));
        }
        owed.recovered = false;
        self.insert_owed(&mut shard, page, owed);
    }
}
