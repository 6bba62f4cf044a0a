//! TLS: what an address asks for, and how it is done. See docs/decisions/0022-tls.md.
//!
//! A server is verified, its chain and its name, unless the address says in so many words that it is not.

use crate::Result;
use mysql::{ClientIdentity, SslOpts};
use std::path::PathBuf;

/// Where distributions keep the certificate authorities that they trust.
const SYSTEM_LISTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The parts `ssl...` of an address; the names are those of the options of the mariadb client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    asked: Option<bool>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    verify: Option<bool>,
}

impl Tls {
    /// Takes a part of an address; false if it is none of these.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "ssl" => self.asked = Some(flag(name, value)?),
            "ssl-ca" => self.ca = Some(value.into()),
            "ssl-cert" => self.cert = Some(value.into()),
            "ssl-key" => self.key = Some(value.into()),
            "ssl-verify-server-cert" => self.verify = Some(flag(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An address that names a file, or says how to verify, asks for TLS.
    pub fn is_asked(&self) -> bool {
        let named = self.ca.is_some() || self.cert.is_some() || self.verify.is_some();
        self.asked.unwrap_or(named)
    }

    pub fn check(&self) -> Result<()> {
        match (&self.cert, &self.key) {
            (Some(_), None) | (None, Some(_)) => {
                Err("ssl-cert and ssl-key are only of use together".to_string())
            }
            _ => Ok(()),
        }
    }

    /// The parts of CHANGE MASTER, in the same order; one without a file is a switch.
    pub fn of_replica(&self) -> Vec<(&'static str, Option<String>)> {
        if !self.is_asked() {
            return Vec::new();
        }
        let files = [
            ("MASTER_SSL_CA", &self.ca),
            ("MASTER_SSL_CERT", &self.cert),
            ("MASTER_SSL_KEY", &self.key),
        ];
        let named = files
            .into_iter()
            .filter_map(|(name, path)| Some((name, Some(path.as_ref()?.display().to_string()))));
        let verify =
            (self.verify != Some(false)).then_some(("MASTER_SSL_VERIFY_SERVER_CERT", None));
        [("MASTER_SSL", None)].into_iter().chain(named).chain(verify).collect()
    }

    pub(super) fn options(&self) -> Result<SslOpts> {
        if !graviola::util::is_cpu_supported() {
            return Err(
                "TLS needs a processor with AES, AVX2 and ADX instructions (x86-64), or AES and SHA2 \
                        (ARM): use a tunnel, such as ssh -L"
                    .to_string(),
            );
        }
        // The second and later calls find it installed.
        let _ = rustls_graviola::default_provider().install_default();
        let system = || SYSTEM_LISTS.iter().map(PathBuf::from).find(|path| path.exists());
        let ca = self.ca.clone().or_else(system);
        let ca = ca.ok_or("no list of certificate authorities on this host: add ssl-ca=PATH")?;
        for path in [Some(&ca), self.cert.as_ref(), self.key.as_ref()].into_iter().flatten() {
            std::fs::File::open(path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        }
        let identity = self.cert.clone().zip(self.key.clone());
        Ok(SslOpts::default()
            .with_root_cert_path(Some(ca))
            .with_client_identity(identity.map(|(cert, key)| ClientIdentity::new(cert, key)))
            .with_danger_accept_invalid_certs(self.verify == Some(false)))
    }
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "" | "1" | "on" | "true" => Ok(true),
        "0" | "off" | "false" => Ok(false),
        _ => Err(format!("{name} is 1 or 0")),
    }
}
