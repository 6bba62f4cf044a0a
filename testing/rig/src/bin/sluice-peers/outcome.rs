//! What a test printed with each engine, and whether it is the same.
//!
//! Not compared: names of the two engines, plans (rows of EXPLAIN and ANALYZE, the statement as the optimizer
//! rewrote it), the cardinalities of SHOW KEYS, sizes and times of SHOW TABLE STATUS, and the order of rows
//! after a statement without ORDER BY. Everything else is: rows, errors, warnings.

use crate::log_of;
use crate::tests::{copy_dirs, Engine, ENGINES};
use std::fs;
use std::path::Path;
use std::process::Command;

pub enum Outcome {
    /// Perhaps in another order.
    Same {
        in_order: bool,
    },
    Different {
        sum: String,
        diff: String,
    },
    /// Skipped with InnoDB, for lack of something on this machine.
    NotRun,
}

pub fn of(copies: &Path, suite: &str, test: &str) -> Result<Outcome, String> {
    let dirs = copy_dirs(copies, suite);
    let [Some(innodb), sluice] =
        dirs.each_ref().map(|dir| fs::read(dir.join(format!("{test}.result"))).ok())
    else {
        return Ok(Outcome::NotRun);
    };
    let outputs = [innodb, sluice.unwrap_or_else(|| b"no output\n".to_vec())];
    let mut texts = outputs.map(|output| compared(&latin1(&output)));
    for (text, (engine, dir)) in texts.iter_mut().zip(ENGINES.iter().zip(&dirs)) {
        if has_failed(copies, engine, dir, test)? {
            text.push_str("THE TEST FAILED\n");
        }
    }
    let in_order = texts[0] == texts[1];
    if !in_order {
        texts = texts.map(|text| in_any_order(&text));
    }
    if texts[0] == texts[1] {
        return Ok(Outcome::Same { in_order });
    }
    for (text, dir) in texts.iter().zip(&dirs) {
        fs::write(dir.join(format!("{test}.compared")), text).map_err(|e| e.to_string())?;
    }
    let mut diff = Command::new("diff");
    diff.args(["-a", "-U2"]).args(dirs.map(|dir| dir.join(format!("{test}.compared"))));
    let diff = diff.output().map_err(|e| format!("diff: {e}"))?.stdout;
    let diff = String::from_utf8_lossy(&diff).into_owned();
    Ok(Outcome::Different { sum: sum_of(&diff), diff })
}

/// Whether the driver says so: a crash, a warning in the error log, something left behind, no end.
fn has_failed(copies: &Path, engine: &Engine, dir: &Path, test: &str) -> Result<bool, String> {
    let log = log_of(copies, engine);
    let text = fs::read(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let suite = dir.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{suite}.{test}");
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .any(|line| line.split_whitespace().next() == Some(&name) && line.contains("[ fail ]")))
}

/// A character for each byte: outputs are in many character sets.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Where a line of the output stands.
#[derive(PartialEq)]
enum Place {
    Text,
    Plan,
    PlanInJson,
    Keys,
    Status,
}

fn compared(output: &str) -> String {
    let mut text = String::with_capacity(output.len());
    let mut place = Place::Text;
    for line in output.split('\n') {
        place = place_of(line, place);
        match place {
            Place::Plan | Place::PlanInJson => {}
            Place::Keys => push(&mut text, &without(line, 6..7)),
            // From the row format to the time of the check.
            Place::Status => push(&mut text, &without(line, 3..14)),
            Place::Text if changes_from_run_to_run(line) => {}
            Place::Text => push(&mut text, line),
        }
    }
    text
}

/// Rewritten statements, a file of this machine, rows of SHOW PROCESSLIST.
fn changes_from_run_to_run(line: &str) -> bool {
    let columns: Vec<_> = line.split('\t').collect();
    line.starts_with("Note\t1003\t")
        || line.starts_with("included from")
        || columns.len() == 9 && columns[0].parse::<u32>().is_ok() && columns[2] == "localhost"
}

fn place_of(line: &str, before: Place) -> Place {
    let is_row_of_plan = || {
        let mut words = line.split('\t');
        let id = words.next().unwrap_or_default();
        let kinds = [
            "SIMPLE",
            "PRIMARY",
            "SUBQUERY",
            "DEPENDENT",
            "UNION",
            "DERIVED",
            "MATERIALIZED",
            "UNCACHEABLE",
            "LATERAL",
            "RECURSIVE",
            "INTERSECT",
            "EXCEPT",
            "INSERT",
            "UNIT",
        ];
        (id == "NULL" || id.parse::<u32>().is_ok())
            && words.next().is_some_and(|kind| kinds.iter().any(|k| kind.starts_with(k)))
    };
    match before {
        _ if line.starts_with("id\tselect_type\t") => Place::Plan,
        _ if line.starts_with("Table\tNon_unique\tKey_name\t") => Place::Keys,
        _ if line.starts_with("Name\tEngine\tVersion\tRow_format\t") => Place::Status,
        _ if ["EXPLAIN", "ANALYZE"].contains(&line) => Place::PlanInJson,
        Place::Plan if is_row_of_plan() => Place::Plan,
        Place::Keys if line.split('\t').count() >= 13 => Place::Keys,
        Place::Status if line.split('\t').count() >= 18 => Place::Status,
        // The brace in the first column ends it.
        Place::PlanInJson if line.starts_with(['{', ' ']) => Place::PlanInJson,
        _ => Place::Text,
    }
}

fn without(line: &str, columns: std::ops::Range<usize>) -> String {
    let kept = line.split('\t').enumerate().filter(|column| !columns.contains(&column.0));
    kept.map(|column| column.1).collect::<Vec<_>>().join("\t")
}

/// Sorts the lines from one statement's end to the next, unless the statement has ORDER BY. The next
/// statement is among them, which does no harm: it is the same with both engines.
fn in_any_order(text: &str) -> String {
    let mut sorted = Vec::new();
    let mut piece = Vec::new();
    let mut is_ordered = false;
    for line in text.lines() {
        piece.push(line);
        if line.ends_with([';', '|', '$']) {
            let next_is_ordered =
                piece.iter().any(|line| line.to_ascii_lowercase().contains("order by"));
            if !is_ordered {
                piece.sort_unstable();
            }
            sorted.append(&mut piece);
            is_ordered = next_is_ordered;
        }
    }
    if !is_ordered {
        piece.sort_unstable();
    }
    sorted.append(&mut piece);
    sorted.join("\n") + "\n"
}

/// The line, with one name for both engines.
fn push(text: &mut String, line: &str) {
    let lower = line.to_ascii_lowercase();
    let mut at = 0;
    while let Some(found) =
        ["sluice", "innodb"].iter().filter_map(|name| lower[at..].find(name)).min()
    {
        text.push_str(&line[at..at + found]);
        text.push_str("ENGINE");
        at += found + "sluice".len();
    }
    text.push_str(&line[at..]);
    text.push('\n');
}

/// Of the lines that differ, wherever they stand (FNV-1a).
fn sum_of(diff: &str) -> String {
    let lines = diff.lines().skip(2).filter(|line| line.starts_with(['-', '+']));
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for byte in lines.flat_map(|line| line.bytes().chain([b'\n'])) {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    format!("{:08x}", (sum >> 32) as u32 ^ sum as u32)
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn plans_and_names_of_engines_are_not_compared() {
        let innodb =
            "explain select 1;\nid\tselect_type\ttable\n1\tSIMPLE\tt1\t10\n) ENGINE=InnoDB\n1\tB\n\
                      Table\tNon_unique\tKey_name\tSeq\nt1\t0\ta\t1\ta\tA\t57\tN\tN\tY\tB\t\t\tNO\nx\n\
                      EXPLAIN\n{\n  \"rows\": 1\n}\nend\n";
        let sluice =
            "explain select 1;\nid\tselect_type\ttable\n1\tSIMPLE\tt1\t11\n) ENGINE=SLUICE\n1\tB\n\
                      Table\tNon_unique\tKey_name\tSeq\nt1\t0\ta\t1\ta\tA\t58\tN\tN\tY\tB\t\t\tNO\nx\n\
                      EXPLAIN\n{\n  \"rows\": 2\n}\nend\n";
        assert_eq!(compared(innodb), compared(sluice));
        assert_ne!(compared(innodb), compared(&innodb.replace("1\tB", "2\tB")));
        assert_ne!(compared(innodb), compared(&innodb.replace("end", "End")));
    }

    #[test]
    fn rows_have_an_order_after_order_by() {
        let text = |sql: &str, rows: &str| {
            in_any_order(&format!("select 1;\n1\n{sql};\na\n{rows}\nselect 2;\n"))
        };
        assert_eq!(text("select *\nfrom t", "1\n2"), text("select *\nfrom t", "2\n1"));
        assert_ne!(text("select *\nfrom t", "1\n2"), text("select *\nfrom t", "2\n2"));
        assert_ne!(text("select *\nORDER BY 1", "1\n2"), text("select *\nORDER BY 1", "2\n1"));
    }

    #[test]
    fn the_sum_is_of_the_lines_that_differ() {
        let diff = "--- a\n+++ b\n@@ -1 +1 @@\n same\n-1\n+2\n";
        assert_eq!(sum_of(diff), sum_of(&diff.replace("@@ -1", "@@ -7").replace("same", "other")));
        assert_ne!(sum_of(diff), sum_of(&diff.replace("+2", "+3")));
    }
}
