-- InnoDB waits at the first row, Sluice at the second one, after a warning for 0 in k6: the warnings
-- beside the error of the killed statement differ (rule ended-rows-further).
CREATE TABLE t2 (id INT NOT NULL AUTO_INCREMENT, c1 INT DEFAULT 16, g4 INT AS (c1 IS NULL) VIRTUAL, z INT, UNIQUE KEY k6 (g4), UNIQUE KEY k8 (id));
INSERT INTO t2 (id,c1,z) VALUES (0,1,14);
XA START 'x@side@0';
SELECT id,z FROM t2 FORCE INDEX (k8) WHERE id BETWEEN 2 AND 4 LOCK IN SHARE MODE;
-- session 2
INSERT IGNORE INTO t2 (id,c1) VALUES (20,8),(DEFAULT,0);
-- kill
