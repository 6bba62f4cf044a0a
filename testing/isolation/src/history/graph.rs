//! A graph of dependencies, its strongly connected components (Tarjan 1972) and shortest paths.

use super::model::{Key, TxnId};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// The second one replaced a version of the first one.
    Ww,
    /// The second one saw a version of the first one, in a plain read.
    Wr,
    /// The same in a locking read.
    WrCurrent,
    /// The second one replaced the version that the first one saw.
    Rw,
}

impl Dependency {
    pub fn name(self) -> &'static str {
        match self {
            Dependency::Ww => "ww",
            Dependency::Wr => "wr",
            Dependency::WrCurrent => "wr (locking read)",
            Dependency::Rw => "rw",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Edge {
    pub from: TxnId,
    pub to: TxnId,
    pub kind: Dependency,
    pub key: Key,
}

#[derive(Default)]
pub struct Graph {
    pub from: Vec<Vec<Edge>>,
}

impl Graph {
    pub fn new(nodes: usize) -> Graph {
        Graph { from: vec![Vec::new(); nodes] }
    }

    /// A transaction does not depend on itself.
    pub fn add(&mut self, edge: Edge) {
        if edge.from != edge.to && !self.from[edge.from].contains(&edge) {
            self.from[edge.from].push(edge);
        }
    }

    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.from.iter().flatten()
    }

    /// The number of each node's component, counting only edges that `may` take. No recursion: a
    /// history can be one long chain.
    pub fn components(&self, may: impl Fn(&Edge) -> bool) -> Vec<usize> {
        let mut search = Search::new(self.from.len());
        for root in 0..self.from.len() {
            if search.index[root].is_none() {
                search.visit(self, root, &may);
            }
        }
        search.component
    }

    /// A shortest path over edges that `may` take to a node that `is_goal`; empty at once if the
    /// first node is one.
    pub fn path(
        &self,
        start: TxnId,
        is_goal: impl Fn(TxnId) -> bool,
        may: impl Fn(&Edge) -> bool,
    ) -> Option<Vec<Edge>> {
        let mut reached: HashMap<TxnId, Option<Edge>> = HashMap::from([(start, None)]);
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            if is_goal(node) {
                return Some(walk_back(&reached, node));
            }
            for edge in self.from[node].iter().filter(|edge| may(edge)) {
                reached.entry(edge.to).or_insert_with(|| {
                    queue.push_back(edge.to);
                    Some(*edge)
                });
            }
        }
        None
    }
}

fn walk_back(reached: &HashMap<TxnId, Option<Edge>>, goal: TxnId) -> Vec<Edge> {
    let mut path = Vec::new();
    let mut node = goal;
    while let Some(Some(edge)) = reached.get(&node) {
        path.push(*edge);
        node = edge.from;
    }
    path.reverse();
    path
}

struct Search {
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<TxnId>,
    next: usize,
    component: Vec<usize>,
    components: usize,
}

impl Search {
    fn new(nodes: usize) -> Search {
        Search {
            index: vec![None; nodes],
            low: vec![0; nodes],
            on_stack: vec![false; nodes],
            stack: Vec::new(),
            next: 0,
            component: vec![0; nodes],
            components: 0,
        }
    }

    fn enter(&mut self, node: TxnId) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
    }

    fn visit(&mut self, graph: &Graph, root: TxnId, may: &impl Fn(&Edge) -> bool) {
        // Each entry: a node and the place of the next edge to look at.
        let mut calls = vec![(root, 0)];
        self.enter(root);
        while let Some((node, at)) = calls.pop() {
            let rest = graph.from[node].iter().enumerate().skip(at);
            let next = rest.filter(|(_, edge)| may(edge)).map(|(i, edge)| (i, edge.to)).next();
            let Some((place, to)) = next else {
                self.leave(node);
                if let Some((parent, _)) = calls.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[node]);
                }
                continue;
            };
            calls.push((node, place + 1));
            match self.index[to] {
                None => {
                    self.enter(to);
                    calls.push((to, 0));
                }
                Some(index) if self.on_stack[to] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
    }

    fn leave(&mut self, node: TxnId) {
        if self.index[node] != Some(self.low[node]) {
            return;
        }
        while let Some(member) = self.stack.pop() {
            self.on_stack[member] = false;
            self.component[member] = self.components;
            if member == node {
                break;
            }
        }
        self.components += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new(nodes);
        for (from, to) in edges {
            graph.add(Edge { from: *from, to: *to, kind: Dependency::Ww, key: 1 });
        }
        graph
    }

    #[test]
    fn components_are_the_cycles() {
        let graph = graph(7, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 6)]);
        let of = graph.components(|_| true);
        assert!(of[0] == of[1] && of[1] == of[2]);
        assert_eq!(of[3], of[4]);
        assert!(of[0] != of[3] && of[5] != of[6] && of[3] != of[5]);
        let none = graph.components(|edge| edge.from != 2);
        assert!(none[0] != none[1] && none[3] == none[4]);
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let edges: Vec<_> = (0..200_000).map(|i| (i, i + 1)).collect();
        let of = graph(200_001, &edges).components(|_| true);
        assert_ne!(of[0], of[1]);
    }

    #[test]
    fn the_path_is_the_shortest() {
        let graph = graph(5, &[(0, 1), (1, 2), (2, 3), (0, 4), (4, 3)]);
        let path = graph.path(0, |node| node == 3, |_| true).unwrap();
        assert_eq!(path.iter().map(|e| e.to).collect::<Vec<_>>(), [4, 3]);
        assert!(graph.path(3, |node| node == 0, |_| true).is_none());
    }
}
