-- A read in share mode must keep changes out.
-- strict
CREATE TABLE t (id INT PRIMARY KEY, c INT);
INSERT INTO t VALUES (1,1),(2,2);
BEGIN;
SELECT * FROM t WHERE id = 1 LOCK IN SHARE MODE;
-- session 2
UPDATE t SET c = 3 WHERE id = 1;
-- session 1
SELECT * FROM t WHERE id = 1 LOCK IN SHARE MODE;
COMMIT;
