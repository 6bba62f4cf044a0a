//! Schemas, rows and queries, as text files of SQL in `sets/`.
//!
//! A statement ends with a semicolon at the end of a line. In schema.sql and fill.sql `@N@` stands for N
//! times the scale, at least 1. In queries.sql a line `-- name` goes before each query. differ.txt says
//! why plans differ that are known to: `name: reason`.

/// Rows as a share of the full size.
#[derive(Clone, Copy, Debug)]
pub struct Scale(pub f64);

pub struct Query {
    pub name: String,
    pub sql: String,
}

pub struct Set {
    pub name: &'static str,
    pub schema: Vec<String>,
    pub fill: Vec<String>,
    pub queries: Vec<Query>,
    reasons: Vec<(String, String)>,
}

macro_rules! set {
    ($name:literal) => {
        Set::new(
            $name,
            include_str!(concat!("../sets/", $name, "/schema.sql")),
            include_str!(concat!("../sets/", $name, "/fill.sql")),
            include_str!(concat!("../sets/", $name, "/queries.sql")),
            include_str!(concat!("../sets/", $name, "/differ.txt")),
        )
    };
}

pub fn all() -> Result<Vec<Set>, String> {
    [set!("shop"), set!("trade"), set!("library")].into_iter().collect()
}

impl Scale {
    pub fn parse(text: &str) -> Result<Scale, String> {
        match text.parse::<f64>() {
            Ok(scale) if scale > 0.0 && scale <= 100.0 => Ok(Scale(scale)),
            _ => Err(format!("no scale between 0 and 100: {text}")),
        }
    }

    pub fn apply(self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len());
        for (i, part) in sql.split('@').enumerate() {
            match part.parse::<f64>() {
                Ok(full) if i % 2 == 1 => {
                    out.push_str(&((full * self.0).round().max(1.0) as u64).to_string());
                }
                _ => out.push_str(part),
            }
        }
        out
    }
}

impl Set {
    fn new(
        name: &'static str,
        schema: &str,
        fill: &str,
        queries: &str,
        reasons: &str,
    ) -> Result<Set, String> {
        let queries = queries_of(queries).map_err(|e| format!("{name}: {e}"))?;
        let mut known = Vec::new();
        for line in reasons.lines().filter(|line| !line.trim().is_empty()) {
            let (query, reason) =
                line.split_once(": ").ok_or_else(|| format!("{name}: no reason in {line}"))?;
            if !queries.iter().any(|q| q.name == query) {
                return Err(format!("{name}: a reason for {query}, which is no query"));
            }
            known.push((query.to_owned(), reason.to_owned()));
        }
        let (schema, fill) = (statements(schema), statements(fill));
        Ok(Set { name, schema, fill, queries, reasons: known })
    }

    /// Why the plans of this query differ, if it is known.
    pub fn reason(&self, query: &str) -> Option<&str> {
        self.reasons.iter().find(|(name, _)| name == query).map(|(_, reason)| reason.as_str())
    }

    pub fn is_meant_by(&self, only: &str) -> bool {
        only.split('/').next() == Some(self.name)
    }

    pub fn is_meant(&self, only: &str, query: &str) -> bool {
        only == self.name || only == format!("{}/{query}", self.name)
    }
}

fn statements(text: &str) -> Vec<String> {
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let text = lines.join("\n") + "\n";
    text.split(";\n").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

fn queries_of(text: &str) -> Result<Vec<Query>, String> {
    let mut queries: Vec<Query> = Vec::new();
    for part in text.split("-- ").skip(1) {
        let (name, sql) = part.split_once('\n').ok_or("a name without a query")?;
        let name = name.trim().to_owned();
        let [sql] = &statements(sql)[..] else {
            return Err(format!("{name} is not one statement"));
        };
        if queries.iter().any(|q| q.name == name) {
            return Err(format!("two queries {name}"));
        }
        queries.push(Query { name, sql: sql.clone() });
    }
    Ok(queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_well_formed() {
        let sets = all().unwrap();
        assert_eq!(sets.iter().map(|s| s.name).collect::<Vec<_>>(), ["shop", "trade", "library"]);
        for set in &sets {
            assert!(set.queries.len() >= 20, "{}: {}", set.name, set.queries.len());
            assert!(!set.schema.is_empty() && !set.fill.is_empty());
        }
    }

    #[test]
    fn numbers_between_signs_are_scaled() {
        assert_eq!(
            Scale(0.1).apply("from seq_1_to_@500@ where x < @3@"),
            "from seq_1_to_50 where x < 1"
        );
        assert_eq!(Scale(1.0).apply("'a@b' @20@"), "'ab' 20");
        assert!(Scale::parse("0").is_err() && Scale::parse("x").is_err());
    }
}
