-- The scans of an index merge read by a snapshot in a locking read.
-- strict
CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT, KEY ka (a), KEY kb (b));
INSERT INTO t SELECT seq, seq, seq, 0 FROM seq_1_to_1000;
BEGIN;
SELECT COUNT(*) FROM t;
-- session 2
DELETE FROM t WHERE id = 5;
INSERT INTO t VALUES (2000,5,0,0);
-- session 1
SELECT * FROM t FORCE INDEX (ka,kb) WHERE a = 5 OR b = 7 FOR UPDATE;
