//! From a history to what is wrong with it at a level.

use super::cycles;
use super::graph::{Dependency, Edge, Graph};
use super::model::{Anomaly, Finding, History, Key, Op, TxnId, Value};
use super::versions::{Fate, Versions};
use crate::level::Level;
use std::collections::{BTreeMap, HashMap};

/// What a level must not show; docs/isolation.md says why for each.
pub fn forbidden(level: Level) -> Vec<Anomaly> {
    use Anomaly::*;
    let mut list = vec![LostWrite, TornCommit, Garbage, Internal, Order, G0];
    if level >= Level::ReadCommitted {
        list.extend([G1a, G1b, G1c]);
    }
    if level >= Level::RepeatableRead {
        list.push(ReadSkew);
    }
    if level >= Level::Serializable {
        list.extend([LostUpdate, GSingle, G2Item]);
    }
    list
}

#[derive(Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub reads: usize,
    pub edges: usize,
    /// Reads of commits that a kill took away before they were acknowledged.
    pub reads_of_killed: usize,
}

impl Report {
    pub fn forbidden_at(&self, level: Level) -> Vec<&Finding> {
        let list = forbidden(level);
        self.findings.iter().filter(|finding| list.contains(&finding.anomaly)).collect()
    }

    pub fn has(&self, anomaly: Anomaly) -> bool {
        self.findings.iter().any(|finding| finding.anomaly == anomaly)
    }

    pub fn kinds(&self) -> Vec<Anomaly> {
        let mut kinds: Vec<Anomaly> = self.findings.iter().map(|f| f.anomaly).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }
}

pub fn check(history: &History) -> Report {
    let mut versions = Versions::of(history);
    let findings = std::mem::take(&mut versions.findings);
    let mut checker = Checker {
        history,
        graph: Graph::new(history.txns.len()),
        versions,
        report: Report { findings, ..Report::default() },
        replaced: BTreeMap::new(),
    };
    checker.writes();
    checker.reads();
    checker.lost_updates();
    let Checker { graph, mut report, .. } = checker;
    report.edges = graph.edges().count();
    report.findings.extend(cycles::find(&graph));
    report
}

struct Checker<'a> {
    history: &'a History,
    versions: Versions,
    graph: Graph,
    report: Report,
    /// The transactions that saw this version and then replaced it.
    replaced: BTreeMap<(Key, usize), Vec<TxnId>>,
}

impl Checker<'_> {
    fn writes(&mut self) {
        for (key, order) in &self.versions.order {
            for pair in order.windows(2) {
                let (from, to) = (pair[0].0, pair[1].0);
                self.graph.add(Edge { from, to, kind: Dependency::Ww, key: *key });
            }
        }
    }

    fn reads(&mut self) {
        for id in 0..self.history.txns.len() {
            if self.versions.fates[id] == Fate::Committed {
                self.reads_of(id);
            }
        }
    }

    fn reads_of(&mut self, id: TxnId) {
        let mut own: HashMap<Key, Vec<Value>> = HashMap::new();
        let mut seen_at: HashMap<Key, usize> = HashMap::new();
        let history = self.history;
        for op in &history.txns[id].ops {
            match op {
                Op::Write { key, value, .. } => {
                    let mine = own.entry(*key).or_default();
                    if let Some(at) = seen_at.get(key).filter(|_| mine.is_empty()) {
                        self.replaced.entry((*key, *at)).or_default().push(id);
                    }
                    mine.push(*value);
                }
                Op::Read { key, seen, current } => {
                    let mine = own.get(key).map_or(&[][..], |own| own);
                    let judged = self.versions.judge_read(id, *key, seen, mine);
                    self.report.reads += 1;
                    self.report.reads_of_killed += usize::from(judged.saw_killed);
                    self.report.findings.extend(judged.findings);
                    if judged.saw_killed && history.txns[id].writes().next().is_some() {
                        let text = format!("T{id} is durable, what it saw in key {key} is not");
                        self.report.findings.push(Finding { anomaly: Anomaly::G1a, text });
                    }
                    let position = judged.position.filter(|_| mine.is_empty());
                    if let Some(at) = position.filter(|_| !judged.saw_killed) {
                        seen_at.insert(*key, at);
                        self.depend(id, *key, at, *current);
                    }
                }
            }
        }
    }

    /// The reader saw the first `at` versions of the key.
    fn depend(&mut self, id: TxnId, key: Key, at: usize, current: bool) {
        let Some(order) = self.versions.order.get(&key) else { return };
        let below = at.checked_sub(1).and_then(|below| order.get(below));
        if let Some((from, _)) = below {
            let kind = if current { Dependency::WrCurrent } else { Dependency::Wr };
            self.graph.add(Edge { from: *from, to: id, kind, key });
        }
        if let Some((to, _)) = order.get(at) {
            self.graph.add(Edge { from: id, to: *to, kind: Dependency::Rw, key });
        }
    }

    fn lost_updates(&mut self) {
        for ((key, _), ids) in self.replaced.iter().filter(|(_, ids)| ids.len() > 1) {
            let text = format!("{ids:?} saw the same version of key {key} and replaced it");
            self.report.findings.push(Finding { anomaly: Anomaly::LostUpdate, text });
        }
    }
}
