-- After ROLLBACK TO SAVEPOINT the transaction holds no row, so Sluice lets the server give back its metadata
-- locks; InnoDB holds the table. ALTER TABLE goes on in Sluice alone (rule savepoint-lets-ddl-by).
CREATE TABLE t1 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
CREATE TABLE t2 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
BEGIN;
SELECT * FROM t2;
SAVEPOINT s1;
INSERT INTO t1 (id,c1) VALUES (1,1);
-- session 2
ALTER TABLE t1 COMMENT = 'c4';
-- session 1
ROLLBACK TO SAVEPOINT s1;
COMMIT;
