//! Tables of every kind of column, key and storage, in the database `kinds`: their content as text, and
//! whether all of their indexes agree. For tests of what outlives a change of the server or of the engine.

use crate::site::Site;
use std::fmt::Write;

/// Each names its character set: servers have different defaults. No AUTO_INCREMENT value, time or random
/// number but those of the statements.
const TABLES: [&str; 13] = [
    "CREATE TABLE kinds.types (id INT AUTO_INCREMENT PRIMARY KEY, ti TINYINT, su SMALLINT UNSIGNED, bi BIGINT, \
     f FLOAT, d DOUBLE, de DECIMAL(20,4), bt BIT(10), da DATE, t TIME(3), dt DATETIME(6), ts TIMESTAMP(2) NULL, \
     y YEAR, c CHAR(20), vc VARCHAR(200), bn BINARY(4), vb VARBINARY(30), e ENUM('a','b','c'), \
     s SET('x','y','z'), u UUID, i6 INET6, j JSON, KEY (de, f), KEY (dt DESC, ti), KEY (c), UNIQUE (vc, id), \
     KEY (vb(5)), KEY (e, s), KEY (u), KEY (t, da)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    "CREATE TABLE kinds.generated (id INT PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL, \
     p INT AS (a + 1) PERSISTENT, w VARCHAR(20) AS (CONCAT('w', a)) VIRTUAL, KEY (v), UNIQUE (w), KEY (p)) \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
    "CREATE TABLE kinds.no_key (a INT, b VARCHAR(50), KEY (b DESC), KEY (a)) \
     DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_nopad_ci",
    "CREATE TABLE kinds.words (w VARCHAR(60) COLLATE utf8mb4_uca1400_as_cs NOT NULL PRIMARY KEY, \
     x VARCHAR(60) COLLATE utf8mb4_bin, y VARCHAR(60) COLLATE utf8mb4_unicode_ci, \
     z CHAR(60) COLLATE utf8mb4_swedish_ci, n VARCHAR(60) COLLATE utf8mb4_uca1400_nopad_ai_ci, \
     KEY (x), KEY (y), KEY (z), KEY (n(10)), UNIQUE (y, x)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
    "CREATE TABLE kinds.longs (id INT PRIMARY KEY, t LONGTEXT, b LONGBLOB, KEY (t(20))) \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
    "CREATE TABLE kinds.packed (id INT PRIMARY KEY, v VARCHAR(300), KEY (v)) COMPRESSION='zstd:9' \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
    "CREATE TABLE kinds.plain (id INT PRIMARY KEY, v VARCHAR(300), KEY (v)) COMPRESSION=none \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
    "CREATE TABLE kinds.parts (id INT AUTO_INCREMENT, r INT NOT NULL, v VARCHAR(30), PRIMARY KEY (id, r), KEY (r), \
     KEY (v)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci PARTITION BY RANGE (r) \
     (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), \
     PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE kinds.descending (a INT, b INT, c VARCHAR(20), PRIMARY KEY (a DESC, b), KEY (c DESC, a)) \
     DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    "CREATE TABLE kinds.history (id INT PRIMARY KEY, v INT, KEY (v)) WITH SYSTEM VERSIONING",
    "CREATE TABLE kinds.inplace (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(40)) \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
    "CREATE TABLE kinds.truncated (id INT AUTO_INCREMENT PRIMARY KEY, a INT, KEY (a))",
    "CREATE TABLE kinds.dropped (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a), KEY (b)) \
     DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci",
];

/// From 11.5 on the end of time is later: a table with system versioning, of any engine, that an older
/// server made shows none of its current rows until mariadb-upgrade has rebuilt it.
pub const HISTORY: &str = "kinds.history";

/// Rows for a checkpoint.
const ROWS: [&str; 13] = [
    "INSERT INTO kinds.types SELECT seq, seq % 128, seq * 300, -1000000007 * CAST(seq AS SIGNED), seq / 7, SQRT(seq) * IF(seq % 2, 1, -1), \
     seq * 1234.5678, seq * 5, DATE'2000-01-01' + INTERVAL seq * 37 DAY, SEC_TO_TIME(seq * 61.5), \
     TIMESTAMP'1970-01-01 00:00:00.000001' + INTERVAL seq * 86399.25 SECOND, FROM_UNIXTIME(1000000000 + seq * 99991), \
     1950 + seq, CONCAT('c', seq % 50), REPEAT(CONCAT('v', seq, ' '), seq % 30), UNHEX(LPAD(HEX(seq), 8, '0')), \
     UNHEX(CONCAT('00FF', LPAD(HEX(seq), 6, '0'))), ELT(seq % 3 + 1, 'a', 'b', 'c'), seq % 8, \
     CONCAT('00000000-0000-1000-8000-', LPAD(seq, 12, '0')), CONCAT('::', HEX(seq)), \
     CONCAT('{\"n\": ', seq, '}') FROM kinds.seq_1_to_150",
    "INSERT INTO kinds.types (id) VALUES (1000)",
    "INSERT INTO kinds.generated (id, a) SELECT seq, seq * 3 FROM kinds.seq_1_to_100",
    "INSERT INTO kinds.generated (id, a) VALUES (1000, NULL), (1001, NULL)",
    "INSERT INTO kinds.no_key SELECT seq % 20, CONCAT('b', seq % 30, REPEAT(' ', seq % 3)) FROM kinds.seq_1_to_200",
    "INSERT INTO kinds.longs SELECT seq, REPEAT(MD5(seq), seq * 200), REPEAT(UNHEX(MD5(seq + 100)), seq * 300) \
     FROM kinds.seq_1_to_8",
    "INSERT INTO kinds.packed SELECT seq, REPEAT(MD5(seq), 1 + seq % 8) FROM kinds.seq_1_to_300",
    "INSERT INTO kinds.plain SELECT seq, REPEAT(MD5(seq), 1 + seq % 8) FROM kinds.seq_1_to_200",
    "INSERT INTO kinds.parts (r, v) SELECT seq % 300, CONCAT('p', seq) FROM kinds.seq_1_to_300",
    "INSERT INTO kinds.descending SELECT seq % 17, seq, CONCAT('d', seq % 23) FROM kinds.seq_1_to_150",
    "INSERT INTO kinds.history SELECT seq, seq FROM kinds.seq_1_to_40",
    "INSERT INTO kinds.inplace (a, b) SELECT seq % 97, CONCAT('i', seq % 53) FROM kinds.seq_1_to_600",
    "INSERT INTO kinds.dropped SELECT seq, seq, REPEAT('x', 50) FROM kinds.seq_1_to_200",
];

/// Changes for the log after it.
const CHANGES: [&str; 20] = [
    "UPDATE kinds.types SET f = f + 1, vc = CONCAT('new ', vc), j = '[1, 2]' WHERE id % 10 = 3",
    "DELETE FROM kinds.types WHERE id BETWEEN 60 AND 69",
    "INSERT INTO kinds.types (ti, c) VALUES (1, 'after'), (2, 'after')",
    "UPDATE kinds.generated SET a = a + 1000 WHERE id % 4 = 0",
    "DELETE FROM kinds.no_key WHERE a = 7",
    "UPDATE kinds.no_key SET b = 'moved' WHERE a = 8",
    "UPDATE kinds.longs SET t = CONCAT(t, 'end') WHERE id < 4",
    "UPDATE kinds.longs SET b = 'short' WHERE id = 5",
    "DELETE FROM kinds.longs WHERE id = 6",
    "UPDATE kinds.packed SET v = CONCAT('p', v) WHERE id % 9 = 0",
    "UPDATE kinds.plain SET id = id + 10000 WHERE id % 9 = 0",
    "UPDATE kinds.parts SET r = r + 150 WHERE r % 20 = 0",
    "ALTER TABLE kinds.parts DROP PARTITION p0",
    "UPDATE kinds.descending SET a = a + 1 WHERE b % 5 = 0",
    "UPDATE kinds.history SET v = v + 100 WHERE id % 3 = 0",
    "ALTER TABLE kinds.inplace ADD INDEX a (a DESC), ADD UNIQUE b (b, id), ALGORITHM=INPLACE",
    "DELETE FROM kinds.inplace WHERE id = 600",
    "INSERT INTO kinds.truncated (a) VALUES (1), (2), (3)",
    "TRUNCATE kinds.truncated",
    "DROP TABLE kinds.dropped",
];

/// One answer for each. Parts of them go by every index.
const QUESTIONS: [&str; 25] = [
    "CHECKSUM TABLE kinds.types, kinds.generated, kinds.no_key, kinds.words, kinds.longs, kinds.packed, kinds.plain, \
     kinds.parts, kinds.descending, kinds.inplace, kinds.truncated EXTENDED",
    "SELECT id, ti, su, bi, f, d, de, HEX(bt), da, t, dt, UNIX_TIMESTAMP(ts), y, c, vc, HEX(bn), HEX(vb), e, s, u, i6, j \
     FROM kinds.types WHERE id % 10 IN (0, 3) ORDER BY id",
    "SELECT COUNT(*), SUM(id), SUM(bi), SUM(de) FROM kinds.types",
    "SELECT id, dt FROM kinds.types FORCE INDEX (dt) WHERE dt > '1970-03-01' ORDER BY dt DESC LIMIT 10",
    "SELECT id FROM kinds.types FORCE INDEX (de) WHERE de BETWEEN 10000 AND 60000 ORDER BY de",
    "SELECT id FROM kinds.types FORCE INDEX (c) WHERE c IN ('c7', 'AFTER ') ORDER BY c, id",
    "SELECT id FROM kinds.types FORCE INDEX (e) WHERE e = 'b' AND s = 'x,z' ORDER BY id",
    "SELECT id FROM kinds.types FORCE INDEX (u) WHERE u > '00000000-0000-1000-8000-000000000140' ORDER BY u",
    "SELECT * FROM kinds.generated FORCE INDEX (v) WHERE v > 500 ORDER BY v",
    "SELECT id FROM kinds.generated FORCE INDEX (w) WHERE w LIKE 'W1%' ORDER BY w",
    "SELECT a, b, COUNT(*) FROM kinds.no_key FORCE INDEX (b) GROUP BY a, b ORDER BY a, b",
    "SELECT HEX(w), HEX(x) FROM kinds.words FORCE INDEX (PRIMARY) ORDER BY w",
    "SELECT HEX(y) FROM kinds.words FORCE INDEX (y) ORDER BY y, x",
    "SELECT HEX(z) FROM kinds.words FORCE INDEX (z) WHERE z > 'a' ORDER BY z, w",
    "SELECT HEX(w) FROM kinds.words FORCE INDEX (n) WHERE n = _utf8mb4 x'41CC8872676572' ORDER BY w",
    "SELECT id, LENGTH(t), MD5(t), LENGTH(b), MD5(b) FROM kinds.longs ORDER BY id",
    "SELECT id FROM kinds.longs FORCE INDEX (t) WHERE t LIKE 'C%' ORDER BY t",
    "SELECT COUNT(*), SUM(id), MIN(v), MAX(v), SUM(LENGTH(v)) FROM kinds.packed FORCE INDEX (v) WHERE v > ''",
    "SELECT COUNT(*), SUM(id), MIN(v), MAX(v), SUM(LENGTH(v)) FROM kinds.plain FORCE INDEX (v) WHERE v > ''",
    "SELECT COUNT(*), SUM(id), SUM(r) FROM kinds.parts PARTITION (p2)",
    "SELECT id, r FROM kinds.parts FORCE INDEX (v) WHERE v LIKE 'p12%' ORDER BY v",
    "SELECT a, b, c FROM kinds.descending FORCE INDEX (c) WHERE c IN ('d4', 'd22') ORDER BY c DESC, a, b",
    "SELECT id, v FROM kinds.history ORDER BY id",
    "SELECT COUNT(*), SUM(v) FROM kinds.history FOR SYSTEM_TIME ALL",
    "SELECT COUNT(*), SUM(id) FROM kinds.inplace FORCE INDEX (a) WHERE a BETWEEN 10 AND 30",
];

/// Letters with accents, of several bytes, ligatures, and spaces at the end.
const WORDS: [&str; 19] = [
    "Ärger",
    "arger",
    "Arger",
    "straße",
    "strasse",
    "STRASSE",
    "æon",
    "aeon",
    "żółw",
    "zolw",
    "ŋ",
    "日本",
    "日本語",
    "😀",
    "😀 a",
    "a ",
    "Ж",
    "ж",
    "ﬁ",
];

fn insert_words() -> String {
    let rows = WORDS.iter().enumerate().map(|(n, word)| {
        let hex: String = word.bytes().map(|byte| format!("{byte:02X}")).collect();
        let one = format!("_utf8mb4 x'{hex}'");
        format!("({one}, CONCAT({n}, {one}), {one}, {one}, {one})")
    });
    format!("INSERT INTO kinds.words VALUES {}", rows.collect::<Vec<_>>().join(", "))
}

/// Makes the tables, in Sluice, with rows.
#[track_caller]
pub fn make(site: &Site) {
    site.run(&["CREATE DATABASE kinds"]);
    for table in TABLES {
        // Options of a table come after its columns and before its partitions.
        let (front, parts) = table.split_at(table.find(" PARTITION BY").unwrap_or(table.len()));
        site.run(&[&format!("{front} ENGINE=Sluice{parts}")]);
    }
    site.run(&ROWS);
    site.run(&[&insert_words(), "ANALYZE TABLE kinds.types, kinds.packed"]);
}

/// Changes rows and tables.
#[track_caller]
pub fn change(site: &Site) {
    site.run(&CHANGES);
    site.run(&["BEGIN", "DELETE FROM kinds.types", "UPDATE kinds.packed SET v = 'no'", "ROLLBACK"]);
}

/// Questions with their answers: a line for the question, one for each row, an empty one.
#[track_caller]
pub fn content(site: &Site) -> String {
    let mut text = String::new();
    for question in QUESTIONS {
        writeln!(text, "> {question}").expect("a string");
        for row in site.rows(question) {
            writeln!(text, "{}", row.join("\t")).expect("a string");
        }
        text.push('\n');
    }
    text
}

/// The answers that are about another table than `left_out`.
fn answers<'a>(content: &'a str, left_out: &str) -> Vec<&'a str> {
    let is_left_out = |answer: &str| !left_out.is_empty() && answer.contains(left_out);
    content.split("\n\n").filter(|answer| !is_left_out(answer)).collect()
}

/// Fails at the first answer that is another one.
#[track_caller]
pub fn same(found: &str, wanted: &str, left_out: &str) {
    let (found, wanted) = (answers(found, left_out), answers(wanted, left_out));
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found, wanted);
    }
    assert_eq!(found.len(), wanted.len(), "answers");
}

/// Every row is in every index, and the other way round, in all tables but `left_out`.
#[track_caller]
pub fn check(site: &Site, database: &str, left_out: &str) {
    let names = format!("SHOW TABLES FROM {database}");
    let names = site.rows(&names).into_iter().map(|row| format!("{database}.{}", row[0]));
    let tables: Vec<_> = names.filter(|name| name != left_out).collect();
    assert!(!tables.is_empty(), "no tables in {database}");
    let answer = site.rows(&format!("CHECK TABLE {} EXTENDED", tables.join(", ")));
    let is_ok = |row: &Vec<String>| row[2] == "status" && row[3] == "OK";
    assert!(answer.len() == tables.len() && answer.iter().all(is_ok), "{answer:#?}");
}
