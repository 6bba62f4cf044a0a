-- A locking read of a range must keep inserts out of it.
-- strict
CREATE TABLE t (id INT PRIMARY KEY, c INT);
INSERT INTO t VALUES (1,1),(9,9);
BEGIN;
SELECT * FROM t WHERE id BETWEEN 2 AND 8 FOR UPDATE;
-- session 2
INSERT INTO t VALUES (5,5);
-- session 1
SELECT * FROM t WHERE id BETWEEN 2 AND 8 FOR UPDATE;
COMMIT;
