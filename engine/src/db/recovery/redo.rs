//! Redo: page changes of the log's tail that the page map does not contain yet.
//!
//! The scan that finds the log's end gathers them by page ([`RedoTail`]), and passes over what a page's
//! image has, where the map knows it without a read. Changes that fit the memory set aside for them are
//! left to the first reader of their page, and to the background ([`Engine::redo_step`]): the engine opens
//! meanwhile. Where memory holds a part of the pages only, pages of tables owe their redo as evicted ones
//! do, until a reader or the redo window wants them. If the memory is too small for all, changes that
//! images hold are forgotten first. If it still is, they are applied in a second pass, a memoryful at a time,
//! by several threads. Pages of the catalog are always brought up to date at once: without
//! it there is nothing to open.

use super::analysis::Analysis;
use crate::base::{Error, Lsn, PageId, Result, TreeId};
use crate::btree::{
    change_creates_page, decode_delta, decode_record, TreeRecord, RECORD_DELTA, RECORD_TREE,
};
use crate::buffer::{Pool, Tail};
use crate::catalog::{CATALOG_TREE, FIRST_USER_TREE};
use crate::db::engine::Engine;
use crate::db::unreadable::{Unreadable, Verdict};
use crate::os::planted::{self, Bug};
use crate::os::rank::Rank;
use crate::os::sync::{self, Mutex, Ranked};
use crate::os::SIMULATED;
use crate::store::Store;
use crate::wal::{RecordRef, Wal};
use std::sync::Arc;
use std::time::Duration;

/// Threads that redo together while the engine opens, and pages that one of them takes at a time.
const THREADS: usize = 4;
const BATCH_PAGES: usize = 32;
/// Fewer pages than this are not worth a thread.
const THREAD_PAGES: usize = if SIMULATED { 4 } else { 256 };
/// Pages of one step in the background. Few in the simulator, so that much happens meanwhile.
const STEP_PAGES: usize = if SIMULATED { 3 } else { 64 };
/// Memory for changes that are left for later: so many percent of the pool, which is empty at first.
/// More than pages may owe later, because changes that images hold are among them.
const MEMORY_PERCENT: u64 = 75;
/// The scan goes on while lists, without what they took ahead, take less than this share of the memory.
const SHRUNK_PERCENT: usize = 97;
/// What images hold is forgotten as long as that leaves at most this share of the memory.
const TRIMMED_PERCENT: usize = 90;
/// While the engine opens, pages that cannot be read are tried again after so long.
const RETRY_REST: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 500 });
/// Trees below it are those of the catalog.
const AFTER_CATALOG: TreeId = TreeId(CATALOG_TREE.0 + 1);
/// Trees below it are all trees.
const ALL_TREES: TreeId = TreeId(u32::MAX);

/// Changes from the redo point on, as long as there is memory for them.
pub(crate) struct RedoTail {
    redo_from: Lsn,
    changes: Tail,
    memory_bytes: usize,
    /// The first record that did not fit.
    rest_from: Option<Lsn>,
    /// The first scan of the whole tail is over.
    is_rest: bool,
}

impl RedoTail {
    pub fn new(redo_from: Lsn, pool_bytes: u64, store: &Arc<Store>) -> RedoTail {
        let memory_bytes = (pool_bytes / 100 * MEMORY_PERCENT) as usize;
        RedoTail {
            redo_from,
            changes: Tail::over(store),
            memory_bytes,
            rest_from: None,
            is_rest: false,
        }
    }

    pub fn visit(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        match record.kind {
            RECORD_TREE => self.visit_tree(lsn, &decode_record(record.payload)?),
            RECORD_DELTA if lsn >= self.redo_from => self.visit_delta(lsn, record)?,
            _ => {}
        }
        Ok(())
    }

    /// A record of kind [`RECORD_TREE`].
    pub fn visit_tree(&mut self, lsn: Lsn, record: &TreeRecord<'_>) {
        if lsn < self.redo_from || self.rest_from.is_some() {
            return;
        }
        if self.changes.bytes() >= self.memory_bytes && !self.shrink() {
            self.rest_from = Some(lsn);
            return;
        }
        for (page, change) in record.changes() {
            let creates = change_creates_page(change);
            self.changes.add(record.tree, page, lsn, change, creates);
        }
    }

    /// Gives back what lists took ahead. Answers whether there is room again.
    fn shrink(&mut self) -> bool {
        self.changes.shrink();
        self.changes.bytes() < self.memory_bytes / 100 * SHRUNK_PERCENT
    }

    /// A delta has changes from before the redo point, which must be made before any that the tail has one by
    /// one: so the first scan takes it, whatever the memory. Any other only saves memory.
    fn visit_delta(&mut self, lsn: Lsn, record: RecordRef<'_>) -> Result<()> {
        let found = decode_delta(lsn, record.payload)?;
        let is_needed = found.delta.first < self.redo_from && !planted::is(Bug::DeltaLeftOut);
        if !self.is_rest && (is_needed || self.rest_from.is_none()) {
            self.changes.add_delta(found.tree, found.page, found.delta);
        }
        Ok(())
    }

    /// Forgets what images hold. Answers whether that gave room for more.
    fn trim(&mut self, image_of: impl Fn(PageId) -> Lsn) -> bool {
        self.changes.trim(image_of);
        self.changes.bytes() < self.memory_bytes / 100 * TRIMMED_PERCENT
    }
}

/// A page that could not be brought up to date, for the first reason met.
pub(crate) struct GivenUp {
    pub page: PageId,
    pub tree: TreeId,
    pub error: Error,
}

pub(crate) struct Redo<'a> {
    pool: &'a Arc<Pool>,
    wal: &'a Wal,
    analysis: &'a Analysis,
    progress: Arc<Progress>,
}

impl<'a> Redo<'a> {
    pub fn new(
        pool: &'a Arc<Pool>,
        wal: &'a Wal,
        analysis: &'a Analysis,
        unreadable: Unreadable,
    ) -> Redo<'a> {
        Redo { pool, wal, analysis, progress: Arc::new(Progress::new(unreadable)) }
    }

    /// Applies what must be applied before the engine opens, and owes the rest.
    pub fn run(self, mut tail: RedoTail) -> Result<Vec<GivenUp>> {
        if let Some(from) = tail.rest_from.take() {
            self.redo_rest(&mut tail, from)?;
        }
        self.drop_unwanted(&mut tail);
        self.pool.owe(tail.changes);
        // Pages in memory were redone up to where this part of the tail begins.
        pay(self.pool, self.pool.owed_in_memory(), &self.progress);
        pay_all(self.pool, AFTER_CATALOG, &self.progress)?;
        // Before the first step in the background asks.
        self.pool.refresh_gathers();
        let damage = std::mem::take(&mut *self.progress.damage.lock());
        Ok(damage)
    }

    /// Gathers on from the first record that did not fit, in one pass. Whenever memory is full, what it has is
    /// applied.
    fn redo_rest(&self, tail: &mut RedoTail, from: Lsn) -> Result<()> {
        self.make_room(tail)?;
        tail.is_rest = true;
        self.wal.scan(from, self.wal.end(), &mut |lsn, record| {
            tail.visit(lsn, record)?;
            if tail.rest_from.take().is_none() {
                return Ok(());
            }
            self.make_room(tail)?;
            if planted::is(Bug::RecordWithoutRoomLost) {
                return Ok(());
            }
            tail.visit(lsn, record)
        })
    }

    fn make_room(&self, tail: &mut RedoTail) -> Result<()> {
        self.drop_unwanted(tail);
        if tail.trim(|page| self.pool.image_of(page)) {
            return Ok(());
        }
        self.pool.owe(tail.changes.take());
        pay_all(self.pool, ALL_TREES, &self.progress)
    }

    /// Nobody reads these pages any more.
    fn drop_unwanted(&self, tail: &mut RedoTail) {
        tail.changes.retain(|page, tree| {
            let gone = self.analysis.freed_pages.contains(&page)
                || self.analysis.dropped_trees.contains(&tree);
            !gone && !self.pool.is_given_up(page)
        });
    }
}

/// What the threads that redo together know of each other.
struct Progress {
    damage: Mutex<Vec<GivenUp>>,
    /// The first error, which ends all of them.
    failure: Mutex<Option<Error>>,
    unreadable: Unreadable,
}

impl Progress {
    fn new(unreadable: Unreadable) -> Progress {
        let damage = Mutex::ranked(Rank::RedoProgress, Vec::new());
        Progress { damage, failure: Mutex::ranked(Rank::RedoProgress, None), unreadable }
    }
}

/// Applies all that is owed to trees below `end`, several threads at a time.
fn pay_all(pool: &Arc<Pool>, end: TreeId, progress: &Arc<Progress>) -> Result<()> {
    let mut helpers = Vec::new();
    let pages = pool.next_owed(THREADS * THREAD_PAGES, end).len();
    for _ in 1..THREADS.min(pages / THREAD_PAGES) {
        let (pool, progress) = (Arc::clone(pool), Arc::clone(progress));
        // Without the thread it takes longer.
        helpers.extend(sync::spawn("sluice-redo", move || pay_batches(&pool, end, &progress)));
    }
    pay_batches(pool, end, progress);
    helpers.into_iter().for_each(sync::JoinHandle::join);
    match progress.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn pay_batches(pool: &Pool, end: TreeId, progress: &Progress) {
    loop {
        let batch = pool.next_owed(BATCH_PAGES, end);
        let pages = batch.len();
        if pages == 0 {
            return;
        }
        let refused = pay(pool, batch, progress);
        if progress.failure.lock().is_some() {
            return;
        }
        if refused == pages {
            sync::sleep(RETRY_REST);
        }
    }
}

/// Answers how many pages are to be tried again.
fn pay(pool: &Pool, pages: Vec<(PageId, TreeId)>, progress: &Progress) -> usize {
    let mut refused = 0;
    for (page, tree) in pages {
        let Err(error) = pool.pay(page) else { continue };
        match put_aside(pool, &progress.unreadable, page, tree, error) {
            Aside::Settled => {}
            Aside::GivenUp(given_up) => progress.damage.lock().push(given_up),
            Aside::Later(_) => refused += 1,
            Aside::Failed(error) => {
                progress.failure.lock().get_or_insert(error);
                return refused;
            }
        }
    }
    refused
}

/// What becomes of a page that redo could not bring up to date.
enum Aside {
    /// Somebody else was faster, or nobody wants the page any more.
    Settled,
    GivenUp(GivenUp),
    /// The disk refused to read it, which may pass.
    Later(Error),
    Failed(Error),
}

/// The changes of a damaged page are put aside with it (rules S8): the engine opens, and those that
/// need the page get an error. So are those of a page that the disk refuses to read for long.
fn put_aside(
    pool: &Pool,
    unreadable: &Unreadable,
    page: PageId,
    tree: TreeId,
    error: Error,
) -> Aside {
    if !pool.is_owed(page) {
        return Aside::Settled;
    }
    if !error.is_bad_read() {
        return Aside::Failed(error);
    }
    let error = error.of_page(page);
    match unreadable.judge(&error) {
        Verdict::TryAgain => {
            if planted::is(Bug::UnreadForgetsRedo) {
                pool.forget_owed(tree);
            }
            return Aside::Later(error);
        }
        Verdict::DiskAway => return Aside::Failed(error),
        Verdict::GiveUp if tree < FIRST_USER_TREE => return Aside::Failed(catalog_damaged(&error)),
        Verdict::GiveUp => {}
    }
    match pool.give_up(page, tree) {
        true => Aside::GivenUp(GivenUp { page, tree, error }),
        false => Aside::Settled,
    }
}

impl Engine {
    /// Applies some of what recovery left. Answers whether there may be more to apply now.
    ///
    /// While frames gather their changes, a page of a table only forgets what its image holds: it would
    /// be read, and soon be evicted with the same changes. Trees of the engine itself owe nothing for
    /// long.
    pub(crate) fn redo_step(&self) -> Result<bool> {
        let gathers = self.pool.gathers();
        let pages = match gathers {
            true => self.pool.next_owed(STEP_PAGES, FIRST_USER_TREE),
            false => self.pool.next_in_file(STEP_PAGES),
        };
        if gathers && pages.is_empty() {
            let pages = self.pool.next_owed(STEP_PAGES, ALL_TREES);
            pages.iter().for_each(|&(page, _)| self.pool.trim_recovered(page));
            return Ok(!pages.is_empty());
        }
        let found = !pages.is_empty();
        self.pay_pages(pages)?;
        Ok(found)
    }

    /// Applies what is owed to these pages, to all that can be helped; the first failure of others
    /// is the answer.
    fn pay_pages(&self, pages: Vec<(PageId, TreeId)>) -> Result<()> {
        let mut outcome = Ok(());
        let paid = self.pool.pay_together(&pages);
        for ((page, tree), paid) in pages.into_iter().zip(paid) {
            let Err(error) = paid else { continue };
            match put_aside(&self.pool, &self.unreadable, page, tree, error) {
                Aside::Settled => {}
                Aside::GivenUp(given_up) => self.record_redo_damage(&[given_up])?,
                Aside::Later(error) | Aside::Failed(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Makes redo of some pages begin after `lsn`: those that owe few changes get new deltas in the log, and
    /// others images. Answers whether that were all.
    pub(crate) fn renew_before(&self, lsn: Lsn, budget_pages: usize) -> Result<bool> {
        self.pool.want_images_before(lsn);
        let mut large = Vec::new();
        let owed = self.pool.owed_before(lsn, budget_pages);
        let is_last = owed.len() < budget_pages;
        for (page, tree) in owed {
            // One that cannot be read is tried again as a page that needs an image.
            if !self.pool.renew_owed(page).unwrap_or(false) {
                large.push((page, tree));
            }
        }
        self.write_images(lsn, large, budget_pages).map(|is_written| is_last && is_written)
    }

    /// Writes images of some pages whose redo begins before `lsn`: those of dirty frames, and of
    /// pages that owe changes. Answers whether that were all.
    pub(crate) fn write_images_before(&self, lsn: Lsn, budget_pages: usize) -> Result<bool> {
        self.pool.want_images_before(lsn);
        let owed = self.pool.owed_before(lsn, budget_pages);
        let is_last = owed.len() < budget_pages;
        self.write_images(lsn, owed, budget_pages).map(|is_written| is_last && is_written)
    }

    /// Writes images of these pages, and of dirty frames whose redo begins before `lsn`. Answers whether
    /// none of those is left.
    fn write_images(
        &self,
        lsn: Lsn,
        owed: Vec<(PageId, TreeId)>,
        budget_pages: usize,
    ) -> Result<bool> {
        let paid = self.pay_pages(owed);
        let is_written = self.pool.writeback_before(lsn, budget_pages)?;
        paid?;
        Ok(is_written)
    }
}

/// Names of tables and places of trees stand in the catalog alone, and open transactions may need
/// what stands in the tree of old versions.
pub(crate) fn catalog_damaged(error: &Error) -> Error {
    Error::Refused(format!(
        "the catalog of tables or another tree of the engine itself is damaged or cannot be read \
         ({error}): without it no table can be used; restore the data directory from a backup"
    ))
}
