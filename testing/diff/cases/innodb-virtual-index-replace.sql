-- InnoDB loses rows of a range by an index over a virtual column, after a REPLACE in the transaction.
-- Sluice gives what InnoDB gives without an index (rule innodb-by-scan).
CREATE TABLE t1 ( c3 INT NOT NULL, c5 INT, g8 INT AS (c5 DIV 3) VIRTUAL, PRIMARY KEY (c3), KEY k10 (g8));
SET autocommit=0;
INSERT INTO t1 (c3,c5) VALUES (12,NULL),(18,4),(14,8),(-3,20),(2,15),(-2147483648,13),(6,14);
REPLACE INTO t1 (c3) VALUES (14);
SELECT /*ordered*/ c3,c5 FROM t1 WHERE g8 <= 8 OR c3 IS NULL ORDER BY c3 LIMIT 1, 4;
