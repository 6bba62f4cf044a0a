-- Session 1's INSERT has put two rows and waits at the third one in Sluice; in InnoDB it waits for a gap at its
-- first row. So session 3's SELECT meets a deadlock in Sluice alone (rule waits-elsewhere), and its transaction is
-- undone on both sides. That sets the INSERT and the DELETE to work at once. In Sluice the DELETE waits for the
-- first row of the INSERT and removes it; in InnoDB it waits for the entry after its range, and comes first (rule
-- order-of-woken). The second INSERT of session 3 is left out (rule unfinished-seen), in every order.
CREATE TABLE t1 (id INT NOT NULL AUTO_INCREMENT, c1 INT DEFAULT 5, c4 INT NOT NULL DEFAULT 10, z INT, PRIMARY KEY (id), KEY k5 (c4), KEY k6 (c1));
REPLACE INTO t1 (id,c1,c4,z) VALUES (DEFAULT,16,-3,0);
-- session 3
XA START 'x@side@2';
UPDATE t1 FORCE INDEX (k6) SET id = 14, c1 = 12 WHERE c1 > 14;
-- session 1
INSERT INTO t1 (id,c1,c4,z) VALUES (NULL,-1,1,14),(16,10,13,20),(0,20,10,17);
-- session 3
INSERT INTO t1 (id,c1,c4,z) VALUES (0,4,12,0);
-- session 2
DELETE /*free*/ t1 FROM t1 FORCE INDEX (k6) WHERE c1 < 0;
-- session 3
SELECT id,z FROM t1 FORCE INDEX (k5) WHERE c4 BETWEEN 13 AND 17 FOR UPDATE;
