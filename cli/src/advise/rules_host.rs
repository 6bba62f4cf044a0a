//! Rules about file system and device: W19, W20.

use super::facts::Facts;
use super::Severity::{Note, Warning};
use super::{Advice, Rule};
use crate::host::Mount;

pub const RULES: [Rule; 2] = [w19, w20];

const YEARS_ENOUGH: f64 = 5.0;

/// What the kernel says of the mount that costs a database writes or time.
fn mount_faults(mount: &Mount) -> Vec<String> {
    let mut found = Vec::new();
    let options: Vec<&str> = mount.options.split(',').collect();
    if options.contains(&"data=journal") {
        found.push("data=journal writes everything twice".to_string());
    }
    if matches!(mount.kind.as_str(), "nfs" | "nfs4" | "cifs" | "overlay") {
        found.push(format!("the data is on {}", mount.kind));
    }
    // XFS calls it wsync, others dirsync; "ro,sync" and the like are of the mount as a whole.
    let slow = [
        ("sync", "every write waits for the disk"),
        ("dirsync", "every change of a directory waits for the disk"),
        ("wsync", "every change of a directory waits for the disk"),
        ("nodelalloc", "files are laid out without looking ahead"),
    ];
    for (option, why) in slow.iter().filter(|(option, _)| options.contains(option)) {
        found.push(format!("mounted with {option}: {why}"));
    }
    // The kernel names each way to keep times of access but this one.
    if mount.is_native() && !["noatime", "relatime"].iter().any(|way| options.contains(way)) {
        found.push("mounted with strictatime: every read writes the time of access".to_string());
    }
    if options.contains(&"nobarrier") || options.contains(&"barrier=0") {
        found.push("barriers are off: a power cut can lose what was flushed".to_string());
    }
    found
}

fn w19(facts: &Facts) -> Option<Advice> {
    let mut found = facts.mount.as_ref().map(mount_faults).unwrap_or_default();
    let mut advice = Advice::new("W19", Warning, 0.3, "The file system works against the database");
    if let Some((free, all)) = facts.space.filter(|(_, all)| *all > 0) {
        let share = free as f64 / all as f64;
        if share < 0.1 {
            found.push(format!("{:.0} % of the file system are free, which makes drives slow and stops the server when none are left", share * 100.0));
        }
    }
    if facts.trimmed == Some(false) && facts.is_ssd() == Some(true) {
        found.push(
            "nothing tells the drive what is free (no mount option discard, no fstrim): it copies \
             deleted data when it cleans up"
                .to_string(),
        );
        advice = advice.change("systemctl enable --now fstrim.timer");
    }
    if facts.probe.as_ref().is_some_and(|p| !p.direct_io) {
        found.push("the file system takes no direct I/O".to_string());
    }
    (!found.is_empty()).then(|| {
        advice
            .because(found.join("; "))
            .expect("fewer bytes and steadier latency")
            .change("ext4 or XFS on a local device, default journal mode, at least 15 % free")
            .dynamic(false)
    })
}

fn w20(facts: &Facts) -> Option<Advice> {
    let endurance = facts.endurance_bytes?;
    let per_day = facts.device?.written_bytes as f64 / facts.seconds.max(0.001) * 86_400.0;
    let years = endurance / per_day.max(1.0) / 365.0;
    (years < YEARS_ENOUGH).then(|| {
        Advice::new("W20", if years < 1.0 { Warning } else { Note }, 0.3, "The drive wears out early")
            .because(format!("{:.1} GB a day at the pace of this sample; {:.1} TB last {years:.1} years", per_day / 1e9, endurance / 1e12))
            .expect("a life longer by the share of bytes saved, if this sample is typical")
            .change("write less: see the advice on redo, doublewrite and compression; sluice writes shows the causes")
    })
}
