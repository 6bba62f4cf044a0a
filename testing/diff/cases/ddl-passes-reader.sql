-- InnoDB keeps its lock of a table that a prepared transaction has only read; in Sluice only changes stop DDL
-- (rule ddl-passes-reader).
CREATE TABLE t1 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
CREATE TABLE t2 (id INT NOT NULL, c1 INT NULL, PRIMARY KEY (id));
INSERT INTO t2 (id,c1) VALUES (1,1);
SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE;
XA START 'x@side@0';
INSERT INTO t1 (id,c1) VALUES (1,1);
SELECT * FROM t2;
XA END 'x@side@0';
XA PREPARE 'x@side@0';
-- disconnect
-- session 2
ALTER TABLE t2 COMMENT = 'c7';
