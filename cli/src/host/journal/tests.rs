use super::*;

/// The second one in the mail "Re: EXT4 IOPS degradation in 5.10 compared to 5.4" of 2023-01-13 to the
/// list of ext4, indented as the kernel does.
const RECORDED: &str = "2143 transactions (2143 requested), each up to 8192 blocks\naverage: \n  \
    0ms waiting for transaction\n  0ms request delay\n  0ms running transaction\n  \
    0ms transaction was being locked\n  0ms flushing data (in ordered mode)\n  \
    20ms logging transaction\n  20731us average transaction commit time\n  \
    51 handles per transaction\n  1 blocks per transaction\n  3 logged blocks per transaction\n";

fn jbd2(transactions: u64, mean_blocks: u64) -> Jbd2 {
    Jbd2 { transactions, mean_blocks }
}

fn mount(kind: &str, options: &str) -> Mount {
    Mount {
        point: PathBuf::from("/data"),
        kind: kind.to_string(),
        options: options.to_string(),
        source: "/dev/x".to_string(),
    }
}

/// A directory that stands for the root of a machine, with this file.
fn root(name: &str, path: &str, text: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("sluice-journal-{name}-{}", std::process::id()));
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    root
}

#[test]
fn a_recorded_ext4() {
    assert_eq!(parse_jbd2(RECORDED), Some(jbd2(2143, 3)));
    let fresh = "0 transactions (0 requested), each up to 8192 blocks\n";
    assert_eq!(parse_jbd2(fresh), Some(jbd2(0, 0)), "before the first there is no mean");
    assert_eq!(parse_jbd2(&RECORDED.replace("logged", "odd")), None);
    assert_eq!(parse_jbd2(""), None);
}

/// The kernel's own sum, as it shows it.
fn shown(transactions: u64, blocks: u64) -> Jbd2 {
    jbd2(transactions, blocks.checked_div(transactions).unwrap_or(0))
}

#[test]
fn the_bounds_hold_whatever_the_kernel_rounded_away() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..20_000 {
        let (old, new) = (random(500), random(50));
        let old_blocks = old + random(9 * old + 1);
        let new_blocks = new + random(30 * new + 1);
        let (then, now) = (shown(old, old_blocks), shown(old + new, old_blocks + new_blocks));
        let logged = now.since(then, 4096).unwrap();
        let bytes = new_blocks * 4096;
        assert!(logged.least_bytes <= bytes && bytes <= logged.most_bytes, "{then:?} {now:?}");
        assert!(logged.least_bytes <= logged.bytes && logged.bytes <= logged.most_bytes);
        assert_eq!(logged.transactions, Some(new));
    }
}

#[test]
fn a_short_interval_of_a_long_mount_is_a_guess_and_says_so() {
    let logged = jbd2(1_000_010, 7).since(jbd2(1_000_000, 7), 4096).unwrap();
    assert_eq!(logged.bytes, 75 * 4096, "ten transactions of 7 to 8 blocks");
    assert_eq!(logged.least_bytes, 10 * 4096, "a commit record each");
    assert_eq!(logged.most_bytes, (7 * 1_000_010 + 1_000_009 - 7 * 1_000_000) * 4096);
    assert!(!logged.is_exact());
    let idle = jbd2(1_000_000, 7).since(jbd2(1_000_000, 7), 4096).unwrap();
    assert!(idle.is_exact() && idle.bytes == 0, "no transaction, no bytes");
}

#[test]
fn a_sum_that_began_anew_is_not_known() {
    assert_eq!(jbd2(3, 7).since(jbd2(9, 7), 4096), None, "mounted again");
    // The sum has wrapped: 600 million transactions of 7 blocks and 100 more.
    assert_eq!(jbd2(600_000_100, 0).since(jbd2(600_000_000, 7), 4096), None);
}

/// Lines of the recorded file of prometheus/procfs, as the test "fixtures OK" of its
/// xfs/parse_test.go names their numbers.
const XFS: &str = "extent_alloc 92447 97589 92448 93751\nabt 0 0 0 0\ntrans 706 944304 0\n\
    ig 185045 58807 0 126238 0 33637 22\nlog 2883 113448 9 17360 739\nrw 107739 94045\n";

#[test]
fn a_recorded_xfs() {
    assert_eq!(parse_xfs(XFS), Some(113_448));
    assert_eq!(parse_xfs("trans 1 2 3\n"), None);
    let logged = xfs_since(113_448, 113_458).unwrap();
    assert!(logged.is_exact() && logged.bytes == 10 * 512, "{logged:?}");
    assert_eq!(xfs_since(u32::MAX, 1).unwrap().bytes, 2 * 512, "32 bits wrap");
    assert_eq!(xfs_since(113_448, 12), None, "cleared by /proc/sys/fs/xfs/stats_clear");
}

#[test]
fn the_journal_of_a_device_is_found() {
    let ext4 = mount("ext4", "rw");
    let root = root("found", "proc/fs/jbd2/dm-1-8/info", RECORDED);
    let journal = Journal::on(&root, "dm-1", &ext4, 1024).unwrap();
    let counters = journal.counters().unwrap();
    let logged = journal.between(JournalCounters::Jbd2(jbd2(2133, 3)), counters).unwrap();
    assert_eq!((logged.transactions, logged.bytes), (Some(10), 35 * 1024));
    // Neither dm-1 nor a partition of another name.
    assert!(Journal::on(&root, "dm-1-8", &ext4, 1024).is_err());
    assert!(Journal::on(&root, "dm", &ext4, 1024).is_err());
    fs::remove_dir_all(root).unwrap();

    let root = self::root("found-xfs", "sys/fs/xfs/vdb/stats/stats", XFS);
    let journal = Journal::on(&root, "vdb", &mount("xfs", "rw,noatime"), 4096).unwrap();
    assert_eq!(journal.counters(), Some(JournalCounters::Xfs(113_448)));
    let why = Journal::on(&root, "vdb", &mount("xfs", "rw,logdev=/dev/vdc"), 4096).unwrap_err();
    assert_eq!(why, "it is on another device");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn where_nothing_is_known_the_reason_is_given() {
    let root = root("none", "sys/fs/ext4/vda/journal_task", "<none>\n");
    fs::create_dir_all(root.join("sys/fs/ext4/vdb")).unwrap();
    fs::write(root.join("sys/fs/ext4/vdb/journal_task"), "417\n").unwrap();
    let why = |device: &str, kind: &str| {
        Journal::on(&root, device, &mount(kind, "rw"), 4096).unwrap_err()
    };
    assert_eq!(why("vda", "ext4"), "it has no journal");
    assert_eq!(why("vdb", "ext4"), "it is on another device");
    assert_eq!(why("vdc", "ext4"), "the kernel does not report it");
    assert_eq!(why("vda", "btrfs"), "btrfs does not report it");
    assert!(why("vda", "xfs").starts_with("cannot read "));
    fs::remove_dir_all(&root).unwrap();
}
