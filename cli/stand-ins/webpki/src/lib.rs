//! Stands in for webpki 0.22. The mysql crate names two of its error types and nothing else of it (rustls
//! verifies with rustls-webpki), and it would bring ring, whose licence is "Apache-2.0 AND ISC". Neither
//! error is ever made, but for the name of a host that is no name.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {}

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDnsNameError;

impl fmt::Display for InvalidDnsNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a host")
    }
}

impl std::error::Error for InvalidDnsNameError {}
