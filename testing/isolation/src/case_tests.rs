use super::*;

const TEXT: &str = "
# A comment.
case one
about Two writers.
levels READ COMMITTED, serializable
setup
  create table t (id int)
steps
  a: begin
  b: select 'x: y'
  a: !timeout 2
  b: !kill a
  check: select * from t
anomaly
  b1: rows (x: y)
differs at SERIALIZABLE
  b1 InnoDB: waits until a2, then ok 1
  b1 Sluice: ok 1
  because it may
";

#[test]
fn a_case_is_read() {
    let cases = parse("file", TEXT).unwrap();
    let case = &cases[0];
    assert_eq!((cases.len(), case.name.as_str(), case.about.as_str()), (1, "one", "Two writers."));
    assert_eq!(case.levels, [Level::ReadCommitted, Level::Serializable]);
    let labels: Vec<&str> = case.steps.iter().map(|s| s.label.as_str()).collect();
    assert_eq!(labels, ["a1", "b1", "a2", "b2", "check1"]);
    assert_eq!(case.steps[1].action, Action::Sql("select 'x: y'".into()));
    assert_eq!(case.steps[2].action, Action::Timeout(2));
    assert_eq!(case.steps[3].action, Action::Kill("a".into()));
    assert_eq!(case.anomaly, [("b1".to_string(), "rows (x: y)".to_string())]);
    let difference = &case.differences[0];
    assert_eq!(difference.steps[0].2, "waits until a2, then ok 1");
    assert_eq!(difference.reason, "it may");
}

#[test]
fn a_faulty_case_is_refused() {
    for (from, to) in [
        ("about Two writers.", "about"),
        ("b1 InnoDB", "b7 InnoDB"),
        ("  because it may", ""),
        ("levels READ COMMITTED", "levels COMMITTED"),
        ("!timeout 2", "!timeout soon"),
        ("  a: begin", "  begin"),
        ("case one", ""),
        ("  check: select * from t", "  check: select * from t\n  a: select 1"),
    ] {
        assert!(parse("file", &TEXT.replace(from, to)).is_err(), "{from} -> {to}");
    }
}
