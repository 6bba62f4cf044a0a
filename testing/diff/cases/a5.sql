-- The query cache gave old rows.
CREATE TABLE t (id INT PRIMARY KEY, c INT);
INSERT INTO t VALUES (1,1);
SET query_cache_type=ON;
BEGIN;
UPDATE t SET c = 2;
-- session 2
SET query_cache_type=ON;
SELECT * FROM t;
-- session 1
COMMIT;
-- session 2
SELECT * FROM t;
