//! A sample as a line, and as a screen.

use super::sample::Sample;
use super::tables::{self, TableWrites};
use crate::db::{Causes, CAUSES};

pub const HEAD: &str = "  rows/s commits/s  group  fl/com binlog     log  dblwr   pages     gc     map beyond [MB/s]     WA WA(start)  lag s";

const BAR_WIDTH: usize = 30;
const NAME_WIDTH: usize = 32;

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_string(), |v| format!("{v:.digits$}"))
}

pub fn line(sample: &Sample) -> String {
    let s = sample.seconds;
    let mb: Vec<String> =
        sample.causes.iter().map(|bytes| format!("{:7.2}", bytes / s / 1e6)).collect();
    format!(
        "{:8.0} {:9.0} {:>6} {:>7}{} {:>6} {:>13} {:>9} {:>6}",
        sample.rows / s,
        sample.commits / s,
        number(sample.group_size(), 1),
        number(sample.flushes_per_commit(), 2),
        mb.join(""),
        number(sample.beyond_bytes().map(|b| b / s / 1e6), 2),
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

    #[test]
    fn a_line_has_a_column_for_each_heading() {
        let line = line(&sample());
        // "[MB/s]" and "s" are units, not columns.
        assert_eq!(line.split_whitespace().count(), HEAD.split_whitespace().count() - 2, "{line}");
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
