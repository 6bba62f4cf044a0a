//! A primary with tables in Sluice and its two replicas, each of which makes the tables in an engine
//! of its own: their definitions carry none.

use crate::load::Load;
use sluice_rig::port::Port;
use sluice_server_tests::replica::{catch_up, follow, listen, GRANT};
use sluice_server_tests::scratch::Scratch;
use sluice_server_tests::site::Site;
use std::time::Duration;

pub const DATABASE: &str = "sbtest";

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

pub struct World {
    pub primary: Site,
    pub sluice: Site,
    pub innodb: Site,
    port: Port,
    _scratch: Scratch,
}

fn site(scratch: &Scratch, name: &str, engine: &str, number: u32) -> Site {
    let number = format!("--server-id={number}");
    let others = ["--log-slave-updates", "--skip-slave-start", "--slave-net-timeout=10"];
    Site::new(scratch, name, engine, &[&[number.as_str()], &others[..]].concat())
}

impl World {
    pub fn new(test: &str) -> World {
        let scratch = Scratch::new("replicas", test);
        let mut world = World {
            primary: site(&scratch, "primary", "Sluice", 1),
            sluice: site(&scratch, "sluice", "Sluice", 2),
            innodb: site(&scratch, "innodb", "InnoDB", 3),
            port: Port::reserve(),
            _scratch: scratch,
        };
        world.start_primary();
        world.make_tables();
        world.sluice.start(&[]);
        world.innodb.start(&[]);
        world.follow(&world.sluice);
        world.follow(&world.innodb);
        world
    }

    /// On the same port each time, so that replicas find it after a kill.
    #[track_caller]
    pub fn start_primary(&mut self) {
        let [networking, address, number] = listen(&self.port);
        let semi_sync = "--rpl-semi-sync-master-timeout=30000";
        self.primary.start(&[&networking, &address, &number, semi_sync]);
    }

    fn make_tables(&self) {
        self.primary.run(&[GRANT, "CREATE DATABASE sbtest"]);
        let size = setting("SIZE", 5000);
        for table in tables() {
            let create = format!(
                "CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, \
                 c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k))"
            );
            let fill = format!(
                "INSERT INTO {table} (k, c, pad) \
                 SELECT seq, LEFT(SHA2(seq, 512), 119), SHA1(seq) FROM seq_1_to_{size}"
            );
            self.primary.run(&["USE sbtest", &create, &fill]);
        }
    }

    /// Makes a replica follow the primary, and apply in parallel.
    #[track_caller]
    pub fn follow(&self, replica: &Site) {
        let threads = "SET GLOBAL slave_parallel_threads = 4";
        replica.run(&[threads, "SET GLOBAL slave_parallel_mode = optimistic"]);
        follow(replica, &self.port);
    }

    /// A load of this time, and of enough commits on a slow device.
    #[track_caller]
    pub fn load_for(&self, time: Duration) {
        let load = Load::start(&self.primary);
        std::thread::sleep(time);
        load.wait_for(150);
        load.end();
    }

    /// The replica catches up, and then has the tables of the primary.
    #[track_caller]
    pub fn is_equal(&self, replica: &Site) {
        catch_up(replica, &self.primary);
        let checksums = format!("CHECKSUM TABLE {}", tables().collect::<Vec<_>>().join(", "));
        let wanted = self.primary.rows(&checksums);
        assert!(wanted.iter().all(|row| row[1] != "NULL"), "{wanted:?}");
        assert_eq!(replica.rows(&checksums), wanted, "tables");
    }

    #[track_caller]
    pub fn both_are_equal(&self) {
        self.is_equal(&self.sluice);
        self.is_equal(&self.innodb);
    }

    #[track_caller]
    pub fn stop(mut self) {
        self.sluice.stop();
        self.innodb.stop();
        self.primary.stop();
    }
}

fn tables() -> impl Iterator<Item = String> {
    (1..=setting("TABLES", 4)).map(|number| format!("{DATABASE}.sbtest{number}"))
}
