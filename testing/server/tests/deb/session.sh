# As root in a clean Debian with the packages in /srv/packages: from nothing to a restored backup.
apt-get -q -y install /srv/packages/*.deb 2>&1 | tail -n 2
mariadb -t -e "SELECT VERSION(), support FROM information_schema.engines WHERE engine = 'Sluice'"
mariadb -e "CREATE DATABASE shop; CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT, note VARCHAR(100), KEY (customer)) ENGINE=Sluice"
mariadb -e "INSERT INTO shop.orders (customer, note) SELECT seq % 1000, MD5(seq) FROM shop.seq_1_to_100000"
mariadb -e "UPDATE shop.orders SET note = CONCAT('again ', note) WHERE customer < 10; DELETE FROM shop.orders WHERE customer = 11"
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders"
# A kill -9 of the server and of the script that would start it again.
pkill -KILL 'mariadbd|mysqld_safe'
service mariadb start
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders"
sluice backup 'mysql://root@localhost/?socket=/run/mysqld/mysqld.sock' --to /srv/backup --only-sluice
# The machine is lost: server, programs and data. The backup is left.
SLUICE_REMOVE_ANYWAY=1 apt-get -q -y purge mariadb-server mariadb-server-core mariadb-plugin-sluice sluice-tools 2>&1 | tail -n 1
rm -rf /var/lib/mysql
apt-get -q -y install /srv/packages/*.deb 2>&1 | tail -n 1
service mariadb stop
mv /var/lib/mysql /var/lib/mysql.old
install -d -o mysql -g mysql -m 700 /var/lib/mysql
sluice restore --from /srv/backup --to /var/lib/mysql
service mariadb start
mariadb-upgrade | tail -n 1
service mariadb restart
mariadb -t -e "SELECT COUNT(*), SUM(customer), MAX(note) FROM shop.orders; CHECKSUM TABLE shop.orders"
mariadb-check --databases shop
