-- InnoDB loses a row of a range by an index over a virtual column, with mrr=on.
-- Sluice gives what InnoDB gives without an index (rule innodb-by-scan).
SET optimizer_switch='default,mrr=on,mrr_cost_based=off';
CREATE TABLE t1 (c1 INT, c3 SMALLINT, g6 INT AS (c3 % 7) VIRTUAL, g7 INT AS (c3 DIV 3) STORED, UNIQUE KEY k10 (g6 DESC));
INSERT INTO t1 (c3) VALUES (16),(14) ON DUPLICATE KEY UPDATE c3 = c3;
SELECT c1,g7 FROM t1 WHERE g6 BETWEEN 0 AND 1;
