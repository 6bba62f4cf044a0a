-- After a statement that needs no partition a DELETE by the plan index finds no row, in InnoDB too.
-- Sluice has that plan here; after a SELECT it finds the row (rule partitions-find-later).
CREATE TABLE t107 (c1 INT NOT NULL, c2 BIT(1) NOT NULL, c3 TIME(2) NOT NULL, c4 CHAR(6) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci DEFAULT 'abcde', PRIMARY KEY (c2,c3,c1), KEY k7 (c3)) PARTITION BY LIST (c1) (PARTITION p0 VALUES IN (NULL), PARTITION p1 VALUES IN (8));
INSERT IGNORE INTO t107 (c1,c2,c3,c4) VALUES (19,1,'02:00:02.50','a'),(8,1,'02:00:01.99','x1');
UPDATE t107 FORCE INDEX (k7) SET c4 = 'aB' WHERE c1 = 13;
DELETE /*free*/ FROM t107 WHERE c3 IN ('02:00:00.50','02:00:01.99') ORDER BY c2,c3,c1 LIMIT 4;
