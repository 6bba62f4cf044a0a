-- By an index alone, with a sort, the server shows virtual columns that it has not computed, on both sides.
-- Without an index both are right (rule sort-of-virtual).
CREATE TABLE t2 (c1 VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_as_cs NOT NULL, c5 INT DEFAULT 4, g6 INT AS (c5 DIV 3) VIRTUAL, PRIMARY KEY (c1), KEY k9 (g6));
INSERT INTO t2 (c1,c5) VALUES ('é',18);
SELECT /*ordered*/ g6 FROM t2 WHERE NOT (g6 IN (-2) OR c1 IN ('abcdefgh  ')) ORDER BY c1;
