//! Global transaction ids, and how far each domain is.

use crate::Result;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gtid {
    pub domain: u32,
    pub server: u32,
    pub sequence: u64,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

impl Gtid {
    pub fn parse(text: &str) -> Result<Gtid> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let parsed = || {
            let [domain, server, sequence] = parts[..] else { return None };
            let (domain, server) = (domain.parse().ok()?, server.parse().ok()?);
            Some(Gtid { domain, server, sequence: sequence.parse().ok()? })
        };
        parsed()
            .ok_or_else(|| format!("'{text}' is no GTID: it has the form DOMAIN-SERVER-SEQUENCE"))
    }

    /// Several, separated by commas; "" is none.
    pub fn parse_list(text: &str) -> Result<Vec<Gtid>> {
        text.split(',').filter(|one| !one.trim().is_empty()).map(Gtid::parse).collect()
    }
}

/// The newest transaction of each server in each domain, as the server has it in `gtid_binlog_state`.
#[derive(Clone, Debug, Default)]
pub struct State {
    servers: BTreeMap<(u32, u32), u64>,
    /// The newest of each domain.
    domains: BTreeMap<u32, Gtid>,
}

impl State {
    /// The newest of a domain comes last of it.
    pub fn of(gtids: impl IntoIterator<Item = Gtid>) -> State {
        let mut state = State::default();
        gtids.into_iter().for_each(|gtid| state.add(gtid));
        state
    }

    pub fn add(&mut self, gtid: Gtid) {
        self.servers.insert((gtid.domain, gtid.server), gtid.sequence);
        self.domains.insert(gtid.domain, gtid);
    }

    pub fn newest(&self, domain: u32) -> Option<Gtid> {
        self.domains.get(&domain).copied()
    }

    pub fn newest_of_all(&self) -> impl Iterator<Item = &Gtid> {
        self.domains.values()
    }

    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Does it say the same of each server in each domain? The order within a domain does not matter.
    pub fn is_same(&self, other: &State) -> bool {
        self.servers == other.servers
    }

    /// Does it say the same of each server in each domain that `self` has?
    pub fn is_part_of(&self, whole: &State) -> bool {
        self.servers.iter().all(|(server, sequence)| whole.servers.get(server) == Some(sequence))
    }

    /// For each domain the newer one of both.
    pub fn with_newer_of(mut self, other: &State) -> State {
        for gtid in other.domains.values() {
            if self.newest(gtid.domain).is_none_or(|own| own.sequence < gtid.sequence) {
                self.add(*gtid);
            }
        }
        self
    }

    /// As `gtid_binlog_pos` has it.
    pub fn position(&self) -> String {
        let newest: Vec<String> = self.domains.values().map(Gtid::to_string).collect();
        newest.join(",")
    }

    /// As `gtid_binlog_state` has it: the newest of a domain comes last of it.
    pub fn text(&self) -> String {
        let mut all: Vec<Gtid> = self
            .servers
            .iter()
            .map(|(&(domain, server), &sequence)| Gtid { domain, server, sequence })
            .collect();
        all.sort_by_key(|gtid| (gtid.domain, self.newest(gtid.domain) == Some(*gtid), gtid.server));
        all.iter().map(Gtid::to_string).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> State {
        State::of(Gtid::parse_list(text).unwrap())
    }

    #[test]
    fn gtids_are_read_and_shown() {
        assert_eq!(Gtid::parse(" 1-2-3").unwrap().to_string(), "1-2-3");
        for text in ["", "1-2", "1-2-3-4", "1-2-x", "-1-2-3", "1-2-99999999999999999999"] {
            assert!(Gtid::parse(text).is_err(), "{text}");
        }
        assert_eq!(Gtid::parse_list("").unwrap(), []);
    }

    #[test]
    fn a_state_knows_the_newest_of_each_domain() {
        let state = state("0-2-7,0-1-9,3-1-4");
        assert_eq!(state.position(), "0-1-9,3-1-4");
        assert_eq!(state.text(), "0-2-7,0-1-9,3-1-4");
    }

    #[test]
    fn states_are_compared_by_server_and_domain() {
        assert!(state("0-2-7,0-1-9").is_same(&state("0-1-9,0-2-7")));
        assert!(!state("0-2-7").is_same(&state("0-2-7,0-1-9")));
        assert!(state("0-2-7").is_part_of(&state("0-2-7,0-1-9")));
        assert!(!state("0-2-8").is_part_of(&state("0-2-7,0-1-9")));
        assert_eq!(
            state("0-1-5,1-1-1").with_newer_of(&state("0-2-4,1-1-9,2-1-1")).position(),
            "0-1-5,1-1-9,2-1-1"
        );
    }
}
