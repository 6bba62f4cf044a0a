//! From the server of one distribution to that of the next, by packages: docs/install.md, "A newer server". Two
//! roots take part. A run for the older one leaves the data directory of a server that was killed; a run for the
//! newer one serves it.

use crate::world::World;
use crate::BINLOG;
use sluice_rig::suite::skip;
use sluice_rig::tool::{is_silent_about, run, says, wait_until};
use sluice_server_tests::guide::block;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The distribution before the one that the newer packages are for.
const OLDER: &str = "bookworm";

/// What must be there again: sums of rows, and the end of the binary log.
const STATE: &str = "CHECKSUM TABLE shop.orders, shop.stock, shop.parts; SELECT @@gtid_binlog_pos";

/// Beside the packages of both: the data directory as a tar file, and STATE before the kill.
fn kept(w: &World, name: &str) -> PathBuf {
    w.packages.with_file_name(format!("killed-{OLDER}.{name}"))
}

fn use_binlog(w: &World) {
    w.stop();
    w.root.sh(&format!("printf '[mariadbd]\nlog-bin = bin\nserver-id = 7\n' >{BINLOG}")).ok();
}

pub fn leaves_the_data_directory_of_a_killed_server(w: &mut World) {
    if w.distribution.suite != OLDER {
        skip("it is for the distribution after this one, for which there are no packages");
    }
    w.without_tables();
    use_binlog(w);
    w.start();
    let root = w.with_table();
    root.sql(
        "CREATE TABLE shop.stock (id INT PRIMARY KEY, n INT) ENGINE=InnoDB;
         CREATE TABLE shop.parts (id INT, note VARCHAR(200), KEY (note)) ENGINE=Sluice
             PARTITION BY HASH (id) PARTITIONS 2;
         BEGIN;
         INSERT INTO shop.orders SELECT seq FROM shop.seq_2_to_20000;
         INSERT INTO shop.stock SELECT seq, seq % 7 FROM shop.seq_1_to_1000;
         INSERT INTO shop.parts SELECT seq, REPEAT(MD5(seq), 1 + seq % 5) FROM shop.seq_1_to_20000;
         COMMIT;
         UPDATE shop.parts SET note = 'changed' WHERE id % 9 = 0;",
    );
    // A transaction that has no end.
    let open =
        "BEGIN; INSERT INTO shop.orders VALUES (-1); DELETE FROM shop.parts WHERE id < 5000; \
                SELECT SLEEP(600)";
    root.sh(&format!("mariadb -e '{open}' >/dev/null 2>&1 &")).ok();
    let sleeps = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'";
    wait_until("the transaction", Duration::from_secs(30), || root.sql(sleeps).trim() == "1");
    let state = root.sql(STATE);
    w.kill();
    let part = kept(w, "part");
    let mut tar = Command::new("tar");
    tar.arg("--sparse").arg("-cf").arg(&part).arg("-C").arg(root.dir.join("var/lib"));
    run(tar.arg("mysql")).ok();
    fs::rename(part, kept(w, "tar")).expect("beside the packages");
    fs::write(kept(w, "txt"), &state).expect("beside the packages");
    w.start();
    assert_eq!(root.sql(STATE), state, "in the server that was killed");
    end(w);
}

/// As Debian has it again, for other tests.
fn end(w: &World) {
    w.root.sql("DROP DATABASE shop");
    w.stop();
    w.root.sh(&format!("rm {BINLOG}")).ok();
}

pub fn serves_the_data_directory_of_the_distribution_before(w: &mut World) {
    if w.distribution.suite == OLDER {
        skip("there are no packages for the distribution before this one");
    }
    let Ok(state) = fs::read_to_string(kept(w, "txt")) else {
        skip(format!("no {}: make test-deb leaves it", kept(w, "txt").display()));
    };
    w.without_tables();
    use_binlog(w);
    let root = &w.root;
    let unpack = "rm -rf \"$2/srv/mysql\" && tar -xf \"$1\" -C \"$2/srv\"";
    run(Command::new("sh").args(["-ec", unpack, "unpack"]).arg(kept(w, "tar")).arg(&root.dir)).ok();
    w.follow(&block("docs/install.md", "## A newer server"));
    w.wait_for_server();
    says(w.distribution.releases().last().expect("a server"), &root.sql("SELECT @@version"));
    assert_eq!((root.sql(STATE), w.engine().as_str()), (state, "YES"));
    root.sql("INSERT INTO shop.orders VALUES (-1)");
    let tables = root.sh("mariadb-check --databases mysql shop").ok().to_lowercase();
    is_silent_about("error", &tables);
    is_silent_about("upgrade required", &tables);
    w.stop();
    says("no damage found", &root.sh("sluice inspect /var/lib/mysql verify").ok());
    w.start();
    end(w);
    root.sh("rm -rf /srv/mysql /var/lib/mysql.empty").ok();
}
