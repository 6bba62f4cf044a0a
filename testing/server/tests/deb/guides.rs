//! The commands that docs/using.md, docs/install.md and the tarball's INSTALL tell people to run, in a clean root.

use crate::world::World;
use sluice_rig::tool::run;
use sluice_server_tests::guide::{block, set_in};
use std::process::Command;

const TEXT: &str = "packaging/tarball/INSTALL";

/// Tables with names and forms that a simple ALTER TABLE would miss.
const TABLES: &str = "
    CREATE TABLE shop.parts (id INT) ENGINE=Sluice PARTITION BY HASH (id) PARTITIONS 2;
    INSERT INTO shop.parts VALUES (1), (2), (3);
    CREATE TABLE shop.`odd ``name` (id INT PRIMARY KEY, note TEXT) ENGINE=Sluice;
    INSERT INTO shop.`odd ``name` VALUES (7, 'kept');";

#[track_caller]
fn is_away(w: &World) {
    w.wait_for_server();
    assert_eq!(w.engine(), "");
    for path in [
        "/var/lib/mysql/sluice",
        "/etc/mysql/mariadb.conf.d/sluice.cnf",
        "/usr/lib/mysql/plugin/ha_sluice.so",
        "/usr/lib/mysql/plugin/sluice",
    ] {
        assert!(!w.root.has(path), "{path} is left");
    }
    let engines = "SELECT GROUP_CONCAT(DISTINCT engine) FROM information_schema.tables
                   WHERE table_schema = 'shop'";
    assert_eq!(w.root.sql(engines).trim(), "InnoDB");
    let rows = "SELECT (SELECT SUM(id) FROM shop.orders), (SELECT SUM(id) FROM shop.parts), note
                FROM shop.`odd ``name` WHERE id = 7";
    assert_eq!(w.root.sql(rows).trim(), "1\t6\tkept");
}

/// The position of a replica, which may be in a table of the engine, too.
const POSITION: &str = "
    CREATE TABLE mysql.gtid_slave_pos_Sluice LIKE mysql.gtid_slave_pos;
    ALTER TABLE mysql.gtid_slave_pos_Sluice ENGINE=Sluice;
    INSERT INTO mysql.gtid_slave_pos_Sluice VALUES (0, 1, 9, 42);";

pub fn the_guide_leads_away_from_the_packages(w: &mut World) {
    w.without_tables();
    w.with_table().sql(TABLES);
    w.root.sql(POSITION);
    w.follow(&block("docs/using.md", "## Uninstall"));
    is_away(w);
    assert!(!w.is_installed());
    assert_eq!(w.root.sql("SELECT @@gtid_slave_pos").trim(), "0-9-42");
    w.root.sql("DROP TABLE mysql.gtid_slave_pos_Sluice; SET GLOBAL gtid_slave_pos = ''");
}

pub fn a_tarball_comes_and_goes_by_its_text(w: &mut World) {
    w.without_tables();
    w.root.apt("purge mariadb-plugin-sluice sluice-tools").ok();
    w.root.sh("rm -rf /var/lib/mysql/sluice /srv/tarball; mkdir /srv/tarball").ok();
    let made = w.tool.work.join("tarball");
    let unpack = "tar -xf \"$1\"/*.tar.xz --strip-components=1 -C \"$2\"/srv/tarball";
    run(&mut w.pack_compiled("scripts/tarball", &made)).ok();
    run(Command::new("sh").args(["-ec", unpack, "unpack"]).arg(&made).arg(&w.root.dir)).ok();
    let text = |from, to| {
        // The directories of Debian's server.
        let commands = set_in(TEXT, from, to).replace("/usr/lib64/mysql", "/usr/lib/mysql");
        commands.replace("/etc/my.cnf.d", "/etc/mysql/mariadb.conf.d")
    };
    w.follow(&format!("cd /srv/tarball\n{}", text("As root, with", "Then restart")));
    w.follow("systemctl restart mariadb");
    w.wait_for_server();
    assert_eq!(w.engine(), "YES");
    w.root.sql("CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY) ENGINE=Sluice");
    w.root.sql("INSERT INTO shop.orders VALUES (1)");
    w.root.sql(TABLES);
    w.follow(&format!("cd /srv/tarball\n{}", text("Away again", "doc/using.md")));
    is_away(w);
    let left = w.root.sh("find /usr/local -name '*sluice*'").ok();
    assert_eq!(left, "", "files of the tarball");
}
