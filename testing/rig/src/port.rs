//! A TCP port for a server of a test.
//!
//! Not one that the kernel gives to clients: while the server is down, a client's connection could
//! get it, and a replica that tries again and again could even be connected to itself.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Reserved until it is dropped, also while no server listens.
pub struct Port {
    pub number: u16,
    _reservation: UnixListener,
}

/// Below this, other services have their ports.
const LOWEST: u16 = 20_000;

impl Port {
    pub fn reserve() -> Port {
        let free = (LOWEST..first_of_clients()).find_map(|number| {
            let reservation = reservation(number)?;
            TcpListener::bind(("127.0.0.1", number)).ok()?;
            Some(Port { number, _reservation: reservation })
        });
        free.expect("a free port")
    }
}

/// The lowest port that the kernel gives to clients.
fn first_of_clients() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > LOWEST + 100).unwrap_or(32_768)
}

/// Keeps other tests from the port: a name that only one process can have, and that goes with it.
/// `None` when another has it.
fn reservation(number: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("sluice-test-port-{number}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ports_are_the_same_and_none_is_a_clients() {
        let (one, other) = (Port::reserve(), Port::reserve());
        assert_ne!(one.number, other.number);
        assert!(one.number.max(other.number) < first_of_clients());
    }
}
