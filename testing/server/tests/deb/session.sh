# As root in a clean Debian with the packages in /srv/packages: from nothing to a restored backup.
cd /srv/packages && apt install -y ./mariadb-plugin-sluice_*.deb ./sluice-tools_*.deb 2>&1 | tail -n 2
mariadb -t -e "SELECT VERSION(), support FROM information_schema.engines WHERE engine = 'Sluice'"
mariadb -e "CREATE DATABASE shop; CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT, note VARCHAR(100), KEY (customer)) ENGINE=Sluice"
mariadb -e "INSERT INTO shop.orders (customer, note) SELECT seq % 1000, MD5(seq) FROM shop.seq_1_to_100000"
mariadb -e "UPDATE shop.orders SET note = CONCAT('again ', note) WHERE customer < 10; DELETE FROM shop.orders WHERE customer = 11"
# Five seconds of a load that reads and writes, in tables that sysbench makes.
apt install -y sysbench 2>&1 | grep 'Setting up sysbench'
sysbench oltp_read_write --mysql-socket=/run/mysqld/mysqld.sock --mysql-user=root --mysql-db=shop --mysql-storage-engine=Sluice --tables=2 --table-size=20000 prepare
sysbench oltp_read_write --mysql-socket=/run/mysqld/mysqld.sock --mysql-user=root --mysql-db=shop --tables=2 --table-size=20000 --threads=4 --time=5 run | grep -E 'transactions:|errors:|95th'
mariadb -t -e "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'shop' ORDER BY table_name"
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders, shop.sbtest1, shop.sbtest2"
# A kill -9 of the server and of the script that would start it again.
pkill -KILL 'mariadbd|mysqld_safe'
service mariadb start
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders, shop.sbtest1, shop.sbtest2"
sluice backup 'mysql://root@localhost/?socket=/run/mysqld/mysqld.sock' --to /srv/backup --only-sluice
# The machine is lost: server, programs and data. The backup is left.
SLUICE_REMOVE_ANYWAY=1 apt purge -y mariadb-server mariadb-server-core mariadb-plugin-sluice sluice-tools 2>&1 | tail -n 1
rm -rf /var/lib/mysql
cd /srv/packages && apt install -y ./mariadb-plugin-sluice_*.deb ./sluice-tools_*.deb 2>&1 | tail -n 1
service mariadb stop
mv /var/lib/mysql /var/lib/mysql.old
install -d -o mysql -g mysql -m 700 /var/lib/mysql
sluice restore --from /srv/backup --to /var/lib/mysql
service mariadb start
mariadb-upgrade | tail -n 1
service mariadb restart
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders, shop.sbtest1, shop.sbtest2"
mariadb-check --databases shop
