//! Anomalies planted in a recorded history: transactions on keys of their own, as a server that
//! fails in this way would have answered. A checker that does not find them is blind.

use super::model::{Anomaly, History, Key, Kind, Op, Outcome, Seen, Txn, TxnId, Value};

/// Writes transactions into a history. The values of a key are given as its whole list; of a
/// register the last one counts.
pub struct Forger<'a> {
    pub history: &'a mut History,
}

impl Forger<'_> {
    pub fn txn(&mut self, outcome: Outcome) -> TxnId {
        let life = self.history.states.len().saturating_sub(1);
        self.history.txns.push(Txn { life, ops: Vec::new(), outcome });
        self.history.txns.len() - 1
    }

    /// `version` counts the writes of the key up to and with this one.
    pub fn write(&mut self, txn: TxnId, key: Key, value: Value, version: u64) {
        self.history.txns[txn].ops.push(Op::Write { key, value, version });
    }

    pub fn seen(&self, list: &[Value]) -> Seen {
        match self.history.kind {
            Kind::List => Seen::List(list.to_vec()),
            Kind::Register => Seen::Register {
                version: list.len() as u64,
                value: list.last().copied().unwrap_or(0),
            },
        }
    }

    pub fn read(&mut self, txn: TxnId, key: Key, list: &[Value], current: bool) {
        let seen = self.seen(list);
        self.history.txns[txn].ops.push(Op::Read { key, seen, current });
    }

    pub fn ends_as(&mut self, key: Key, list: &[Value]) {
        let seen = self.seen(list);
        if self.history.states.is_empty() {
            self.history.states.push(Default::default());
        }
        if let Some(state) = self.history.states.last_mut() {
            state.insert(key, seen);
        }
    }
}

/// The keys and values of what is planted: no run uses them.
const X: Key = 1 << 60;
const Y: Key = X + 1;
const V: [Value; 4] = [X + 1, X + 2, X + 3, X + 4];

pub fn plant(history: &mut History, anomaly: Anomaly) {
    let mut forger = Forger { history };
    let (a, b) = (forger.txn(Outcome::Committed), forger.txn(Outcome::Committed));
    plant_cycle(&mut forger, anomaly, a, b);
    plant_answer(&mut forger, anomaly, a, b);
}

/// Anomalies that are cycles of dependencies.
fn plant_cycle(f: &mut Forger, anomaly: Anomaly, a: TxnId, b: TxnId) {
    let [v1, v2, v3, v4] = V;
    let (x, y) = (X, Y);
    match anomaly {
        // Each wrote over the other one.
        Anomaly::G0 => {
            f.write(a, x, v1, 1);
            f.write(b, x, v2, 2);
            f.write(b, y, v3, 1);
            f.write(a, y, v4, 2);
            f.ends_as(x, &[v1, v2]);
            f.ends_as(y, &[v3, v4]);
        }
        // Each saw the other one's write.
        Anomaly::G1c => {
            f.write(a, x, v1, 1);
            f.write(b, y, v2, 1);
            f.read(a, y, &[v2], false);
            f.read(b, x, &[v1], false);
            f.ends_as(x, &[v1]);
            f.ends_as(y, &[v2]);
        }
        // b wrote both; a saw one of them.
        Anomaly::ReadSkew => {
            f.read(a, x, &[], false);
            f.write(b, x, v1, 1);
            f.write(b, y, v2, 1);
            f.read(a, y, &[v2], false);
            f.ends_as(x, &[v1]);
            f.ends_as(y, &[v2]);
        }
        // The same, and a's second read locks.
        Anomaly::GSingle => {
            f.read(a, x, &[], false);
            f.write(b, x, v1, 1);
            f.write(b, y, v2, 1);
            f.read(a, y, &[v2], true);
            f.ends_as(x, &[v1]);
            f.ends_as(y, &[v2]);
        }
        // Both saw nothing and wrote.
        Anomaly::LostUpdate => {
            f.read(a, x, &[], false);
            f.read(b, x, &[], false);
            f.write(a, x, v1, 1);
            f.write(b, x, v2, 2);
            f.ends_as(x, &[v1, v2]);
        }
        // Each saw both before, and wrote one of them.
        Anomaly::G2Item => {
            f.read(a, x, &[], false);
            f.read(b, y, &[], false);
            f.write(a, y, v1, 1);
            f.write(b, x, v2, 1);
            f.ends_as(y, &[v1]);
            f.ends_as(x, &[v2]);
        }
        _ => {}
    }
}

/// Anomalies that one answer or the final state shows.
fn plant_answer(f: &mut Forger, anomaly: Anomaly, a: TxnId, b: TxnId) {
    let [v1, v2, ..] = V;
    let (x, y) = (X, Y);
    match anomaly {
        // b saw what a took back.
        Anomaly::G1a => {
            f.history.txns[a].outcome = Outcome::Aborted;
            f.write(a, x, v1, 1);
            f.read(b, x, &[v1], false);
        }
        // b saw the first of a's two writes.
        Anomaly::G1b => {
            f.write(a, x, v1, 1);
            f.write(a, x, v2, 2);
            f.read(b, x, &[v1], false);
            f.ends_as(x, &[v1, v2]);
        }
        // a wrote, and did not see it.
        Anomaly::Internal => {
            f.write(a, x, v1, 1);
            f.read(a, x, &[], false);
            f.ends_as(x, &[v1]);
        }
        // Committed, and gone.
        Anomaly::LostWrite => {
            f.write(a, x, v1, 1);
            f.ends_as(x, &[]);
        }
        // COMMIT was not answered; one write is there and one is not.
        Anomaly::TornCommit => {
            f.history.txns[a].outcome = Outcome::Unknown;
            f.write(a, x, v1, 1);
            f.write(a, y, v2, 1);
            f.ends_as(x, &[v1]);
            f.ends_as(y, &[]);
        }
        Anomaly::Garbage => f.read(b, x, &[v1], false),
        // Two readers saw the versions of x in two orders.
        Anomaly::Order => {
            f.write(a, x, v1, 1);
            f.write(b, x, v2, 2);
            let c = f.txn(Outcome::Committed);
            f.read(c, x, &[v2], false);
            f.ends_as(x, &[v1, v2]);
        }
        _ => {}
    }
}
