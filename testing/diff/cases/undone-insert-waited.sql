-- An INSERT has waited for a gap and is undone by ROLLBACK TO SAVEPOINT: the SELECT of session 3, which waits
-- for the new key, goes on.
CREATE TABLE t1 (c1 INT, c2 INT NOT NULL DEFAULT 17, z INT, KEY k7 (c1 DESC), KEY k8 (c2));
INSERT INTO t1 (c1,z) VALUES (13,11),(3,11);
-- session 2
BEGIN;
SELECT c1,z FROM t1 FORCE INDEX (k8) WHERE c2 > 10 LOCK IN SHARE MODE;
SAVEPOINT s1;
-- session 3
UPDATE t1 FORCE INDEX (k7) SET z = 4 WHERE c1 <= 12;
-- session 2
INSERT INTO t1 (c1,c2,z) VALUES (4,19,-1);
-- session 3
SELECT c1,z FROM t1 FORCE INDEX (k7) WHERE c1 = 4 LOCK IN SHARE MODE;
-- session 2
ROLLBACK TO SAVEPOINT s1;
