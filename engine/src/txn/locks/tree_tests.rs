use super::super::key::Span;
use super::super::shape::CHILDREN;
use super::*;
use crate::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

/// Bounds lie on even points only, so odd points stand for the gaps.
const POINTS: u64 = 2_000;

type Point = Vec<u8>;
type Range = (Bound<Point>, Bound<Point>);

/// What keys look like. Those of more than 22 bytes lie outside their entry.
#[derive(Clone, Copy)]
enum Style {
    Short,
    Long,
    Mixed,
}

impl Style {
    /// The order of points is that of their numbers.
    fn point(self, number: u64) -> Point {
        let number = (number as u16).to_be_bytes();
        match self {
            Style::Short => number.to_vec(),
            Style::Long => [&[7; 30][..], &number].concat(),
            Style::Mixed => [&number[..], &vec![3; usize::from(number[1]) % 40]].concat(),
        }
    }

    fn any(self, rng: &mut SimRng) -> Point {
        self.point(rng.below(POINTS))
    }

    /// Many short ones, some long ones.
    fn range(self, rng: &mut SimRng) -> Range {
        let low = rng.below(POINTS / 2);
        let reach = if rng.chance(10) { POINTS } else { 8 };
        let high = low + rng.below(reach);
        let bound = |rng: &mut SimRng, at: u64| match rng.below(40) {
            0 => Bound::Unbounded,
            1..20 => Bound::Included(self.point(at * 2)),
            _ => Bound::Excluded(self.point(at * 2)),
        };
        (bound(rng, low), bound(rng, high))
    }
}

fn as_slices((low, high): &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]))
}

fn span_of(range: &Range) -> Option<Span> {
    let (low, high) = as_slices(range);
    Span::of(low, high)
}

fn covers(range: &Range, point: &[u8]) -> bool {
    RangeBounds::<[u8]>::contains(&as_slices(range), point)
}

fn grant(mode: LockMode) -> Grant {
    Grant { explicit: Some(mode), ..Grant::default() }
}

/// What the tree should hold. An owner has rows, or one span.
#[derive(Default)]
struct Known {
    rows: BTreeMap<(Point, u32), LockMode>,
    spans: BTreeMap<u32, (Range, LockMode)>,
}

impl Known {
    fn check(&self, tree: &LockTree, point: &Point) {
        let mut found = BTreeMap::new();
        let _ = tree.holds_of_row(point, &mut |owner, mode| {
            assert!(found.insert(owner, mode).is_none(), "met twice");
            ControlFlow::Continue(())
        });
        let expected = self.rows.range((point.clone(), 0)..=(point.clone(), u32::MAX));
        assert_eq!(found, expected.map(|((_, owner), &mode)| (*owner, mode)).collect());
        for owner in 0..ROW_OWNERS {
            assert_eq!(tree.row(point, owner).is_some(), found.contains_key(&owner));
        }
        for exclusive in [false, true] {
            let mut found = BTreeSet::new();
            let _ = tree.spans_over(point, exclusive, &mut |owner| {
                assert!(found.insert(owner), "met twice");
                ControlFlow::Continue(())
            });
            let over = self.spans.iter().filter(|(_, (range, _))| covers(range, point));
            let over = over.filter(|(_, (_, mode))| !exclusive || *mode == LockMode::Exclusive);
            assert_eq!(found, over.map(|(&owner, _)| owner).collect());
        }
    }
}

const ROW_OWNERS: u32 = 6;

struct Walk {
    tree: LockTree,
    known: Known,
    rng: SimRng,
    style: Style,
}

impl Walk {
    fn step(&mut self, owner: u32, grows: bool) {
        let mode = if self.rng.chance(50) { LockMode::Shared } else { LockMode::Exclusive };
        match self.rng.below(10) {
            0..3 if grows => self.lock_row(mode),
            3..7 if grows => {
                let range = self.style.range(&mut self.rng);
                if let Some(Span { low, high }) = span_of(&range) {
                    self.tree.insert_span(&low, high, mode, owner);
                    self.known.spans.insert(owner, (range, mode));
                }
            }
            0..5 => self.release_rows(),
            5..9 => self.release_span(owner),
            _ => self.grow_span(owner),
        }
    }

    fn lock_row(&mut self, mode: LockMode) {
        let (key, owner) = (self.style.any(&mut self.rng), self.rng.below(6) as u32);
        if self.known.rows.insert((key.clone(), owner), mode).is_none() {
            assert!(self.tree.row(&key, owner).is_none());
            self.tree.insert_row(&key, owner, grant(mode));
        } else {
            *self.tree.row_mut(&key, owner).unwrap() = grant(mode);
        }
    }

    /// One row anywhere, or all that an owner has in one leaf.
    fn release_rows(&mut self) {
        let mut gone = Gone::default();
        let from = (self.style.any(&mut self.rng), 0);
        let next = self.known.rows.range(from..).next().map(|(at, _)| at.clone());
        if let Some((key, owner)) = next {
            self.known.rows.remove(&(key.clone(), owner));
            self.tree.remove_row(&key, owner, &mut gone);
            assert_eq!(&*gone.keys.pop().unwrap(), &key[..]);
        }
        if self.rng.chance(3) {
            let owner = self.rng.below(u64::from(ROW_OWNERS)) as u32;
            let mut keys = Vec::new();
            self.tree.take_rows(owner, &mut keys, &mut gone);
            for key in keys {
                assert!(self.known.rows.remove(&(key.to_vec(), owner)).is_some());
            }
        }
    }

    fn release_span(&mut self, owner: u32) {
        let old = self.rng.below(u64::from(owner) + 1) as u32;
        let Some((&owner, _)) = self.known.spans.range(old..).next() else { return };
        let (range, mode) = self.known.spans.remove(&owner).unwrap();
        let Span { low, high } = span_of(&range).unwrap();
        let mut gone = Gone::default();
        assert!(self.tree.remove_span(&low, mode, owner, &mut gone) == high);
        assert!(gone.keys.pop().unwrap() == *low.key());
    }

    fn grow_span(&mut self, owner: u32) {
        let old = self.rng.below(u64::from(owner) + 1) as u32;
        let Some((owner, (range, mode))) = self.known.spans.range_mut(old..).next() else {
            return;
        };
        let Span { low, high } = span_of(range).unwrap();
        range.1 = match self.rng.chance(50) {
            true => Bound::Unbounded,
            false => Bound::Included(self.style.point(POINTS)),
        };
        let wider = span_of(range).unwrap();
        if wider.high < high {
            range.1 = Bound::Unbounded;
        }
        let wider = span_of(range).unwrap();
        assert!(self.tree.set_high(&low, *mode, *owner, wider.high) == high);
    }

    fn release_all(&mut self) {
        let mut gone = Gone::default();
        for (owner, (range, mode)) in std::mem::take(&mut self.known.spans) {
            self.tree.remove_span(&span_of(&range).unwrap().low, mode, owner, &mut gone);
        }
        for owner in 0..ROW_OWNERS {
            while self.tree.take_rows(owner, &mut Vec::new(), &mut gone) {}
            self.tree.forget_owner(owner, &mut gone);
        }
        audit(&self.tree);
        assert_eq!((self.tree.len(), self.tree.spans(), self.tree.depth), (0, 0, 0));
        assert!(self.tree.capacity() <= 2 * LEAF_ENTRIES);
    }
}

#[test]
fn the_tree_agrees_with_a_list() {
    let mut deepest = 0;
    for seed in 0..12 {
        let style = [Style::Short, Style::Long, Style::Mixed][seed as usize % 3];
        let (tree, known) = (LockTree::default(), Known::default());
        let mut walk = Walk { tree, known, rng: SimRng::new(seed), style };
        for owner in ROW_OWNERS..8_000 {
            walk.step(owner, owner / 2_500 % 2 == 0);
            deepest = deepest.max(walk.tree.depth);
            if owner % 16 == 0 {
                audit(&walk.tree);
                for _ in 0..3 {
                    let point = style.any(&mut walk.rng);
                    walk.known.check(&walk.tree, &point);
                }
            }
        }
        walk.release_all();
    }
    assert!(deepest >= 2, "inner nodes are split, too: {deepest}");
}

/// What must hold in every node.
fn audit(tree: &LockTree) {
    let mut seen = Seen::default();
    audit_below(tree, tree.root, tree.depth, &mut seen);
    assert_eq!((tree.len(), tree.spans()), (seen.entries, seen.spans));
    let listed: usize = tree.rows_of.iter().map(Vec::len).sum();
    assert_eq!(listed, seen.members, "no leaf is listed in vain");
}

#[derive(Default)]
struct Seen {
    last: Option<Position>,
    entries: usize,
    spans: usize,
    members: usize,
}

/// Answers the ends of the node, to compare with what its parent says.
fn audit_below(tree: &LockTree, node: Id, depth: u32, seen: &mut Seen) -> Reach {
    if depth == 0 {
        audit_leaf(tree, node, seen);
        return tree.reach_of(node, 0);
    }
    let mut until = [NONE; 2];
    let children = &tree.inners[node];
    assert!(!children.is_empty() && children.len() <= CHILDREN);
    for (index, child) in children.iter().enumerate() {
        if index > 0 {
            assert!(seen.last.as_ref().is_none_or(|last| last.at() < child.low.at()));
            assert!(first_of(tree, child.node, depth - 1) >= child.low.at());
        }
        let own = audit_below(tree, child.node, depth - 1, seen);
        for kind in [0, 1] {
            until[kind] = tree.further(until[kind], own[kind]);
            let ends = |id: SpanId| (id != NONE).then(|| tree.ends[id].clone());
            assert!(ends(own[kind]) == ends(child.own[kind]));
            assert!(ends(until[kind]) == ends(child.until[kind]));
        }
    }
    until
}

fn first_of(tree: &LockTree, node: Id, depth: u32) -> At<'_> {
    match depth {
        0 => tree.leaves[node].entries()[0].at(),
        _ => first_of(tree, tree.inners[node][0].node, depth - 1),
    }
}

fn audit_leaf(tree: &LockTree, id: Id, seen: &mut Seen) {
    let leaf = &tree.leaves[id];
    assert!(!leaf.entries().is_empty() || tree.depth == 0);
    let (mut furthest, mut rows) = (NONE, BTreeMap::new());
    for entry in leaf.entries() {
        assert!(seen.last.as_ref().is_none_or(|last| last.at() < entry.at()), "in order");
        seen.last = Some(entry.at().to_position());
        seen.entries += 1;
        match entry.hold {
            Hold::Row(_) => *rows.entry(entry.owner).or_insert(0) += 1,
            Hold::Span { end, reach, .. } => {
                furthest = tree.further(furthest, end);
                assert!(tree.ends[reach] == tree.ends[furthest]);
                seen.spans += 1;
            }
        }
    }
    for member in &leaf.members {
        assert_eq!(rows.remove(&member.owner), Some(member.rows));
        assert_eq!(tree.rows_of[member.owner as usize][member.place as usize], id);
        seen.members += 1;
    }
    assert!(rows.is_empty());
}

fn lock_rows(tree: &mut LockTree, owner: u32, keys: impl Iterator<Item = Vec<u8>>) {
    keys.for_each(|key| tree.insert_row(&key, owner, grant(LockMode::Shared)));
}

/// Answers the keys, and what goes with them.
fn release_rows(tree: &mut LockTree, owner: u32) -> (Vec<Key>, Gone) {
    let (mut keys, mut gone) = (Vec::new(), Gone::default());
    while tree.take_rows(owner, &mut keys, &mut gone) {}
    tree.forget_owner(owner, &mut gone);
    (keys, gone)
}

fn in_order(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| n.to_be_bytes().to_vec())
}

/// Scans leave full leaves.
#[test]
fn leaves_are_full_after_scans() {
    let count = 100_000_u32;
    let keys: [fn(u32) -> u32; 3] = [|n| n, |n| 100_000 - n, |n| n.wrapping_mul(0x9e37_79b1)];
    let mut tree = LockTree::default();
    for (key, at_most) in keys.into_iter().zip([101, 101, 160]) {
        lock_rows(&mut tree, 0, (0..count).map(|n| key(n).to_be_bytes().to_vec()));
        assert!(tree.capacity() * 100 <= count as usize * at_most, "{}", tree.capacity());
        let _ = release_rows(&mut tree, 0);
        assert_eq!((tree.len(), tree.depth), (0, 0));
    }
}

/// The end of an owner gives memory back, also while others hold locks in the tree.
#[test]
fn memory_follows_the_locks() {
    for (step, at_most) in [(100_000, 64), (1_000, 400), (100, 4_000), (16, 25_000)] {
        let mut tree = LockTree::default();
        lock_rows(&mut tree, 0, in_order(100_000));
        lock_rows(&mut tree, 1, in_order(100_000).step_by(step));
        let (keys, gone) = release_rows(&mut tree, 0);
        assert_eq!(keys.len(), 100_000);
        assert!(tree.capacity() <= at_most, "{} for {} locks", tree.capacity(), tree.len());
        assert!(gone.leaves.len() * LEAF_ENTRIES >= 100_000 - at_most);
        assert!(gone.lists[0].capacity() >= 100_000 / LEAF_ENTRIES, "the list of its leaves");
        audit(&tree);
        let depth = if tree.capacity() > 1_000 { 2 } else { 1 };
        assert!(tree.depth <= depth, "inner nodes are joined, too: {}", tree.depth);
    }
}

/// The same lock by lock.
#[test]
fn memory_follows_rows_that_are_given_up() {
    let mut tree = LockTree::default();
    lock_rows(&mut tree, 0, in_order(50_000));
    for n in (0..50_000_u32).filter(|n| n % 40 != 0) {
        let key = (n * 7_919 % 50_000).to_be_bytes();
        tree.remove_row(&key, 0, &mut Gone::default());
    }
    audit(&tree);
    assert!(tree.capacity() <= 4 * tree.len(), "{} for {} locks", tree.capacity(), tree.len());
}

fn count_lows(tree: &LockTree, node: Id, depth: u32, counts: &dyn Fn(&[u8]) -> bool) -> usize {
    if depth == 0 {
        return 0;
    }
    let below = |child: &Child| count_lows(tree, child.node, depth - 1, counts);
    let own = |child: &Child| usize::from(counts(child.low.at().key));
    tree.inners[node].iter().map(|child| own(child) + below(child)).sum()
}

/// An inner node whose first child went begins before the low end of its present first child. So
/// does that child once the node has joined another.
#[test]
fn a_joined_node_begins_where_it_began() {
    let key = |n: u32| n.to_be_bytes();
    let in_node = (LEAF_ENTRIES * CHILDREN) as u32;
    let mut tree = LockTree::default();
    lock_rows(&mut tree, 0, in_order(3 * in_node));
    let remove = |tree: &mut LockTree, rows: std::ops::Range<u32>| {
        rows.for_each(|n| tree.remove_row(&key(n), 0, &mut Gone::default()));
    };
    let leaf = LEAF_ENTRIES as u32;
    remove(&mut tree, in_node..in_node + leaf);
    lock_rows(&mut tree, 0, in_order(in_node + 10).skip(in_node as usize));
    assert_eq!(tree.inners[tree.root].len(), 3);
    remove(&mut tree, 4 * leaf..in_node);
    remove(&mut tree, in_node + 3 * leaf..2 * in_node);
    assert_eq!(tree.inners[tree.root].len(), 2, "two have joined");
    audit(&tree);
    for n in (0..4 * leaf).chain(in_node..in_node + 10).chain(in_node + leaf..in_node + 3 * leaf) {
        assert!(tree.row(&key(n), 0).is_some(), "row {n}");
    }
}

/// Long keys lie in memory of their own. None of it is freed inside: the caller holds a mutex.
#[test]
fn every_long_key_is_handed_out() {
    let is_long = |key: &[u8]| key.len() > 22;
    let mut tree = LockTree::default();
    lock_rows(&mut tree, 0, in_order(10_000).map(|n| [&[7; 30][..], &n].concat()));
    let made = count_lows(&tree, tree.root, tree.depth, &is_long);
    assert!(made > 10_000 / LEAF_ENTRIES, "also to tell the leaves apart: {made}");
    let (keys, gone) = release_rows(&mut tree, 0);
    assert_eq!(keys.len(), 10_000);
    let inner = gone.inners.iter().flatten().map(|child| &child.low);
    let lows = gone.lows.iter().chain(inner).filter(|low| is_long(low.at().key));
    assert_eq!(lows.count(), made);
}

/// What a lock of a row takes: the documents say so.
#[test]
fn an_entry_is_40_bytes() {
    assert_eq!(size_of::<LockEntry>(), 40);
}

#[test]
fn keys_and_spans_keep_the_order_of_bytes() {
    let long = [7_u8; 40];
    let keys: [&[u8]; 6] = [b"", b"a", b"a\0", b"b", &long[..22], &long];
    for a in keys {
        for b in keys {
            assert_eq!(Key::from(a).cmp(&Key::from(b)), a.cmp(b));
        }
        assert_eq!(&*Key::from(a), a);
        let alone = Span::of(Bound::Included(a), Bound::Included(a)).unwrap();
        for b in keys {
            assert_eq!(alone.contains(b), a == b);
        }
        assert!(Span::of(Bound::Excluded(a), Bound::Included(a)).is_none());
        assert!(Span::of(Bound::Included(a), Bound::Excluded(a)).is_none());
        assert!(Span::of(Bound::Unbounded, Bound::Unbounded).unwrap().contains(a));
    }
}
