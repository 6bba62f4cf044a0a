-- SKIP LOCKED at REPEATABLE READ: the first entry after the range is locked, so InnoDB locks nothing of the gap
-- before it; Sluice locks the range (rule skip-locked-gap).
CREATE TABLE t1 (id INT NOT NULL, c1 INT NOT NULL, z INT NULL, PRIMARY KEY (id), KEY k2 (c1));
BEGIN;
INSERT INTO t1 (id,c1,z) VALUES (1,10,1);
-- session 2
BEGIN;
SELECT id,c1,z FROM t1 FORCE INDEX (k2) WHERE c1 BETWEEN 0 AND 4 FOR UPDATE SKIP LOCKED;
-- session 1
INSERT INTO t1 (id,c1,z) VALUES (2,4,2);
