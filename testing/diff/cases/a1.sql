-- An UPDATE by another index of a table with a prefix in its primary key changed nothing.
CREATE TABLE t (a VARCHAR(40) NOT NULL, b INT NOT NULL, c INT, PRIMARY KEY (a(5),b), KEY k (c));
INSERT INTO t VALUES ('abcdefgh',1,1),('zzz',2,1);
UPDATE t SET a = 'q' WHERE c = 1;
SELECT * FROM t;
