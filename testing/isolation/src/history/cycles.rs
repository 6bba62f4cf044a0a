//! Cycles of dependencies, and what they are called.

use super::graph::{Dependency, Edge, Graph};
use super::model::{Anomaly, Finding};
use std::collections::HashSet;

/// More of one kind tell nothing new.
const EXAMPLES: usize = 5;

pub fn find(graph: &Graph) -> Vec<Finding> {
    let mut found = Found { graph, findings: Vec::new() };
    found.without_reads();
    found.without_anti_dependencies();
    let is_single = found.with_one_anti_dependency();
    found.with_more(&is_single);
    found.findings
}

struct Found<'a> {
    graph: &'a Graph,
    findings: Vec<Finding>,
}

fn is_ww(edge: &Edge) -> bool {
    edge.kind == Dependency::Ww
}

fn is_no_rw(edge: &Edge) -> bool {
    edge.kind != Dependency::Rw
}

impl Found<'_> {
    fn add(&mut self, anomaly: Anomaly, cycle: &[Edge]) {
        let steps = cycle
            .iter()
            .map(|edge| format!("T{} -{} key {}-> ", edge.from, edge.kind.name(), edge.key));
        let first = cycle.first().map_or(0, |edge| edge.from);
        let text = steps.collect::<String>() + &format!("T{first}");
        self.findings.push(Finding { anomaly, text });
    }

    /// The edges that lie inside a component of the graph that `may` leaves.
    fn inside(&self, may: impl Fn(&Edge) -> bool) -> Vec<Edge> {
        let of = self.graph.components(&may);
        self.graph.edges().filter(|e| may(e) && of[e.from] == of[e.to]).copied().collect()
    }

    /// G0: writes alone.
    fn without_reads(&mut self) {
        for edge in self.inside(is_ww).into_iter().take(EXAMPLES) {
            if let Some(path) = self.graph.path(edge.to, |node| node == edge.from, is_ww) {
                self.add(Anomaly::G0, &[vec![edge], path].concat());
            }
        }
    }

    /// G1c: writes and at least one read of what was written.
    fn without_anti_dependencies(&mut self) {
        let inside = self.inside(is_no_rw);
        for edge in inside.into_iter().filter(|edge| !is_ww(edge)).take(EXAMPLES) {
            if let Some(path) = self.graph.path(edge.to, |node| node == edge.from, is_no_rw) {
                self.add(Anomaly::G1c, &[vec![edge], path].concat());
            }
        }
    }

    /// G-single, apart in two: the cycle comes back by a plain read, or otherwise. The anti-
    /// dependencies for which there is one are returned.
    fn with_one_anti_dependency(&mut self) -> HashSet<Edge> {
        let mut single = HashSet::new();
        let (mut skews, mut others) = (0, 0);
        for edge in self.inside(|_| true).into_iter().filter(|e| e.kind == Dependency::Rw) {
            let back = |kind| {
                let has = |node: usize| {
                    self.graph.from[node].iter().any(|e| e.to == edge.from && e.kind == kind)
                };
                let mut path = self.graph.path(edge.to, has, is_no_rw)?;
                let last = path.last().map_or(edge.to, |e| e.to);
                let closing =
                    self.graph.from[last].iter().find(|e| e.to == edge.from && e.kind == kind);
                path.extend(closing);
                Some([vec![edge], path].concat())
            };
            let skew = back(Dependency::Wr);
            let other = back(Dependency::Ww).or_else(|| back(Dependency::WrCurrent));
            if skew.is_some() || other.is_some() {
                single.insert(edge);
            }
            if let Some(cycle) = skew.filter(|_| skews < EXAMPLES) {
                skews += 1;
                self.add(Anomaly::ReadSkew, &cycle);
            }
            if let Some(cycle) = other.filter(|_| others < EXAMPLES) {
                others += 1;
                self.add(Anomaly::GSingle, &cycle);
            }
        }
        single
    }

    /// G2-item: cycles that need two anti-dependencies.
    fn with_more(&mut self, single: &HashSet<Edge>) {
        let inside = self.inside(|_| true);
        let candidates = inside.iter().filter(|e| e.kind == Dependency::Rw && !single.contains(*e));
        for edge in candidates.take(EXAMPLES) {
            if let Some(path) = self.graph.path(edge.to, |node| node == edge.from, |_| true) {
                self.add(Anomaly::G2Item, &[vec![*edge], path].concat());
            }
        }
    }
}
