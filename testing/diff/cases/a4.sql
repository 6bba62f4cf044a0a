-- A copying ALTER lost the rows of a prepared transaction without a session.
-- strict
CREATE TABLE t (id INT PRIMARY KEY);
XA START 'x@side@';
INSERT INTO t VALUES (1);
XA END 'x@side@';
XA PREPARE 'x@side@';
-- disconnect
-- session 2
SET innodb_lock_wait_timeout=0, sluice_lock_wait_timeout=0;
ALTER TABLE t FORCE;
XA COMMIT 'x@side@';
SELECT * FROM t;
