use crate::db::ddl::sorter::{remove_left, Sorter};
use crate::os::sim::{SimOs, SimRng};
use crate::os::{OpenMode, Os};
use std::path::Path;
use std::sync::Arc;

fn sorted(
    os: &Arc<SimOs>,
    memory_bytes: usize,
    hides: bool,
    pairs: &[(Vec<u8>, Vec<u8>)],
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sorter =
        Sorter::new(Arc::clone(os) as Arc<dyn Os>, Path::new("/data"), 9, memory_bytes)
            .hiding(hides);
    for (key, value) in pairs {
        sorter.push(key, value).unwrap();
    }
    let mut sorted = sorter.finish().unwrap();
    let (mut key, mut value, mut out) = (Vec::new(), Vec::new(), Vec::new());
    while sorted.next(&mut key, &mut value).unwrap() {
        out.push((key.clone(), value.clone()));
    }
    out
}

#[test]
fn gives_all_entries_in_order_and_leaves_no_file() {
    for seed in 0..40 {
        let mut rng = SimRng::new(seed);
        let os = SimOs::new(seed);
        os.create_dir(Path::new("/data")).unwrap();
        let mut bytes = |below: u64| -> Vec<u8> {
            let n = rng.below(below);
            (0..n).map(|_| rng.below(256) as u8).collect()
        };
        let mut pairs: Vec<_> = (0..400).map(|_| (bytes(6), bytes(60))).collect();
        for memory_bytes in [1, 700, 5000, 1 << 20] {
            let mut found = sorted(&os, memory_bytes, seed % 2 == 0, &pairs);
            assert!(found.is_sorted_by(|a, b| a.0 <= b.0), "seed {seed}");
            found.sort();
            pairs.sort();
            assert!(found == pairs, "seed {seed}, {memory_bytes} bytes of memory");
            assert!(os.list(Path::new("/data")).unwrap().is_empty(), "a file was left");
        }
    }
}

#[test]
fn what_a_crash_leaves_goes() {
    let os = SimOs::new(1);
    let dir = Path::new("/data");
    os.create_dir(dir).unwrap();
    for hides in [false, true] {
        let os_of_it = Arc::clone(&os) as Arc<dyn Os>;
        let mut sorter = Sorter::new(os_of_it, dir, 9, 10).hiding(hides);
        sorter.push(b"a key that is known", &[]).unwrap();
        let [path] = &os.list(dir).unwrap()[..] else { panic!("one file") };
        let file = os.open(path, OpenMode::default()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes.windows(5).any(|w| w == b"known"), !hides);
        std::mem::forget(sorter);
        remove_left(&*os, dir).unwrap();
        assert!(os.list(dir).unwrap().is_empty());
    }
}
