//! Rules about page writes: W03 to W08, W16, W18.

use super::facts::Facts;
use super::Severity::{Critical, Note, Warning};
use super::{Advice, Rule};

pub const RULES: [Rule; 8] = [w03, w04, w05, w06, w07, w08, w16, w18];

/// Rarely is more of use.
const IO_CAPACITY_MOST: f64 = 20_000.0;

fn w03(facts: &Facts) -> Option<Advice> {
    let capacity = facts.variables.number("innodb_io_capacity")?;
    let waits = facts.delta("innodb_buffer_pool_wait_free");
    let measured = facts.probe.as_ref().map(|p| p.random_16k_per_s).filter(|n| *n > 0.0);
    let below = measured.is_some_and(|n| capacity < (n / 2.0).min(1000.0));
    let slow_default = capacity <= 200.0 && facts.is_ssd() == Some(true);
    if waits == 0.0 && !below && !slow_default {
        return None;
    }
    let wanted = if capacity < 1000.0 { 1000.0 } else { (capacity * 2.0).min(IO_CAPACITY_MOST) };
    if waits > 0.0 && wanted <= capacity {
        return None;
    }
    let storage = match (measured, facts.is_ssd()) {
        (Some(n), _) => format!("{n:.0} random 16 KiB writes a second measured by one thread"),
        (None, Some(true)) => "the disk says it does not turn".to_string(),
        _ => "the storage was not measured".to_string(),
    };
    Some(
        Advice::new("W03", Warning, if waits > 0.0 { 0.6 } else { 0.3 }, "Pages are flushed too slowly in the background")
            .because(format!("innodb_io_capacity = {capacity:.0}; {waits:.0} waits for a free page in the sample; {storage}"))
            .expect("fewer sessions that have to write pages themselves, if the disk has room; raise in steps")
            .change(format!("SET GLOBAL innodb_io_capacity_max = {:.0}; SET GLOBAL innodb_io_capacity = {wanted:.0};", facts.variable("innodb_io_capacity_max").max(wanted * 2.0)))
            .set("innodb_io_capacity_max", facts.variable("innodb_io_capacity_max").max(wanted * 2.0))
            .set("innodb_io_capacity", wanted)
            .dynamic(true),
    )
}

fn w04(facts: &Facts) -> Option<Advice> {
    let capacity = facts.variables.number("innodb_io_capacity")?;
    let most = facts.variables.number("innodb_io_capacity_max")?;
    (most < capacity * 2.0).then(|| {
        Advice::new("W04", Note, 0.1, "innodb_io_capacity_max leaves no room for bursts")
            .because(format!(
                "innodb_io_capacity = {capacity:.0}, innodb_io_capacity_max = {most:.0}"
            ))
            .expect("checkpoints under pressure finish earlier")
            .change(format!("SET GLOBAL innodb_io_capacity_max = {:.0};", capacity * 2.0))
            .set("innodb_io_capacity_max", capacity * 2.0)
            .dynamic(true)
    })
}

fn w05(facts: &Facts) -> Option<Advice> {
    let share = |sample: &crate::db::Counters| {
        let total = sample.count("innodb_buffer_pool_pages_total").max(1.0);
        sample.count("innodb_buffer_pool_pages_dirty") / total * 100.0
    };
    let limit = facts.variables.number("innodb_max_dirty_pages_pct")?;
    let (first, last) = (share(&facts.before), share(&facts.after));
    let busy = facts.device?.busy_ms as f64 / (facts.seconds * 1000.0).max(1.0);
    (first.min(last) > limit * 0.75 && busy < 0.5).then(|| {
        let capacity = facts.variable("innodb_io_capacity").max(100.0);
        Advice::new("W05", Warning, 0.4, "The buffer pool stays dirty while the disk rests")
            .because(format!(
                "{first:.0} % and {last:.0} % dirty, limit {limit:.0} %; disk busy {:.0} %",
                busy * 100.0
            ))
            .expect("room for bursts of writes, if pages are not written again at once")
            .change(format!(
                "SET GLOBAL innodb_io_capacity_max = {:.0}; SET GLOBAL innodb_io_capacity = {:.0};",
                (capacity * 4.0).min(2.0 * IO_CAPACITY_MOST),
                (capacity * 2.0).min(IO_CAPACITY_MOST)
            ))
            .set("innodb_io_capacity_max", (capacity * 4.0).min(2.0 * IO_CAPACITY_MOST))
            .set("innodb_io_capacity", (capacity * 2.0).min(IO_CAPACITY_MOST))
            .dynamic(true)
    })
}

fn w06(facts: &Facts) -> Option<Advice> {
    let neighbors = facts.variables.number("innodb_flush_neighbors")?;
    (neighbors != 0.0 && facts.is_ssd() == Some(true)).then(|| {
        Advice::new(
            "W06",
            Note,
            0.15,
            "Neighbours of dirty pages are flushed, which only turning disks like",
        )
        .because(format!("innodb_flush_neighbors = {neighbors:.0} on fast storage"))
        .expect("fewer pages written too early, and written again")
        .change("SET GLOBAL innodb_flush_neighbors = 0;")
        .set("innodb_flush_neighbors", 0)
        .dynamic(true)
    })
}

fn doublewrite_is_off(facts: &Facts) -> Option<bool> {
    let value = facts.variables.text("innodb_doublewrite")?.to_uppercase();
    Some(matches!(value.as_str(), "OFF" | "0" | "DETECT_ONLY"))
}

/// Why a page of this size cannot be torn here, if that is known.
pub fn atomic_pages(facts: &Facts) -> Option<String> {
    let page = facts.page_bytes();
    let kind = facts.mount.as_ref().map(|m| m.kind.as_str());
    if kind == Some("zfs") {
        return Some("ZFS writes records elsewhere and switches; records must not be smaller than a page (zfs get recordsize)".to_string());
    }
    let probe = facts.probe.as_ref()?;
    let max = f64::from(probe.atomic_max_bytes?);
    let direct = probe.direct_io
        && facts.variables.text("innodb_flush_method").is_none_or(|m| m.starts_with("O_DIRECT"));
    (max >= page && direct).then(|| {
        format!("file system and device take aligned writes of up to {max:.0} bytes atomically (statx), and InnoDB uses direct I/O")
    })
}

fn w07(facts: &Facts) -> Option<Advice> {
    let off = doublewrite_is_off(facts)?;
    let proof = atomic_pages(facts);
    match (off, proof) {
        (false, Some(proof)) => {
            let share = facts.delta("innodb_dblwr_pages_written") / facts.delta("innodb_pages_written").max(1.0);
            Some(
                Advice::new("W07", Note, 0.3 * share, "The doublewrite buffer may not be needed on this storage")
                    .because(proof)
                    .expect("half of the bytes of page writes; TPS only where the disk is the limit. Assumes that the kernel does not split InnoDB's page writes, which are not marked as atomic ones")
                    .change("back up; stop the server cleanly; innodb_doublewrite = 0 in the configuration; start. The way back is the same with 1")
                    .dynamic(!facts.is_mariadb() && facts.version() >= (8, 0, 30))
                    .risk("if the assumption is wrong, a power cut can tear a page, and that table is restored from the backup"),
            )
        }
        (true, None) => Some(
            Advice::new("W07", Critical, 1.0, "The doublewrite buffer is off, and nothing shows that pages cannot be torn")
                .because("innodb_doublewrite is off; neither the file system nor the device shows atomic writes of a page here (see --probe-dir)".to_string())
                .expect("no speed: safety")
                .change("innodb_doublewrite = 1 in the configuration, then restart; or show that the storage is atomic")
                .dynamic(false)
                .risk("a power cut in the middle of a page write can lose the page"),
        ),
        _ => None,
    }
}

fn w08(facts: &Facts) -> Option<Advice> {
    let (twice, pages) =
        (facts.rate("innodb_dblwr_pages_written"), facts.rate("innodb_pages_written"));
    let shown = pages >= 10.0 && twice / pages > 0.5;
    shown.then(|| {
        let latency = match facts.dblwr_sync_s {
            Some(s) => format!("; a sync of its file takes {:.2} ms", s * 1e3),
            None => String::new(),
        };
        Advice::new("W08", Note, 0.25, "Pages are written twice")
            .because(format!("{twice:.0} of {pages:.0} page writes a second go through the doublewrite buffer{latency}"))
            .expect("storage that writes a page atomically saves these bytes; what that is worth depends on how busy the disk is")
            .change("see W07 for when it can be switched off")
    })
}

fn w16(facts: &Facts) -> Option<Advice> {
    let is = |name: &str, value: &str| {
        facts.variables.text(name).is_some_and(|v| v.eq_ignore_ascii_case(value))
    };
    let mut off = Vec::new();
    if is("innodb_checksum_algorithm", "none") || is("innodb_checksums", "OFF") {
        off.push("InnoDB pages");
    }
    if facts.binlog() && is("binlog_checksum", "NONE") {
        off.push("the binlog");
    }
    if is("innodb_log_checksums", "OFF") {
        off.push("the redo log");
    }
    let disabled = facts.after.text("innodb_redo_log_enabled") == Some("OFF");
    if off.is_empty() && !disabled {
        return None;
    }
    let severity = if disabled { Critical } else { Warning };
    let mut advice = Advice::new("W16", severity, 0.0, "Damage would not be noticed")
        .expect("checksums cost little: they use the processor's instruction");
    let mut evidence = Vec::new();
    if !off.is_empty() {
        evidence.push(format!("no checksums for {}", off.join(", ")));
        if off.contains(&"the binlog") {
            advice = advice
                .change("SET GLOBAL binlog_checksum = CRC32;")
                .set("binlog_checksum", "CRC32");
        }
        if off.len() > 1 || !off.contains(&"the binlog") {
            advice = advice.change(
                "innodb_checksum_algorithm and innodb_log_checksums back to their defaults",
            );
        }
    }
    if disabled {
        evidence.push("the redo log is disabled: a crash loses the whole instance".to_string());
        advice = advice.change("ALTER INSTANCE ENABLE INNODB REDO_LOG;");
    }
    Some(advice.because(evidence.join("; ")).dynamic(true))
}

fn w18(facts: &Facts) -> Option<Advice> {
    let threads = facts.variable("innodb_read_io_threads").max(1.0);
    let pending = |sample: &crate::db::Counters| sample.count("innodb_data_pending_reads");
    let stuck = pending(&facts.before).min(pending(&facts.after));
    let aio_off = facts.variables.text("innodb_use_native_aio").is_some_and(|v| v == "OFF");
    if stuck < 64.0 * threads && !aio_off {
        return None;
    }
    let advice =
        Advice::new("W18", Warning, 0.2, "Asynchronous I/O is a bottleneck").because(format!(
        "{stuck:.0} reads pending in both samples with {threads:.0} read threads; native AIO {}",
        if aio_off { "off" } else { "on" }
    ));
    let advice =
        advice.expect("more requests in flight, if the storage can take them").dynamic(false);
    Some(match aio_off {
        true => advice
            .change("innodb_use_native_aio = 1, then restart (fs.aio-max-nr may have to be raised)")
            .set("innodb_use_native_aio", "ON"),
        false => advice
            .change(format!(
                "innodb_read_io_threads = {:.0}, then restart",
                (threads * 2.0).min(64.0)
            ))
            .set("innodb_read_io_threads", (threads * 2.0).min(64.0)),
    })
}
