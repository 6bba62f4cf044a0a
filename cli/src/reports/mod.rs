//! Reports from `results.jsonl`: HTML, Markdown and CSV.
//!
//! 1. A report says nothing that is not in the results; the same results give the same report.
//! 2. The page needs nothing but itself: charts are inline SVG, no script, no font, no request.
//! 3. Every text from the results is escaped (`svg::escaped`).

mod about;
mod charts;
mod csv;
mod data;
pub mod fill;
mod findings;
mod html;
mod markdown;
mod seconds;
mod shapes;
mod svg;
mod trials;

use crate::Result;
use data::Results;
use std::fs;
use std::path::Path;

pub fn write_all(dir: &Path) -> Result<()> {
    let results = Results::read(dir)?;
    let mut files = vec![
        ("report.html", html::page(&results)),
        ("report.md", markdown::page(&results)),
        ("report.csv", csv::table(&results)),
    ];
    files.extend(csv::trials(&results).map(|text| ("trials.csv", text)));
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    for sentence in findings::sentences(&results) {
        report!("{sentence}");
    }
    report!("report: {}", dir.join("report.html").display());
    Ok(())
}
