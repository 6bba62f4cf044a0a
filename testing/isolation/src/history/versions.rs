//! The order of each key's committed versions, and what every transaction's end was.

use super::model::{Anomaly, Finding, History, Key, Outcome, Seen, TxnId, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Committed,
    Aborted,
    /// Its COMMIT was under way when the server was killed, and is not in the log. A reader that
    /// saw its writes before, and changed nothing, was answered without a wait for the disk.
    Killed,
}

pub struct Versions {
    pub fates: Vec<Fate>,
    /// The writer of a value, and its key.
    pub writers: HashMap<Value, (TxnId, Key)>,
    /// The last value that a transaction wrote to a key.
    last: HashMap<(TxnId, Key), Value>,
    /// The committed writes of each key, oldest first.
    pub order: BTreeMap<Key, Vec<(TxnId, Value)>>,
    pub findings: Vec<Finding>,
}

impl Versions {
    pub fn of(history: &History) -> Versions {
        let mut versions = Versions {
            fates: Vec::new(),
            writers: HashMap::new(),
            last: HashMap::new(),
            order: BTreeMap::new(),
            findings: Vec::new(),
        };
        versions.note_writers(history);
        versions.decide_fates(history);
        versions.note_order(history);
        versions.look_for_lost_writes(history);
        versions
    }

    fn find(&mut self, anomaly: Anomaly, text: String) {
        self.findings.push(Finding { anomaly, text });
    }

    fn note_writers(&mut self, history: &History) {
        for (id, txn) in history.txns.iter().enumerate() {
            for (key, value, _) in txn.writes() {
                self.writers.insert(value, (id, key));
                self.last.insert((id, key), value);
            }
        }
    }

    fn decide_fates(&mut self, history: &History) {
        // Versions of registers that a transaction with a known end has made.
        let mut claimed: HashMap<(Key, u64), TxnId> = HashMap::new();
        for (id, txn) in history.txns.iter().enumerate() {
            if txn.outcome == Outcome::Committed {
                claimed.extend(txn.writes().map(|(key, _, version)| ((key, version), id)));
            }
        }
        for (id, txn) in history.txns.iter().enumerate() {
            let fate = match txn.outcome {
                Outcome::Committed => Fate::Committed,
                Outcome::Aborted => Fate::Aborted,
                Outcome::Unknown => self.fate_of_unknown(history, id, &mut claimed),
            };
            self.fates.push(fate);
        }
    }

    fn fate_of_unknown(
        &mut self,
        history: &History,
        id: TxnId,
        claimed: &mut HashMap<(Key, u64), TxnId>,
    ) -> Fate {
        let txn = &history.txns[id];
        let is_there =
            |(key, value, version): (Key, Value, u64)| match history.at_end_of(txn.life, key) {
                Seen::List(list) => list.contains(&value),
                Seen::Register { version: last, .. } => {
                    version <= last && !claimed.contains_key(&(key, version))
                }
            };
        let there: Vec<bool> = txn.writes().map(is_there).collect();
        if !there.contains(&true) {
            return Fate::Killed;
        }
        if there.contains(&false) {
            let writes: Vec<_> = txn.writes().collect();
            self.find(Anomaly::TornCommit, format!("T{id} {writes:?}: there {there:?}"));
        }
        claimed.extend(txn.writes().map(|(key, _, version)| ((key, version), id)));
        Fate::Committed
    }

    fn note_order(&mut self, history: &History) {
        let mut keys: HashSet<Key> =
            history.states.iter().flat_map(|s| s.keys().copied()).collect();
        keys.extend(self.writers.values().map(|(_, key)| *key));
        let last_life = history.states.len().saturating_sub(1);
        for key in keys {
            let order = match history.at_end_of(last_life, key) {
                Seen::List(list) => self.order_of_list(key, &list),
                Seen::Register { version, value } => {
                    self.order_of_register(history, key, version, value)
                }
            };
            self.order.insert(key, order);
        }
    }

    fn order_of_list(&mut self, key: Key, list: &[Value]) -> Vec<(TxnId, Value)> {
        let mut order = Vec::new();
        let mut before = HashSet::new();
        for value in list {
            match self.writers.get(value) {
                Some((id, of)) if *of == key && before.insert(value) => order.push((*id, *value)),
                _ => {
                    let text = format!("key {key} ends as {list:?}: {value} is not its own");
                    self.find(Anomaly::Garbage, text);
                }
            }
        }
        let aborted = order.iter().find(|(id, _)| self.fates[*id] != Fate::Committed);
        if let Some((id, value)) = aborted.copied() {
            let text = format!("key {key} ends with {value} of T{id}, which was rolled back");
            self.find(Anomaly::G1a, text);
        }
        order.retain(|(id, _)| self.fates[*id] == Fate::Committed);
        order
    }

    /// The versions must be 1, 2, 3, ... up to the last one, each made once.
    fn order_of_register(
        &mut self,
        history: &History,
        key: Key,
        last: u64,
        value: Value,
    ) -> Vec<(TxnId, Value)> {
        let mut made: Vec<(u64, TxnId, Value)> = Vec::new();
        for (id, txn) in history.txns.iter().enumerate() {
            if self.fates[id] == Fate::Committed {
                let mine = txn.writes().filter(|(of, ..)| *of == key);
                made.extend(mine.map(|(_, value, version)| (version, id, value)));
            }
        }
        made.sort_unstable();
        let expected = (1..=last).eq(made.iter().map(|(version, ..)| *version));
        let is_last = made.last().map_or(0, |(.., value)| *value) == value;
        if !expected || !is_last {
            let text = format!("key {key} ends with version {last}, value {value}: {made:?}");
            self.find(Anomaly::LostWrite, text);
        }
        made.into_iter().map(|(_, id, value)| (id, value)).collect()
    }

    fn look_for_lost_writes(&mut self, history: &History) {
        for (id, txn) in history.txns.iter().enumerate() {
            if self.fates[id] != Fate::Committed {
                continue;
            }
            for (key, value, _) in txn.writes() {
                let order = self.order.get(&key);
                if !order.is_some_and(|o| o.iter().any(|(_, v)| *v == value)) {
                    let text = format!("T{id} committed {value} to key {key}, which is gone");
                    self.find(Anomaly::LostWrite, text);
                }
            }
        }
    }

    /// How many committed versions of `key` a read saw, and what is wrong with it. `own` are the
    /// reader's writes of the key so far.
    pub fn judge_read(&self, reader: TxnId, key: Key, seen: &Seen, own: &[Value]) -> Judged {
        match seen {
            Seen::List(list) => self.judge_list(reader, key, list, own),
            Seen::Register { value, .. } => self.judge_register(reader, key, *value, own),
        }
    }

    fn judge_list(&self, reader: TxnId, key: Key, list: &[Value], own: &[Value]) -> Judged {
        let mut judged = Judged::default();
        let Some(base) = list.strip_suffix(own) else {
            judged.add(Anomaly::Internal, format!("T{reader} wrote {own:?}, saw {list:?}"));
            return judged;
        };
        let mut committed = Vec::new();
        for value in base {
            match self.writers.get(value) {
                Some((id, of)) if *of == key && *id != reader => match self.fates[*id] {
                    Fate::Committed => committed.push(*value),
                    Fate::Aborted => {
                        let text = format!("T{reader} saw {value} of T{id}, rolled back");
                        judged.add(Anomaly::G1a, text);
                    }
                    Fate::Killed => judged.saw_killed = true,
                },
                Some((id, _)) if *id == reader => {
                    judged.add(Anomaly::Internal, format!("T{reader} saw its own {value} early"));
                }
                _ => judged.add(Anomaly::Garbage, format!("T{reader} saw {value} in key {key}")),
            }
        }
        let order = self.order.get(&key).map_or(&[][..], |order| order);
        let is_prefix = committed.len() <= order.len()
            && committed.iter().zip(order).all(|(value, (_, of))| value == of);
        match is_prefix {
            true => judged.position = Some(committed.len()),
            false => {
                let text = format!("T{reader} saw {list:?} in key {key}, which became {order:?}");
                judged.add(Anomaly::Order, text);
            }
        }
        if let (Some(value), true) = (base.last(), own.is_empty()) {
            self.judge_last(reader, key, *value, &mut judged);
        }
        judged
    }

    fn judge_register(&self, reader: TxnId, key: Key, value: Value, own: &[Value]) -> Judged {
        let mut judged = Judged::default();
        if let Some(last) = own.last() {
            if *last != value {
                judged.add(Anomaly::Internal, format!("T{reader} wrote {last}, saw {value}"));
            }
            return judged;
        }
        if value == 0 {
            judged.position = Some(0);
            return judged;
        }
        match self.writers.get(&value) {
            Some((id, of)) if *of == key => match self.fates[*id] {
                Fate::Committed => {
                    let order = self.order.get(&key).map_or(&[][..], |order| order);
                    judged.position = order.iter().position(|(_, v)| *v == value).map(|at| at + 1);
                }
                Fate::Aborted => {
                    judged
                        .add(Anomaly::G1a, format!("T{reader} saw {value} of T{id}, rolled back"));
                }
                Fate::Killed => judged.saw_killed = true,
            },
            _ => judged.add(Anomaly::Garbage, format!("T{reader} saw {value} in key {key}")),
        }
        self.judge_last(reader, key, value, &mut judged);
        judged
    }

    /// A version that its own writer has replaced is none that others may see.
    fn judge_last(&self, reader: TxnId, key: Key, value: Value, judged: &mut Judged) {
        let Some((writer, _)) = self.writers.get(&value) else { return };
        if *writer == reader {
            return;
        }
        if self.last.get(&(*writer, key)).is_some_and(|last| *last != value) {
            let text = format!("T{reader} saw {value} of T{writer}, which replaced it itself");
            judged.add(Anomaly::G1b, text);
        }
    }
}

/// What one read tells.
#[derive(Default)]
pub struct Judged {
    /// How many committed versions lie at or below what was seen.
    pub position: Option<usize>,
    pub saw_killed: bool,
    pub findings: Vec<Finding>,
}

impl Judged {
    fn add(&mut self, anomaly: Anomaly, text: String) {
        self.findings.push(Finding { anomaly, text });
    }
}
