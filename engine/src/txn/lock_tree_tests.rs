use super::super::lock_key::Span;
use super::*;
use crate::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

/// Bounds lie on even points only, so odd points stand for the gaps.
const POINTS: u64 = 2_000;

type Point = [u8; 2];
type Range = (Bound<Point>, Bound<Point>);

fn point(rng: &mut SimRng) -> Point {
    (rng.below(POINTS) as u16).to_be_bytes()
}

/// Many short ones, some long ones.
fn random_range(rng: &mut SimRng) -> Range {
    let low = rng.below(POINTS / 2);
    let reach = if rng.chance(10) { POINTS } else { 8 };
    let high = low + rng.below(reach);
    let bound = |rng: &mut SimRng, at: u64| match rng.below(40) {
        0 => Bound::Unbounded,
        1..20 => Bound::Included((at as u16 * 2).to_be_bytes()),
        _ => Bound::Excluded((at as u16 * 2).to_be_bytes()),
    };
    (bound(rng, low), bound(rng, high))
}

fn span_of((low, high): &Range) -> Option<Span> {
    let slice = |bound: &Bound<Point>| bound.map(|key| key.to_vec());
    let (low, high) = (slice(low), slice(high));
    Span::of(low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]))
}

fn covers((low, high): &Range, point: &Point) -> bool {
    let slice = |bound: &Bound<Point>| bound.map(|key| key.to_vec());
    let (low, high) = (slice(low), slice(high));
    let range = (low.as_ref().map(|key| &key[..]), high.as_ref().map(|key| &key[..]));
    RangeBounds::<[u8]>::contains(&range, &point[..])
}

fn grant(mode: Mode) -> Grant {
    Grant { explicit: Some(mode), ..Grant::default() }
}

/// What the tree should hold. An owner has rows, or one span.
#[derive(Default)]
struct Known {
    rows: BTreeMap<(Point, u32), Mode>,
    spans: BTreeMap<u32, (Range, Mode)>,
}

impl Known {
    fn check(&self, tree: &LockTree, point: Point) {
        let mut found = BTreeMap::new();
        let _ = tree.holds_of_row(&point, &mut |owner, mode| {
            assert!(found.insert((point, owner), mode).is_none(), "met twice");
            ControlFlow::Continue(())
        });
        let expected = self.rows.range((point, 0)..=(point, u32::MAX));
        assert_eq!(found, expected.map(|(&at, &mode)| (at, mode)).collect());
        for &(_, owner) in found.keys() {
            assert!(tree.row(&point, owner).is_some());
        }
        for exclusive in [false, true] {
            let mut found = BTreeSet::new();
            let _ = tree.spans_over(&point, exclusive, &mut |owner| {
                assert!(found.insert(owner), "met twice");
                ControlFlow::Continue(())
            });
            let over = self.spans.iter().filter(|(_, (range, _))| covers(range, &point));
            let over = over.filter(|(_, (_, mode))| !exclusive || *mode == Mode::Exclusive);
            assert_eq!(found, over.map(|(&owner, _)| owner).collect());
        }
    }
}

/// One random step. `grows`: more comes than goes.
fn step(tree: &mut LockTree, known: &mut Known, rng: &mut SimRng, owner: u32, grows: bool) {
    let mode = if rng.chance(50) { Mode::Shared } else { Mode::Exclusive };
    let old = rng.below(u64::from(owner) + 1) as u32;
    match rng.below(10) {
        0..3 if grows => {
            let (key, owner) = (point(rng), rng.below(6) as u32);
            if known.rows.insert((key, owner), mode).is_none() {
                assert!(tree.row(&key, owner).is_none());
                tree.insert_row(&key, owner, grant(mode));
            } else {
                *tree.row_mut(&key, owner).unwrap() = grant(mode);
            }
        }
        3..7 if grows => {
            let range = random_range(rng);
            if let Some(Span { low, high }) = span_of(&range) {
                tree.insert_span(&low, high, mode, owner);
                known.spans.insert(owner, (range, mode));
            }
        }
        0..5 => {
            let Some(((key, owner), _)) = known.rows.pop_first() else { return };
            assert_eq!(&*tree.remove_row(&key, owner), &key[..]);
            let owner = rng.below(6) as u32;
            if rng.chance(3) {
                let mut keys = Vec::new();
                tree.take_rows(owner, &mut keys);
                for key in keys {
                    let key = Point::try_from(&*key).unwrap();
                    assert!(known.rows.remove(&(key, owner)).is_some());
                }
            }
        }
        5..9 => {
            let Some((&owner, _)) = known.spans.range(old..).next() else { return };
            let (range, mode) = known.spans.remove(&owner).unwrap();
            let Span { low, high } = span_of(&range).unwrap();
            assert!(tree.remove_span(&low, mode, owner).1 == high);
        }
        _ => {
            let Some((owner, (range, mode))) = known.spans.range_mut(old..).next() else { return };
            let Span { low, high } = span_of(range).unwrap();
            range.1 = Bound::Unbounded;
            let all = span_of(range).unwrap();
            assert!(tree.set_high(&low, *mode, *owner, all.high) == high);
        }
    }
}

#[test]
fn the_tree_agrees_with_a_list() {
    let mut deepest = 0;
    for seed in 0..12 {
        let mut rng = SimRng::new(seed);
        let (mut tree, mut known) = (LockTree::default(), Known::default());
        for owner in 6..8_000 {
            step(&mut tree, &mut known, &mut rng, owner, owner / 2_500 % 2 == 0);
            deepest = deepest.max(tree.depth);
            if owner % 16 == 0 {
                audit(&tree);
                (0..3).for_each(|_| known.check(&tree, point(&mut rng)));
            }
        }
        let rest: Vec<_> = known.spans.into_iter().collect();
        for (owner, (range, mode)) in rest {
            tree.remove_span(&span_of(&range).unwrap().low, mode, owner);
        }
        for owner in 0..6 {
            while tree.take_rows(owner, &mut Vec::new()) {}
        }
        audit(&tree);
        assert_eq!((tree.len(), tree.spans(), tree.depth), (0, 0, 0));
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

/// Scans leave full leaves, and a leaf that is empty is used again.
#[test]
fn leaves_are_full_after_scans() {
    let count = 100_000_u32;
    let keys: [fn(u32) -> u32; 3] = [|n| n, |n| 100_000 - n, |n| n.wrapping_mul(0x9e37_79b1)];
    let mut tree = LockTree::default();
    for (key, at_most) in keys.into_iter().zip([101, 101, 160]) {
        for n in 0..count {
            tree.insert_row(&key(n).to_be_bytes(), 0, grant(Mode::Shared));
        }
        assert!(tree.capacity() * 100 <= count as usize * at_most, "{}", tree.capacity());
        while tree.take_rows(0, &mut Vec::new()) {}
        assert_eq!((tree.len(), tree.depth), (0, 0));
    }
}

/// What a lock of a row takes: the documents say so.
#[test]
fn an_entry_is_40_bytes() {
    assert_eq!(size_of::<Entry>(), 40);
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
