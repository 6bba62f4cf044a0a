-- The last INSERT closes two cycles: with session 1, and with session 1 over session 2. Sluice ends each by its
-- lightest one, so both are victims; InnoDB ends session 1 alone (rule deadlock-further, or victim).
CREATE TABLE t1 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
INSERT INTO t1 (id,c1) VALUES (9,1),(12,1),(16,1);
-- session 3
BEGIN;
UPDATE t1 FORCE INDEX (`PRIMARY`) SET c1 = 11 WHERE id = 12;
-- session 2
DELETE /*free*/ t1 FROM t1 FORCE INDEX (`PRIMARY`) WHERE id = 12;
-- session 1
BEGIN;
SELECT id,c1 FROM t1 FORCE INDEX (`PRIMARY`) WHERE id >= 0 LOCK IN SHARE MODE;
-- session 3
INSERT INTO t1 (id,c1) VALUES (6,2);
