//! A sample as a line, and as a screen.

use super::sample::Sample;
use super::tables::{self, TableWrites};
use crate::db::{Causes, CAUSES};
use crate::host::{DriveBytes, Logged};

pub const HEAD: &str = "  rows/s commits/s  group  fl/com binlog     log  dblwr   pages     gc     map beyond journal    trim [MB/s]     WA WA(start)  lag s";

const BAR_WIDTH: usize = 30;
const NAME_WIDTH: usize = 32;

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_string(), |v| format!("{v:.digits$}"))
}

fn discarded(sample: &Sample) -> Option<f64> {
    sample.device?.discarded_bytes.map(|bytes| bytes as f64)
}

/// MB/s of a journal: after `~` where the kernel tells only a mean.
fn rate(logged: &Logged, seconds: f64) -> String {
    let sign = if logged.is_exact() { "" } else { "~" };
    format!("{sign}{:.2}", logged.bytes as f64 / seconds / 1e6)
}

pub fn line(sample: &Sample) -> String {
    let s = sample.seconds;
    let mb: Vec<String> =
        sample.causes.iter().map(|bytes| format!("{:7.2}", bytes / s / 1e6)).collect();
    format!(
        "{:8.0} {:9.0} {:>6} {:>7}{} {:>6} {:>7} {:>7} {:>13} {:>9} {:>6}",
        sample.rows / s,
        sample.commits / s,
        number(sample.group_size(), 1),
        number(sample.flushes_per_commit(), 2),
        mb.join(""),
        number(sample.beyond_bytes().map(|b| b / s / 1e6), 2),
        sample.storage.journal().map_or("-".to_string(), |logged| rate(&logged, s)),
        number(discarded(sample).map(|b| b / s / 1e6), 2),
        number(sample.amplification(), 1),
        number(sample.amplification_since_start(), 1),
        number(sample.lag_s, 0),
    )
}

pub fn screen(sample: &Sample) -> String {
    let s = sample.seconds;
    let mut text = format!("sluice top   {}   (Ctrl-C ends)\n\n", sample.version);
    text += &format!(
        "{:.0} rows/s of about {:.0} bytes   {:.0} commits/s   {} a group   {} flushes a commit\n",
        sample.rows / s,
        sample.row_bytes,
        sample.commits / s,
        number(sample.group_size(), 1),
        number(sample.flushes_per_commit(), 2)
    );
    text += &format!(
        "write amplification {} now, {} since start   CPU {} s/s   replica lag {} s\n\n",
        number(sample.amplification(), 1),
        number(sample.amplification_since_start(), 1),
        number(sample.cpu_s.map(|c| c / s), 2),
        number(sample.lag_s, 0)
    );
    text += &causes(&sample.causes, sample.beyond_bytes(), s);
    if let (Some(bytes), Some(share)) = (sample.process_bytes, sample.named_share()) {
        text += &format!(
            "\nprocess: {:.2} MB/s written, of which the causes name {:.0} %\n",
            bytes / s / 1e6,
            share * 100.0
        );
    }
    if let Some(device) = sample.device {
        text += &format!(
            "device: {:.2} MB/s written, {:.0} writes/s, {:.0} reads/s, {:.0} flushes/s, {:.0} % busy\n",
            device.written_bytes as f64 / s / 1e6,
            device.writes as f64 / s,
            device.reads as f64 / s,
            device.flushes as f64 / s,
            device.busy_ms as f64 / s / 10.0
        );
    }
    text += &below(sample);
    if let Some(days) = sample.wear_out_days {
        text += &format!("the drive lasts {days:.0} days at this pace\n");
    }
    text.push('\n');
    for pair in sample.gauges.chunks(2) {
        let cell = |(name, value): &(String, f64)| format!("{name:31} {value:14.0}   ");
        text += pair.iter().map(cell).collect::<String>().trim_end();
        text.push('\n');
    }
    text += table_lines(sample).trim_start_matches('\n');
    for what in &sample.missing {
        text += &format!("not known: {what}\n");
    }
    text
}

/// A line for the discards, each journal and each drive.
fn below(sample: &Sample) -> String {
    let s = sample.seconds;
    let mut text = String::new();
    if let Some(bytes) = discarded(sample) {
        text += &format!("device: {:.2} MB/s told to be free (trim)\n", bytes / s / 1e6);
    }
    for journal in &sample.storage.journals {
        let (logged, mb) = (journal.logged, |bytes: u64| bytes as f64 / s / 1e6);
        text +=
            &format!("journal of {} ({}): {} MB/s", journal.device, journal.kind, rate(&logged, s));
        if !logged.is_exact() {
            let (least, most) = (mb(logged.least_bytes), mb(logged.most_bytes));
            text += &format!(", surely {least:.2} to {most:.2}");
        }
        if let Some(transactions) = logged.transactions {
            text += &format!(", {:.0} transactions/s", transactions as f64 / s);
        }
        text.push('\n');
    }
    text + drive_lines(sample).trim_start_matches('\n')
}

/// A line for each drive that tells about its inside, after the end of the line before; or nothing.
pub fn drive_lines(sample: &Sample) -> String {
    let mb = |bytes: u64| bytes as f64 / sample.seconds / 1e6;
    let line = |drive: &DriveBytes| {
        let media = drive.bytes.media_bytes.map(mb);
        format!(
            "\ndrive {}: {:.2} MB/s from the host, {} to its flash, WA inside {}, in its life {}",
            drive.name,
            mb(drive.bytes.host_bytes),
            number(media, 2),
            number(drive.bytes.amplification(), 2),
            number(drive.life.amplification(), 2)
        )
    };
    let lines: String = sample.storage.drives.iter().map(line).collect();
    if lines.is_empty() {
        lines
    } else {
        lines + "\n"
    }
}

/// A line for each table, after the end of the line before; nothing if they are not wanted.
pub fn table_lines(sample: &Sample) -> String {
    let Some(tables) = &sample.tables else { return String::new() };
    let head: String = tables::CAUSES.iter().map(|cause| format!(" {cause:>10}")).collect();
    let mut text = format!("\n{:NAME_WIDTH$}{head}      total [MB/s]  since start [MB]", "table");
    for table in tables {
        text += &table_line(table, sample.seconds);
    }
    text + "\n"
}

fn table_line(table: &TableWrites, seconds: f64) -> String {
    let rate = |bytes: f64| format!(" {:10.3}", bytes / seconds / 1e6);
    let causes: String = table.bytes.iter().map(|bytes| rate(*bytes)).collect();
    let (name, total) = (table.name.shown(), rate(table.total()));
    format!("\n{name:NAME_WIDTH$}{causes}{total} {:24.1}", table.since_start / 1e6)
}

fn causes(causes: &Causes, beyond: Option<f64>, seconds: f64) -> String {
    let values: Vec<f64> = causes.iter().copied().chain(beyond).collect();
    let most = values.iter().copied().fold(1.0, f64::max);
    let row = |(name, bytes): (&&str, &f64)| {
        let bar = "#".repeat((bytes / most * BAR_WIDTH as f64).round() as usize);
        format!("{name:12} {:9.3} MB/s  {bar}\n", bytes / seconds / 1e6)
    };
    CAUSES.iter().zip(&values).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::sample;
    use super::*;
    use crate::host::{DeviceCounters, DriveCounters, JournalBytes};

    #[test]
    fn a_line_has_a_column_for_each_heading() {
        let line = line(&sample());
        // "[MB/s]" and "s" are units, not columns.
        assert_eq!(line.split_whitespace().count(), HEAD.split_whitespace().count() - 2, "{line}");
    }

    #[test]
    fn a_line_shows_what_the_file_system_and_the_drive_add() {
        let mut sample = sample();
        let cells = |sample: &Sample| {
            let line = line(sample);
            let heads = HEAD.split_whitespace().filter(|head| *head != "[MB/s]");
            heads
                .map(str::to_string)
                .zip(line.split_whitespace().map(str::to_string))
                .collect::<Vec<_>>()
        };
        let cell = |sample: &Sample, name: &str| {
            cells(sample).into_iter().find(|(head, _)| head == name).unwrap().1
        };
        assert_eq!((cell(&sample, "journal"), cell(&sample, "trim")), ("-".into(), "-".into()));
        assert!(!screen(&sample).contains("journal") && drive_lines(&sample).is_empty());

        sample.device =
            sample.device.map(|d| DeviceCounters { discarded_bytes: Some(500_000), ..d });
        let logged = Logged {
            transactions: Some(20),
            bytes: 300_000,
            least_bytes: 250_000,
            most_bytes: 350_000,
        };
        let (device, kind) = ("vda1".to_string(), "ext4".to_string());
        sample.storage.journals.push(JournalBytes { device, kind, logged });
        assert_eq!(
            (cell(&sample, "journal"), cell(&sample, "trim")),
            ("~0.30".into(), "0.50".into())
        );
        let text = screen(&sample);
        let wanted = "journal of vda1 (ext4): ~0.30 MB/s, surely 0.25 to 0.35, 20 transactions/s\n";
        assert!(text.contains(wanted) && text.contains("0.50 MB/s told to be free"), "{text}");
        let exact =
            Logged { transactions: None, least_bytes: 300_000, most_bytes: 300_000, ..logged };
        sample.storage.journals[0].logged = exact;
        assert_eq!(cell(&sample, "journal"), "0.30");
        assert!(screen(&sample).contains("journal of vda1 (ext4): 0.30 MB/s\n"));

        let bytes = DriveCounters { host_bytes: 2_000_000, media_bytes: Some(3_000_000) };
        let life = DriveCounters { host_bytes: 10, media_bytes: None };
        sample.storage.drives.push(DriveBytes { name: "nvme0n1".to_string(), bytes, life });
        let wanted = "\ndrive nvme0n1: 2.00 MB/s from the host, 3.00 to its flash, WA inside 1.50, in its life -\n";
        assert_eq!(drive_lines(&sample), wanted);
        assert!(screen(&sample).contains(wanted.trim()));
    }

    #[test]
    fn tables_have_a_column_for_each_heading_and_stand_after_the_line() {
        let mut sample = sample();
        assert_eq!(table_lines(&sample), "");
        sample.tables = Some(vec![super::super::tables::tests::sample()]);
        let text = table_lines(&sample);
        let [empty, head, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(empty.is_empty() && head.starts_with("table ") && line.starts_with("d.t "));
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            cells,
            ["d.t", "1.000", "0.000", "0.000", "0.000", "2.000", "0.000", "3.000", "5.0"]
        );
        // The units are no columns, and one heading has two words.
        assert_eq!(head.split_whitespace().count(), cells.len() + 3, "{head}");
        assert!(screen(&sample).contains(line));
    }

    #[test]
    fn the_screen_shows_causes_and_what_is_missing() {
        let mut sample = sample();
        sample.missing.push("the moon".to_string());
        let text = screen(&sample);
        for wanted in ["binlog", "doublewrite", "beyond", "60.0 now", "not known: the moon"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
