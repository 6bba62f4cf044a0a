-- A range of an index merge over the descending prefix of a virtual column lost rows.
CREATE TABLE t1 (id INT NOT NULL AUTO_INCREMENT, c5 INT, c6 VARCHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL, g7 VARCHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci AS (LEFT(c6, 2)) VIRTUAL, PRIMARY KEY (id), UNIQUE KEY k8 (g7(1) DESC));
INSERT INTO t1 (id,c5,c6) VALUES (DEFAULT,-2147483648,'b');
ALTER TABLE t1 ADD KEY k12 (c5);
INSERT INTO t1 (id,c5,c6) VALUES (DEFAULT,9,'abcdz'),(0,NULL,'c') ON DUPLICATE KEY UPDATE c6 = 'abcdz';
SELECT /*ordered*/ id,g7 FROM t1 IGNORE INDEX (k12) WHERE id = 10 OR g7 = 'A' OR g7 LIKE 'A%';
