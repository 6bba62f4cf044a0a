//! A server that follows another one by its GTIDs.

use crate::site::Site;
use crate::{wait_until, PATIENCE};
use sluice_rig::port::Port;
use std::time::Instant;

/// What makes a server listen on a port of this machine.
pub fn listen(port: &Port) -> [String; 3] {
    [
        "--skip-networking=0".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--port={}", port.number),
    ]
}

/// The account that replicas use.
pub const GRANT: &str = "GRANT ALL ON *.* TO r@'127.0.0.1' IDENTIFIED BY 'r'";

/// Makes `replica` follow the server on the port from its own position.
#[track_caller]
pub fn follow(replica: &Site, port: &Port) {
    let master = format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='r', \
         MASTER_PASSWORD='r', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos",
        port.number
    );
    replica.run(&[&master, "START SLAVE"]);
}

/// Fails if the replica has an error.
#[track_caller]
pub fn applies(replica: &Site) {
    let status = replica.row("SHOW SLAVE STATUS");
    assert_eq!(status["Last_SQL_Errno"], "0", "{}", status["Last_SQL_Error"]);
}

/// Waits until the replica has all that the primary has written, and both of its threads run.
#[track_caller]
pub fn catch_up(replica: &Site, primary: &Site) {
    let wanted = primary.value("SELECT @@gtid_binlog_pos");
    let begun = Instant::now();
    let wait = format!("SELECT MASTER_GTID_WAIT('{wanted}', 2)");
    while replica.value(&wait) != "0" {
        applies(replica);
        let status = replica.row("SHOW SLAVE STATUS");
        assert!(begun.elapsed() < PATIENCE, "the replica is not at {wanted}: {status:#?}");
    }
    applies(replica);
    wait_until("both threads of the replica run", || {
        let status = replica.row("SHOW SLAVE STATUS");
        status["Slave_IO_Running"] == "Yes" && status["Slave_SQL_Running"] == "Yes"
    });
}
