//! Tables of README.md and docs/, written between markers from the results below docs/reports/.
//!
//! `<!-- bench:NAME view=VIEW ... -->` and `<!-- /bench -->`, each on a line of its own. NAME is a
//! directory of docs/reports. Options, each key=value[,value...]: `targets`, `workloads`, `threads`
//! and `rows` (bytes of a row) choose; `view` is
//!
//! - `tps`: TPS and device flushes per transaction of each target, and the last relative to the first;
//! - `bytes`: bytes that the server wrote per transaction, and TPS;
//! - `relative`, `measured`: as in the report;
//! - `restart`, `rollback`, `held`, `soak`, `lag`, `receive`, `columns`, `large-value`, `large-update`,
//!   `hot-row`: its table.

use super::data::{flushes, process_bytes, tps, Cell, Results};
use super::svg::short;
use super::{markdown, trials};
use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- bench:";
const END: &str = "<!-- /bench -->";

/// Writes the tables of all pages; the answer is how many pages changed.
pub fn write_all(root: &Path) -> Result<usize> {
    let mut changed = 0;
    for page in pages(root)? {
        let text = read(&page)?;
        let filled = filled(root, &text).map_err(|why| format!("{}: {why}", page.display()))?;
        if filled != text {
            fs::write(&page, filled)
                .map_err(|e| format!("cannot write {}: {e}", page.display()))?;
            report!("{}", page.display());
            changed += 1;
        }
    }
    Ok(changed)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// README.md and every page below docs/, but the reports themselves.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![root.join("README.md")];
    let mut dirs = vec![root.join("docs")];
    while let Some(dir) = dirs.pop() {
        let failed = |e| format!("cannot list {}: {e}", dir.display());
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() && !path.ends_with("docs/reports") {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The page with all its tables as the results have them.
fn filled(root: &Path, text: &str) -> Result<String> {
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    let mut fenced = false;
    while let Some(line) = lines.next() {
        out += line;
        fenced ^= line.starts_with("```");
        let Some(marker) = line.strip_prefix(BEGIN).filter(|_| !fenced) else { continue };
        let marker = marker.trim_end().strip_suffix("-->").ok_or("a marker without its end -->")?;
        if !lines.any(|line| line.trim_end() == END) {
            return Err(format!("bench:{}has no {END}", marker));
        }
        let made = made(root, marker).map_err(|why| format!("bench:{marker}: {why}"))?;
        out += &format!("{made}{END}\n");
    }
    Ok(out)
}

/// What a marker asks for. An empty list is all.
#[derive(Debug, Default, PartialEq)]
struct Wish {
    view: String,
    targets: Vec<String>,
    workloads: Vec<String>,
    threads: Vec<String>,
    rows: Vec<String>,
}

impl Wish {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Wish> {
        let mut wish = Wish::default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("'{word}' is not key=value"))?;
            let list = value.split(',').map(String::from).collect();
            match key {
                "view" => wish.view = value.to_string(),
                "targets" => wish.targets = list,
                "workloads" => wish.workloads = list,
                "threads" => wish.threads = list,
                "rows" => wish.rows = list,
                _ => return Err(format!("no option '{key}'")),
            }
        }
        Ok(wish)
    }
}

fn made(root: &Path, marker: &str) -> Result<String> {
    let mut words = marker.split_whitespace();
    let name = words.next().ok_or("which report?")?;
    let wish = Wish::parse(words)?;
    let results = Results::read(&root.join("docs/reports").join(name))?;
    let (head, rows) = match wish.view.as_str() {
        "tps" => tps_table(&results, &wish)?,
        "bytes" => bytes_table(&results, &wish)?,
        "relative" => markdown::relative(&results),
        "measured" => markdown::measured(&results),
        other => {
            let found = trials::named(&results, other).ok_or(format!("no view '{other}'"))?;
            (found.head, found.rows)
        }
    };
    match rows.is_empty() {
        true => Err("there is nothing to show".to_string()),
        false => Ok(markdown::table(&head, &rows)),
    }
}

/// Those wanted, in the order wanted; all without a wish.
fn chosen(wanted: &[String], all: Vec<String>) -> Result<Vec<String>> {
    match wanted.iter().find(|name| !all.contains(name)) {
        Some(name) => Err(format!("the results have no {name}, but {}", all.join(", "))),
        None if wanted.is_empty() => Ok(all),
        None => Ok(wanted.to_vec()),
    }
}

struct Chosen {
    targets: Vec<String>,
    /// Label, workload, bytes of a row.
    workloads: Vec<(String, String, u64)>,
    threads: Vec<u64>,
}

fn choose(results: &Results, wish: &Wish) -> Result<Chosen> {
    let threads = results.threads().iter().map(u64::to_string).collect();
    let threads = chosen(&wish.threads, threads)?;
    let names = chosen(&wish.workloads, results.plan_list("workloads"))?;
    let sizes = chosen(&wish.rows, results.plan_list("row_bytes"))?;
    let mut workloads = Vec::new();
    for name in names {
        for size in &sizes {
            let bytes = size.parse().map_err(|_| format!("'{size}' is no size"))?;
            let label = match wish.rows.len() {
                1 => name.clone(),
                _ => results.label(&name, bytes),
            };
            workloads.push((label, name.clone(), bytes));
        }
    }
    Ok(Chosen {
        targets: chosen(&wish.targets, results.targets())?,
        workloads,
        threads: threads.iter().filter_map(|n| n.parse().ok()).collect(),
    })
}

type Rows = (Vec<String>, Vec<Vec<String>>);

/// One row per workload and number of threads; `cell` is one target's, `end` the last column.
fn rows_of(
    results: &Results,
    wish: &Wish,
    cell: impl Fn(&Cell) -> Option<String>,
    end: impl Fn(&[Cell]) -> Option<String>,
) -> Result<(Chosen, Vec<Vec<String>>)> {
    let chosen = choose(results, wish)?;
    let mut rows = Vec::new();
    for (label, workload, row_bytes) in &chosen.workloads {
        for &threads in &chosen.threads {
            let of = |target: &String| Cell {
                target: target.clone(),
                workload: workload.clone(),
                row_bytes: *row_bytes,
                threads,
            };
            let cells: Vec<Cell> = chosen.targets.iter().map(of).collect();
            let unit = if threads == 1 { "thread" } else { "threads" };
            let mut row = vec![format!("{label}, {threads} {unit}")];
            row.extend(cells.iter().map(|c| cell(c).unwrap_or_else(|| "-".to_string())));
            row.extend(end(&cells));
            rows.push(row);
        }
    }
    Ok((chosen, rows))
}

fn tps_table(results: &Results, wish: &Wish) -> Result<Rows> {
    let rate = |cell: &Cell| results.figure(cell, tps).map(|f| f.median);
    let text = |cell: &Cell| {
        let flushed = results.figure(cell, flushes).map(|f| format!(" ({:.2})", f.median));
        Some(format!("{}{}", short(rate(cell)?), flushed.unwrap_or_default()))
    };
    let ratio = |cells: &[Cell]| {
        let [first, .., last] = cells else { return None };
        let ratio = rate(last).zip(rate(first)).map(|(ours, theirs)| ours / theirs);
        Some(ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")))
    };
    let (chosen, rows) = rows_of(results, wish, text, ratio)?;
    let mut head = vec!["TPS (flushes per transaction)".to_string()];
    head.extend(chosen.targets.iter().cloned());
    if let [first, .., last] = &chosen.targets[..] {
        head.push(format!("{last} / {first}"));
    }
    Ok((head, rows))
}

fn bytes_table(results: &Results, wish: &Wish) -> Result<Rows> {
    let text = |cell: &Cell| {
        let bytes = results.figure(cell, process_bytes)?.median;
        Some(format!("{} ({})", short(bytes), short(results.figure(cell, tps)?.median)))
    };
    let (chosen, rows) = rows_of(results, wish, text, |_| None)?;
    let mut head = vec!["bytes per transaction (TPS)".to_string()];
    head.extend(chosen.targets);
    Ok((head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
    }

    #[test]
    fn committed_tables_are_those_of_the_committed_results() {
        let root = checkout();
        let mut markers = 0;
        for page in pages(&root).unwrap() {
            let text = read(&page).unwrap();
            markers += text.lines().filter(|line| line.starts_with(BEGIN)).count();
            let why = "write them with: sluice bench report --tables";
            assert_eq!(filled(&root, &text).unwrap(), text, "{}: {why}", page.display());
        }
        assert!(markers >= 2, "README and docs have tables");
    }

    #[test]
    fn a_changed_figure_is_written_again() {
        let root = checkout();
        let results = Results::read(&root.join("docs/reports/binlog-in-redo")).unwrap();
        let most = results.threads().last().copied().unwrap();
        let wish = format!("view=tps threads={most} targets=innodb,sluice-on");
        let marker = format!("<!-- bench:binlog-in-redo {wish} -->\n");
        let page = format!("before\n{marker}| wrong |\n{END}\nafter\n");
        let text = filled(&root, &page).unwrap();
        assert!(
            text.starts_with(&format!("before\n{marker}| TPS (flushes per transaction) | innodb"))
        );
        assert!(text.ends_with(&format!("|\n{END}\nafter\n")) && !text.contains("wrong"), "{text}");
        assert_eq!(filled(&root, &text).unwrap(), text);
        assert_eq!(text.matches("\n| oltp_").count(), results.workloads().len());
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let page = |marker: &str| format!("<!-- bench:{marker} -->\n{END}\n");
        for (marker, wanted) in [
            ("no-such-report view=tps", "cannot read"),
            ("binlog-in-redo view=nothing", "no view"),
            ("binlog-in-redo view=tps threads=5", "no 5"),
            ("binlog-in-redo view=tps colour=red", "no option"),
            ("binlog-in-redo view=restart", "no view"),
        ] {
            let why = filled(&checkout(), &page(marker)).unwrap_err();
            assert!(why.contains(wanted), "{marker}: {why}");
        }
        let open = "<!-- bench:binlog-in-redo view=tps -->\n";
        assert!(filled(&checkout(), open).unwrap_err().contains("has no"));
    }
}
