-- A FOR UPDATE must keep another FOR UPDATE out.
-- strict
CREATE TABLE t (id INT PRIMARY KEY, c INT);
INSERT INTO t VALUES (1,1),(2,2);
BEGIN;
SELECT * FROM t WHERE id = 1 FOR UPDATE;
-- session 2
BEGIN;
SELECT * FROM t WHERE id = 1 FOR UPDATE;
-- session 1
UPDATE t SET c = 3 WHERE id = 1;
COMMIT;
-- session 2
COMMIT;
