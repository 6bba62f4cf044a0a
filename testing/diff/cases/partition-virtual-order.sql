-- Records of several partitions are merged by the columns of the index, so the engine must compute virtual ones in
-- records that are not the server's own. InnoDB's order is wrong where several columns are virtual (rule
-- innodb-by-scan).
CREATE TABLE t3 (c1 INT, c2 VARCHAR(20), b TEXT AS (CONCAT(c2, c1)) VIRTUAL, s VARCHAR(30) AS (CONCAT(c2, c1 % 3)) VIRTUAL, g3 INT AS (c1 % 7) VIRTUAL, KEY k1 (g3), KEY k2 (s), KEY k3 (b(5)), KEY k4 (s(2) DESC, g3)) PARTITION BY HASH (c1) PARTITIONS 3;
INSERT INTO t3 (c1,c2) VALUES (1,'a'),(18,'b'),(4,'a'),(5,'Z'),(6,'c'),(7,'a'),(8,'b'),(9,'A'),(10,'d'),(11,'B'),(12,NULL),(NULL,'x'),(13,'a'),(20,'zz'),(21,'bb');
SELECT g3,c1 FROM t3 FORCE INDEX (k1) ORDER BY g3 DESC, c1;
SELECT g3,COUNT(*),MIN(c1) FROM t3 FORCE INDEX (k1) GROUP BY g3;
SELECT s,COUNT(*),MIN(c1),MIN(b) FROM t3 FORCE INDEX (k2) GROUP BY s;
SELECT s FROM t3 FORCE INDEX (k2) WHERE s > 'b' ORDER BY s;
SELECT b FROM t3 FORCE INDEX (k3) ORDER BY b;
SELECT b,c1 FROM t3 FORCE INDEX (k3) WHERE b > 'a' ORDER BY b DESC;
SELECT LEFT(s,2),COUNT(*) FROM t3 FORCE INDEX (k4) GROUP BY LEFT(s,2);
SELECT s,g3,c1 FROM t3 FORCE INDEX (k4) WHERE s >= 'b' ORDER BY s, g3, c1;
UPDATE t3 SET c1 = c1 + 3 WHERE g3 > 2 ORDER BY g3 LIMIT 4;
DELETE FROM t3 WHERE s > 'b' ORDER BY s LIMIT 2;
SELECT * FROM t3 FORCE INDEX (k2) ORDER BY s, c1;
SELECT MAX(g3),MIN(g3),MAX(s),MIN(s) FROM t3;
DROP TABLE t3;
CREATE TABLE t3 (c1 INT, g3 INT AS (c1 % 7) VIRTUAL, KEY k4 (g3)) PARTITION BY HASH (c1) PARTITIONS 3;
REPLACE INTO t3 (c1) VALUES (1),(18),(4);
SELECT g3,MIN(c1),COUNT(*) FROM t3 WHERE 1 GROUP BY g3;
