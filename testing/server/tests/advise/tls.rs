//! Encrypted connections: verified, and refused with the reason.

use crate::{says, World, USUAL};
use sluice_rig::port::Port;
use sluice_rig::suite::skip;
use sluice_rig::tool::{ensure_package, is_silent_about, run, Home};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn openssl(dir: &Path, args: &str) {
    run(Command::new("openssl").args(args.split(' ')).current_dir(dir)).ok();
}

/// A certificate authority, and what it signed: for the server of this host, for another, for a
/// client; and another authority.
fn certificates(dir: &Path) {
    fs::create_dir(dir).expect("a new directory");
    for (key, authority) in [("ca", "ca"), ("x", "stranger")] {
        openssl(
            dir,
            &format!(
                "req -x509 -newkey rsa:2048 -nodes -keyout {key}.key -out {authority}.pem -days 2 \
                 -subj /CN={key}"
            ),
        );
    }
    for (name, subject) in
        [("server", "IP:127.0.0.1"), ("other", "DNS:other.example"), ("client", "DNS:client")]
    {
        fs::write(dir.join("ext"), format!("subjectAltName={subject}\n")).expect("a file");
        let request =
            format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out csr -subj /CN=one");
        openssl(dir, &request);
        openssl(
            dir,
            &format!(
                "x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
                 -out {name}.pem"
            ),
        );
    }
}

struct Encrypted<'a> {
    world: &'a World,
    home: Home,
    port: String,
    certificates: PathBuf,
}

impl Encrypted<'_> {
    /// Starts the server, anew if it runs, with this certificate.
    fn start(&self, certificate: &str) {
        if self.home.dir.exists() {
            self.home.stop();
        }
        let file = |name: &str| self.certificates.join(name).display().to_string();
        let ca = format!("--ssl-ca={}", file("ca.pem"));
        let cert = format!("--ssl-cert={}", file(&format!("{certificate}.pem")));
        let key = format!("--ssl-key={}", file(&format!("{certificate}.key")));
        let ours = ["--port", &self.port, "--min-free-mib", "256", "--", &ca, &cert, &key];
        let usual = USUAL.iter().filter(|option| !option.contains("performance"));
        let args: Vec<_> = ours.into_iter().chain(usual.copied()).collect();
        run(&mut self.home.server("start", &args)).ok();
    }

    /// What one look of the user with these parts of an address says.
    fn look(&self, user: &str, parts: &str) -> String {
        let address = format!("mysql://{user}@127.0.0.1:{}/?{parts}", self.port);
        let args = ["writes", &address, "--interval", "1", "--count", "1"];
        run(self.world.tool.sluice(args).env("MYSQL_PWD", "pw")).text()
    }

    #[track_caller]
    fn sees(&self, user: &str, parts: &str) {
        let shown = self.look(user, parts);
        says("commits/s", &shown);
        is_silent_about("sluice: error", &shown);
    }
}

pub fn tls_verifies_and_says_why_not(w: &mut World) {
    if !ensure_package("openssl") {
        skip("openssl cannot be installed");
    }
    let certificates_dir = w.tool.work.join("certs");
    certificates(&certificates_dir);
    let of = |name: &str| certificates_dir.join(name).display().to_string();
    let reserved = Port::reserve();
    let (home, port) = (w.tool.home("tls"), reserved.number.to_string());
    let server = Encrypted { world: w, home, port, certificates: certificates_dir.clone() };
    server.start("server");
    server.home.sql(
        "CREATE USER encrypted@'127.0.0.1' IDENTIFIED BY 'pw' REQUIRE SSL;
         CREATE USER known@'127.0.0.1' IDENTIFIED BY 'pw' REQUIRE X509;
         CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'pw'",
    );
    let ca = format!("ssl-ca={}", of("ca.pem"));
    let stranger = format!("ssl-ca={}", of("stranger.pem"));
    server.sees("encrypted", &ca);
    says("Access denied", &server.look("encrypted", ""));
    says("Access denied", &server.look("known", &ca));
    let known = format!("{ca}&ssl-cert={}&ssl-key={}", of("client.pem"), of("client.key"));
    server.sees("known", &known);
    says("ssl-ca=PATH names the authority", &server.look("encrypted", &stranger));
    server.sees("encrypted", &format!("{stranger}&ssl-verify-server-cert=0"));
    says("cannot read /nowhere", &server.look("encrypted", "ssl-ca=/nowhere"));
    server.home.sql("SET GLOBAL require_secure_transport = ON");
    says("add ssl-ca=PATH", &server.look("plain", ""));
    server.sees("plain", &ca);
    server.start("other");
    says("invalid peer certificate", &server.look("encrypted", &ca));
    let target = format!("t=mysql://plain@127.0.0.1:{}/?{ca}", server.port);
    let args = ["bench", "run", "--dry-run", "--target", &target, "--out"];
    run(w.tool.sluice(args).arg(w.tool.work.join("none"))).refuses("use a tunnel");
    server.home.stop();
}
