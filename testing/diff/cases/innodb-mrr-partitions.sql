-- With mrr=on and mrr_sort_keys=on InnoDB gives error 1032 for a range over partitions.
-- Sluice gives what InnoDB gives without an index (rule innodb-by-scan).
CREATE TABLE t1 (c1 INT NOT NULL, c3 VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci, c4 INT, KEY k6 (c1), KEY k7 (c1,c3(2))) PARTITION BY HASH (c1) PARTITIONS 3;
INSERT INTO t1 (c1,c3) VALUES (15,'z');
SET optimizer_switch='default,index_merge=off,index_merge_sort_intersection=on,mrr=on,mrr_sort_keys=on,join_cache_incremental=off';
INSERT INTO t1 (c3,c1,c4) VALUES ('ab',15,2),('x1',14,16);
SELECT c3,c4 FROM t1 WHERE c1 > 11;
