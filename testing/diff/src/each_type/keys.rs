//! Kinds of keys that a column may have.

/// A name, the clauses of CREATE TABLE, and whether the column may be NULL.
pub struct Key {
    pub name: &'static str,
    pub clause: String,
    pub nullable: bool,
}

const BLOBS: [&str; 5] = ["blob", "text", "json", "geometry", "point"];

pub fn is_blob(column: &str) -> bool {
    let definition = column.split(" as ").next().unwrap_or_default();
    BLOBS.iter().any(|word| definition.contains(word))
}

/// The kinds of keys of a column of this definition.
pub fn of(column: &str, is_text: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut add = |name, clause: &str, nullable| {
        keys.push(Key { name, clause: clause.to_owned(), nullable });
    };
    if column.contains("compressed") {
        add("none", "PRIMARY KEY (id)", true);
        return keys;
    }
    let whole = match column {
        _ if column.contains("geometry") || column.contains("point") => "v(25)",
        _ if is_blob(column) => "v(20)",
        _ => "v",
    };
    if !column.contains(" virtual") && !is_blob(column) {
        add("primary", "PRIMARY KEY k (v), KEY i (id)", false);
        add("primary2", "PRIMARY KEY k (v, id), KEY i (id)", false);
    }
    add("secondary", &format!("PRIMARY KEY (id), KEY k ({whole})"), true);
    add("unique", &format!("PRIMARY KEY (id), UNIQUE KEY k ({whole})"), true);
    add("hidden", &format!("KEY k ({whole})"), true);
    add("desc", &format!("PRIMARY KEY (id), KEY k ({whole} DESC)"), true);
    add("desc_unique", &format!("PRIMARY KEY (id DESC), UNIQUE KEY k ({whole} DESC, w)"), true);
    if is_text {
        add("prefix", "PRIMARY KEY (id), KEY k (v(2))", true);
        add("prefix_unique", "PRIMARY KEY (id), UNIQUE KEY k (v(3))", true);
        add("hash", "PRIMARY KEY (id), KEY k (v(2)), UNIQUE KEY h (v) USING HASH", true);
    }
    keys
}
