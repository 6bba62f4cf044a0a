//! What docs/captures shows of an installation: the commands of session.sh in a clean root, and what they say.

use crate::world::World;
use std::fs;

const COMMANDS: &str = include_str!("session.sh");

/// From `apt install` over a load of sysbench, a kill -9 and a lost machine to the restored rows. Leaves the
/// transcript beside the packages, as install.txt.
pub fn a_session_from_installation_to_a_restored_backup(w: &mut World) {
    w.without_tables();
    let purge = "SLUICE_REMOVE_ANYWAY=1 apt-get -y purge mariadb-server mariadb-server-core \
                 mariadb-plugin-sluice sluice-tools sysbench";
    w.root.sh(purge).ok();
    // As Debian has it, also if tests before have turned the binary log on.
    w.root.sh(&format!("rm -rf /var/lib/mysql /srv/backup {}", crate::BINLOG)).ok();
    w.root.pin(w.distribution.newest());
    let (mut transcript, mut answers) = (String::new(), Vec::new());
    for line in COMMANDS.lines() {
        if line.starts_with('#') {
            transcript.push_str(&format!("\n{line}\n"));
            continue;
        }
        let said = w.root.sh(&format!("{{ {line}; }} 2>&1")).ok();
        transcript.push_str(&format!("$ {line}\n{said}"));
        if line.contains("mariadb-plugin-sluice_") || line.ends_with("start") {
            w.wait_for_server();
        }
        if line.starts_with("pkill") {
            w.wait_for_end();
        }
        if line.contains("CHECKSUM TABLE") {
            answers.push(said);
        }
    }
    let file = w.packages.join("install.txt");
    fs::write(&file, transcript.trim_start()).expect("beside the packages");
    assert!(answers.len() == 3 && answers.iter().all(|a| *a == answers[0]), "{transcript}");
    assert!(answers[0].contains("99900"), "{transcript}");
    let tables = "SELECT COUNT(*) FROM information_schema.tables
                  WHERE table_schema = 'shop' AND engine = 'Sluice'";
    assert_eq!(w.root.sql(tables).trim(), "3", "those of sysbench, too");
    w.root.sh("rm -rf /var/lib/mysql.old /srv/backup").ok();
}
