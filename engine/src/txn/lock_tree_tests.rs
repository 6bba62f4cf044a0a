use super::super::lock_key::Span;
use super::*;
use crate::os::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Bounds lie on even points only, so odd points stand for the gaps.
const POINTS: u8 = 24;

fn random_bound(rng: &mut SimRng) -> Bound<[u8; 1]> {
    let key = [rng.below(u64::from(POINTS / 2)) as u8 * 2];
    match rng.below(8) {
        0 => Bound::Unbounded,
        1..4 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn as_slice(bound: &Bound<[u8; 1]>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn grant(owner: u32, mode: Mode) -> Grant {
    Grant { owner, explicit: Some(mode), ..Grant::default() }
}

type Range = (Bound<[u8; 1]>, Bound<[u8; 1]>);

/// What a node holds, beside the tree.
struct Known {
    span: Option<Range>,
    key: u8,
    mode: Mode,
}

impl Known {
    fn covers(&self, point: u8) -> bool {
        self.span.as_ref().is_some_and(|(low, high)| {
            std::ops::RangeBounds::<[u8]>::contains(&(as_slice(low), as_slice(high)), &[point][..])
        })
    }
}

fn found(tree: &LockTree, key: &[u8], exclusive: bool) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let _ = tree.spans_over(key, exclusive, &mut |grant| {
        assert!(found.insert(grant.owner), "met twice");
        ControlFlow::Continue(())
    });
    found
}

fn check(tree: &LockTree, known: &BTreeMap<NodeId, Known>) {
    assert_eq!(tree.len(), known.len());
    for point in 0..POINTS {
        let row = known.iter().find(|(_, k)| k.span.is_none() && k.key == point);
        assert_eq!(tree.row(&[point]), row.map(|(&id, _)| id));
        for exclusive in [false, true] {
            let over = known.iter().filter(|(_, k)| k.covers(point));
            let over = over.filter(|(_, k)| !exclusive || k.mode == Mode::Exclusive);
            let expected: BTreeSet<u32> = over.map(|(&id, _)| tree.node(id).first.owner).collect();
            assert_eq!(found(tree, &[point], exclusive), expected);
        }
    }
}

#[test]
fn the_tree_agrees_with_a_list() {
    for seed in 0..300 {
        let mut rng = SimRng::new(seed);
        let mut tree = LockTree::default();
        let mut known: BTreeMap<NodeId, Known> = BTreeMap::new();
        for owner in 0..60 {
            let mode = if rng.chance(50) { Mode::Shared } else { Mode::Exclusive };
            let (low, high) = (random_bound(&mut rng), random_bound(&mut rng));
            let span = Span::of(as_slice(&low), as_slice(&high));
            let key = rng.below(u64::from(POINTS)) as u8;
            let some = known.keys().nth(rng.below(known.len().max(1) as u64) as usize).copied();
            match (rng.below(10), some, span) {
                (0..=2, Some(id), _) => {
                    tree.remove(id);
                    known.remove(&id);
                }
                (3, Some(id), _) if known[&id].span.is_some() => {
                    let node = known.get_mut(&id).unwrap();
                    let (low, _) = node.span.unwrap();
                    node.span = Some((low, Bound::Unbounded));
                    let all = Span::of(as_slice(&low), Bound::Unbounded).unwrap();
                    tree.set_high(id, all.high);
                }
                (4..=6, _, _) if tree.row(&[key]).is_none() => {
                    let id = tree.insert(Cut::below(&[key]), None, grant(owner, mode));
                    known.insert(id, Known { span: None, key, mode });
                }
                (_, _, Some(span)) => {
                    let id = tree.insert(span.low, Some(span.high), grant(owner, mode));
                    known.insert(id, Known { span: Some((low, high)), key, mode });
                }
                _ => {}
            }
            check(&tree, &known);
        }
    }
}

/// A search must not grow with the number of holds that it does not meet.
#[test]
fn the_tree_stays_shallow() {
    fn depth(tree: &LockTree, at: NodeId) -> usize {
        if at == NONE {
            return 0;
        }
        let node = tree.node(at);
        1 + depth(tree, node.left).max(depth(tree, node.right))
    }
    let mut tree = LockTree::default();
    let count = 100_000_u32;
    let ids: Vec<NodeId> = (0..count)
        .map(|n| tree.insert(Cut::below(&n.to_be_bytes()), None, grant(n, Mode::Shared)))
        .collect();
    assert!(depth(&tree, tree.root.0) < 60, "{}", depth(&tree, tree.root.0));
    for id in ids {
        tree.remove(id);
    }
    assert_eq!(tree.len(), 0);
    let again = tree.insert(Cut::below(b"x"), None, grant(1, Mode::Shared));
    assert!(again < count, "places are used again");
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
