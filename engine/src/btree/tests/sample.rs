use super::*;

/// Keys of two parts: a group in four bytes, and a number in four.
fn ends(key: &[u8], ends: &mut Vec<usize>) {
    ends.extend([4, 8].into_iter().filter(|&end| end <= key.len()));
}

/// A value of 'd' is a dead entry.
fn is_alive(value: &[u8]) -> bool {
    value[0] != b'd'
}

fn tree_of(rows: u32, group: impl Fn(u32) -> u32, value: impl Fn(u32) -> u8) -> Arc<Tree> {
    let tree = Tree::create(new_env(64 << 20), TREE).unwrap();
    for i in 0..rows {
        // In another order than that of the keys.
        let n = (u64::from(i) * 7_368_787 % u64::from(rows)) as u32;
        let mut key = group(n).to_be_bytes().to_vec();
        key.extend_from_slice(&n.to_be_bytes());
        put(&tree, &key, &[value(n); 40]);
    }
    tree
}

fn distinct(tree: &Tree, parts: usize) -> f64 {
    tree.sample_distinct(parts, &ends, 20, &is_alive).unwrap()
}

fn assert_near(found: f64, exact: f64, share: f64) {
    assert!((found - exact).abs() <= exact * share, "{found} for {exact}");
}

#[test]
fn few_values_among_many_rows_are_counted_exactly() {
    for values in [1, 3, 10] {
        let tree = tree_of(60_000, |n| n % values, |_| b'a');
        assert!(tree.check().unwrap().leaves > 200);
        assert_eq!(distinct(&tree, 1), f64::from(values));
        assert_near(distinct(&tree, 2), 60_000.0, 0.15);
    }
}

#[test]
fn many_values_are_estimated() {
    for values in [500, 5_000, 30_000] {
        let tree = tree_of(60_000, |n| n % values, |_| b'a');
        assert_near(distinct(&tree, 1), f64::from(values), 0.25);
    }
}

#[test]
fn values_of_very_different_frequency_are_estimated() {
    // Half of the rows have one value, the others one each.
    let tree = tree_of(60_000, |n| if n % 2 == 0 { 7 } else { 1_000 + n }, |_| b'a');
    assert_near(distinct(&tree, 1), 30_001.0, 0.25);
}

#[test]
fn a_small_tree_is_counted_and_dead_entries_are_not() {
    let tree = tree_of(2_000, |n| n / 10, |n| if n < 1_000 { b'd' } else { b'a' });
    assert_eq!(distinct(&tree, 1), 100.0);
    assert_eq!(distinct(&tree, 2), 1_000.0);
    let size = tree.sample_size(20, &is_alive).unwrap();
    assert_eq!(size.entries, 1_000.0);
    let shape = tree.check().unwrap();
    assert_eq!(size.leaf_pages, shape.leaves as f64);
    assert_eq!(size.pages, (shape.leaves + shape.inner_nodes) as f64);
    let empty = tree_of(0, |n| n, |_| b'a');
    assert_eq!(distinct(&empty, 1), 0.0);
    assert_eq!(empty.sample_size(20, &is_alive).unwrap().entries, 0.0);
}

#[test]
fn size_is_estimated_from_a_part_of_the_leaves() {
    let tree = tree_of(60_000, |n| n, |_| b'a');
    let size = tree.sample_size(20, &is_alive).unwrap();
    assert_near(size.entries, 60_000.0, 0.15);
    assert_eq!(size.leaf_pages, tree.check().unwrap().leaves as f64);
}

#[test]
fn keys_whose_parts_are_not_found_count_as_one_part() {
    let tree = tree_of(500, |n| n % 3, |_| b'a');
    let nothing = |_: &[u8], _: &mut Vec<usize>| {};
    assert_eq!(tree.sample_distinct(1, &nothing, 20, &is_alive).unwrap(), 500.0);
}

#[test]
fn a_range_of_many_leaves_is_estimated() {
    let tree = tree_of(60_000, |n| n, |_| b'a');
    for (from, to) in [(0u32, 60_000u32), (100, 400), (30_000, 36_000), (59_000, 60_000)] {
        let (low, high) = (from.to_be_bytes(), to.to_be_bytes());
        let found = tree.estimate_range(Bound::Included(&low), Bound::Excluded(&high)).unwrap();
        assert_near(found.entries as f64, f64::from(to - from), 0.15);
        assert_ne!(found.first_leaf, found.last_leaf);
    }
    let one = 500u32.to_be_bytes();
    let found = tree.estimate_range(Bound::Included(&one), Bound::Included(&one)).unwrap();
    assert_eq!((found.entries, found.first_leaf == found.last_leaf), (0, true));
}
