-- A statement of READ COMMITTED has waited for a row whose INSERT is rolled back: Sluice keeps the lock of the
-- row, InnoDB's goes with the entry. The last INSERT waits in Sluice alone (rule row-gone).
CREATE TABLE t1 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
BEGIN;
INSERT INTO t1 (id,c1) VALUES (11,2);
-- session 2
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
BEGIN;
UPDATE t1 FORCE INDEX (`PRIMARY`) SET c1 = 13 WHERE id = 11;
-- session 1
ROLLBACK;
-- session 3
INSERT INTO t1 (id,c1) VALUES (11,17);
