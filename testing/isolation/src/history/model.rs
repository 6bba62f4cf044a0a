//! What a run has recorded.

use std::collections::BTreeMap;
use std::fmt;

pub type Key = u64;
/// Written once in a history; 0 is none.
pub type Value = u64;
/// A place in the history.
pub type TxnId = usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A row is a list, a write appends to it, a read gives all of it.
    List,
    /// A row is a value with a version that each write raises by one.
    Register,
}

/// What a read gave for one key. Of a row that is not there: an empty list, or version 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    List(Vec<Value>),
    Register { version: u64, value: Value },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// `version` is what the write of a register reported.
    Write { key: Key, value: Value, version: u64 },
    /// `current`: a locking read, which sees the newest committed version.
    Read { key: Key, seen: Seen, current: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Committed,
    Aborted,
    /// COMMIT was sent, and the server was killed before it answered.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Txn {
    /// How many kills came before it.
    pub life: usize,
    pub ops: Vec<Op>,
    pub outcome: Outcome,
}

/// All rows at one time.
pub type State = BTreeMap<Key, Seen>;

#[derive(Clone, Debug)]
pub struct History {
    pub kind: Kind,
    pub txns: Vec<Txn>,
    /// The rows at the end of each life; the last one is the final state.
    pub states: Vec<State>,
    /// Answers of the server that no level explains.
    pub faults: Vec<String>,
}

impl History {
    pub fn new(kind: Kind) -> History {
        History { kind, txns: Vec::new(), states: Vec::new(), faults: Vec::new() }
    }

    pub fn nothing(&self) -> Seen {
        match self.kind {
            Kind::List => Seen::List(Vec::new()),
            Kind::Register => Seen::Register { version: 0, value: 0 },
        }
    }

    /// What the key held at the end of a life.
    pub fn at_end_of(&self, life: usize, key: Key) -> Seen {
        let state = self.states.get(life).or(self.states.last());
        state.and_then(|state| state.get(&key)).cloned().unwrap_or(self.nothing())
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        self.txns.iter().filter(|txn| txn.outcome == outcome).count()
    }
}

impl Txn {
    pub fn writes(&self) -> impl Iterator<Item = (Key, Value, u64)> + '_ {
        self.ops.iter().filter_map(|op| match op {
            Op::Write { key, value, version } => Some((*key, *value, *version)),
            Op::Read { .. } => None,
        })
    }
}

/// What is wrong, or only not serializable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anomaly {
    /// Acknowledged, and not in the final state.
    LostWrite,
    /// One write of a transaction is there and another one is not.
    TornCommit,
    /// A value that nobody wrote, or the same one twice.
    Garbage,
    /// A transaction does not see its own writes.
    Internal,
    /// A read of committed versions in another order than that of the final state.
    Order,
    G0,
    G1a,
    G1b,
    G1c,
    /// One anti-dependency, and the cycle comes back by a plain read: a snapshot that is none.
    ReadSkew,
    /// Two transactions read the same version and both replaced it.
    LostUpdate,
    /// One anti-dependency, and the cycle comes back by a write or a locking read.
    GSingle,
    /// Two anti-dependencies or more.
    G2Item,
}

impl Anomaly {
    pub fn name(self) -> &'static str {
        match self {
            Anomaly::LostWrite => "lost write",
            Anomaly::TornCommit => "torn commit",
            Anomaly::Garbage => "garbage",
            Anomaly::Internal => "internal inconsistency",
            Anomaly::Order => "incompatible order",
            Anomaly::G0 => "G0",
            Anomaly::G1a => "G1a",
            Anomaly::G1b => "G1b",
            Anomaly::G1c => "G1c",
            Anomaly::ReadSkew => "read skew",
            Anomaly::LostUpdate => "lost update",
            Anomaly::GSingle => "G-single",
            Anomaly::G2Item => "G2-item",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub anomaly: Anomaly,
    pub text: String,
}
