//! Tables and charts of the measurements that are more than sysbench points (`shapes`).

use super::data::{text_of, Figure, Results};
use super::shapes::SHAPES;
use super::svg::{lines, short, stacked, Axes, Point, Series};
use serde_json::Value;

pub struct Shape {
    pub name: &'static str,
    pub title: &'static str,
    pub note: &'static str,
    /// Fields that name what was measured, and their headings.
    pub parameters: &'static [(&'static str, &'static str)],
    pub columns: &'static [Column],
    /// Field, title, unit.
    pub bars: &'static [(&'static str, &'static str, &'static str)],
    pub curves: &'static [Curve],
}

pub struct Column {
    pub label: &'static str,
    pub of: Of,
    pub divisor: f64,
}

pub enum Of {
    /// Of the repetitions; a path may have a dot.
    Median(&'static str),
    /// Of the last repetition.
    Last(&'static str),
    /// A quantile of a column of a series, over the seconds of all repetitions.
    Seconds(&'static str, usize, f64),
    SecondsLast(&'static str, usize),
}

pub struct Curve {
    pub series: &'static str,
    pub at: usize,
    pub title: &'static str,
    pub unit: &'static str,
    pub divisor: f64,
}

/// What was measured of one target with the same parameters.
struct Group<'a> {
    parameters: Vec<String>,
    target: String,
    lines: Vec<&'a Value>,
}

pub struct Table {
    pub title: &'static str,
    pub note: &'static str,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

pub fn tables(results: &Results) -> Vec<Table> {
    SHAPES.iter().filter_map(|shape| table(results, shape)).collect()
}

pub fn named(results: &Results, name: &str) -> Option<Table> {
    table(results, SHAPES.iter().find(|shape| shape.name == name)?)
}

fn table(results: &Results, shape: &Shape) -> Option<Table> {
    let groups = groups(results, shape);
    let mut head = vec!["target".to_string()];
    head.extend(shape.parameters.iter().map(|(_, label)| label.to_string()));
    head.extend(shape.columns.iter().map(|column| column.label.to_string()));
    let row = |group: &Group| {
        let mut row = vec![group.target.clone()];
        row.extend(group.parameters.iter().cloned());
        row.extend(shape.columns.iter().map(|column| column.text(&group.lines)));
        row
    };
    let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
    (!rows.is_empty()).then_some(Table { title: shape.title, note: shape.note, head, rows })
}

/// Parameters in the order of the measurements, targets in that of the plan.
fn groups<'a>(results: &'a Results, shape: &Shape) -> Vec<Group<'a>> {
    let targets = results.targets();
    let mut groups: Vec<Group> = Vec::new();
    for line in of_shape(results, shape) {
        let parameters: Vec<String> =
            shape.parameters.iter().map(|(field, _)| parameter(&line[*field])).collect();
        let target = text_of(&line["target"]);
        match groups.iter_mut().find(|g| g.parameters == parameters && g.target == target) {
            Some(group) => group.lines.push(line),
            None => groups.push(Group { parameters, target, lines: vec![line] }),
        }
    }
    let mut order: Vec<Vec<String>> = Vec::new();
    for group in &groups {
        if !order.contains(&group.parameters) {
            order.push(group.parameters.clone());
        }
    }
    let place = |group: &Group| {
        let parameters = order.iter().position(|p| *p == group.parameters);
        (parameters, targets.iter().position(|t| *t == group.target))
    };
    groups.sort_by_key(place);
    groups
}

/// 5.0 GB are 5 GB.
fn parameter(value: &Value) -> String {
    value.as_f64().map_or_else(|| text_of(value), |number| number.to_string())
}

fn of_shape<'a>(results: &'a Results, shape: &Shape) -> Vec<&'a Value> {
    if shape.name == "held" {
        return if is_held(results) { results.of_kind("point").collect() } else { Vec::new() };
    }
    results.of_kind("trial").filter(|line| line["trial"] == shape.name).collect()
}

/// Whether snapshots were held under the workload.
pub fn is_held(results: &Results) -> bool {
    !results.plan_list("held").is_empty()
}

fn at<'a>(line: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(line, |value, name| &value[name])
}

impl Column {
    fn text(&self, lines: &[&Value]) -> String {
        let shown = |value: f64| short(value / self.divisor);
        let single = |value: Option<f64>| value.map_or("-".to_string(), shown);
        match self.of {
            Of::Last(path) => single(lines.last().and_then(|line| at(line, path).as_f64())),
            Of::Seconds(series, column, part) => {
                single(quantile(values(lines, series, column), part))
            }
            Of::SecondsLast(series, column) => {
                single(values(lines, series, column).last().copied())
            }
            Of::Median(path) => {
                match Figure::of(lines.iter().filter_map(|line| at(line, path).as_f64()).collect())
                {
                    None => "-".to_string(),
                    Some(f) if f.count == 1 || f.least == f.most => shown(f.median),
                    Some(f) => {
                        format!("{} ({} to {})", shown(f.median), shown(f.least), shown(f.most))
                    }
                }
            }
        }
    }
}

fn values(lines: &[&Value], series: &str, column: usize) -> Vec<f64> {
    let rows = lines.iter().flat_map(|line| line[series].as_array().into_iter().flatten());
    rows.filter_map(|row| row[column].as_f64()).collect()
}

/// The smallest value that `part` of all do not exceed.
fn quantile(mut values: Vec<f64>, part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * part).ceil() as usize;
    values.get(place.clamp(1, values.len().max(1)) - 1).copied()
}

/// Headings, and the charts below them.
pub fn charts(results: &Results) -> Vec<(String, Vec<String>)> {
    let of = |shape: &Shape| {
        let groups = groups(results, shape);
        let mut charts: Vec<String> =
            shape.bars.iter().filter_map(|bar| bars(&groups, bar)).collect();
        charts.extend(shape.curves.iter().filter_map(|curve| curves(&groups, curve)));
        (shape.title.to_string(), charts)
    };
    SHAPES.iter().map(of).filter(|(_, charts)| !charts.is_empty()).collect()
}

impl Group<'_> {
    fn name(&self) -> String {
        let words = std::iter::once(&self.target).chain(&self.parameters);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

fn bars(groups: &[Group], (field, title, unit): &(&str, &str, &str)) -> Option<String> {
    let bar = |group: &Group| {
        let figures = group.lines.iter().filter_map(|line| at(line, field).as_f64()).collect();
        // A difference of two times may fall below nothing; a bar cannot.
        Some((group.name(), vec![Figure::of(figures)?.median.max(0.0)]))
    };
    let bars: Vec<_> = groups.iter().filter_map(bar).collect();
    let axes = Axes { title, x: "", y: unit, marks: &[] };
    (!bars.is_empty()).then(|| stacked(&axes, &[unit], &bars))
}

/// The repetitions one after the other.
fn curves(groups: &[Group], curve: &Curve) -> Option<String> {
    let series = |group: &Group| {
        let (mut points, mut begun) = (Vec::new(), 0.0);
        for line in &group.lines {
            let rows = line[curve.series].as_array().map(Vec::as_slice).unwrap_or_default();
            points.extend(rows.iter().filter_map(|row| {
                let y = row[curve.at].as_f64()? / curve.divisor;
                Some(Point { x: begun + row[0].as_f64()?, y, spread: None })
            }));
            begun = points.last().map_or(begun, |point| point.x);
        }
        Series { name: group.name(), points }
    };
    let series: Vec<Series> = groups.iter().map(series).collect();
    let axes = Axes { title: curve.title, x: "seconds", y: curve.unit, marks: &[] };
    series.iter().any(|s| s.points.len() > 1).then(|| lines(&axes, &series))
}

/// Period by period: TPS, and what is kept.
pub fn periods(results: &Results) -> Vec<String> {
    if !is_held(results) {
        return Vec::new();
    }
    let of = |title: &str, unit: &str, path: &str, divisor: f64| {
        let series = |target: String| {
            let own = results.of_kind("point").filter(|line| line["target"] == *target);
            let point = |line: &Value| {
                let y = at(line, path).as_f64()? / divisor;
                Some(Point { x: line["repetition"].as_f64()?, y, spread: None })
            };
            Series { points: own.filter_map(point).collect(), name: target.clone() }
        };
        let series: Vec<Series> = results.targets().into_iter().map(series).collect();
        let axes = Axes { title, x: "period", y: unit, marks: &[] };
        series.iter().any(|s| s.points.len() > 1).then(|| lines(&axes, &series))
    };
    let mib = 1048576.0;
    [
        of("TPS, period by period", "TPS", "tps", 1.0),
        of("Store", "MiB", "sizes.store_bytes", mib),
        of("Log in use", "MiB", "sizes.log_used_bytes", mib),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// Two targets, two repetitions of a restart, one of them without TPS.
    pub fn recorded() -> Results {
        let targets = json!([{"name": "innodb"}, {"name": "sluice"}]);
        let config = json!({"kind": "config", "plan": {"targets": targets, "preset": "restart"}});
        let line = |target: &str, gb: f64, repetition: u32, restart_s: f64| {
            json!({"kind": "trial", "trial": "restart", "target": target, "gb": gb, "when": "commit",
                "change": "insert", "repetition": repetition, "restart_s": restart_s,
                "tps_after": [[1.0, 10.0], [2.0, 20.0]]})
        };
        let lines = [
            line("sluice", 5.0, 1, 0.2),
            line("innodb", 5.0, 1, 3.0),
            line("innodb", 5.0, 2, 5.0),
            line("sluice", 1.0, 1, -0.01),
        ];
        let all: Vec<String> =
            std::iter::once(&config).chain(&lines).map(|line| format!("{line}\n")).collect();
        Results::parse(&all.concat()).unwrap()
    }

    #[test]
    fn rows_are_grouped_and_ordered() {
        let tables = tables(&recorded());
        assert_eq!(tables.len(), 1);
        let rows: Vec<String> = tables[0].rows.iter().map(|row| row[..4].join(" ")).collect();
        assert_eq!(
            rows,
            ["innodb insert 5 commit", "sluice insert 5 commit", "sluice insert 1 commit"]
        );
        let at = tables[0].head.iter().position(|name| name == "restart s").unwrap();
        assert_eq!(tables[0].rows[0][at], "4 (3 to 5)");
        let at = tables[0].head.iter().position(|name| name == "TPS before").unwrap();
        assert_eq!(tables[0].rows[0][at], "-");
    }

    #[test]
    fn charts_have_bars_and_curves() {
        let charts = charts(&recorded());
        assert_eq!((charts.len(), charts[0].1.len()), (1, 2));
    }

    #[test]
    fn quantiles_of_seconds() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let at = |part| quantile(values.clone(), part);
        assert_eq!(
            (at(0.5), at(0.99), at(1.0), at(0.0)),
            (Some(50.0), Some(99.0), Some(100.0), Some(1.0))
        );
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }
}
