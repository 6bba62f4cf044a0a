-- REPLACE changes a virtual column by a trailing space: InnoDB's index keeps the old bytes (rule innodb-by-scan).
CREATE TABLE t1 (c1 BIGINT NOT NULL DEFAULT 19, c2 SET('z'), c3 VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_nopad_ci NOT NULL, c4 INT, c5 TINYTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci DEFAULT 'abcdz', c6 VARCHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci DEFAULT 'a', g7 INT AS (c2 IS NULL) STORED, g8 VARCHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci AS (UPPER(c6)) VIRTUAL, PRIMARY KEY (c1), KEY k13 (g7,g8));
INSERT INTO t1 (c1,c2,c3,c4,c5,c6) VALUES (20,DEFAULT,'z',NULL,'ab','m'),(9,NULL,'a',2,'a','a ');
REPLACE /*free*/ INTO t1 (c1,c2,c3,c4,c5,c6) SELECT c1,c2,c3,c1,c3,c3 FROM t1;
