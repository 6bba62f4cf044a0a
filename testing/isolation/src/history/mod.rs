//! Random histories of a real server and their check, in the manner of Elle (Kingsbury and Alvaro,
//! VLDB 2020): what each transaction wrote and saw gives a graph of dependencies, and a cycle in it
//! is an anomaly.
//!
//! 1. Every value is written once, so a read tells whose write it saw.
//! 2. The order of a key's versions is known, not guessed: from the final list (list-append), from
//!    a version that each write reports (registers).
//! 3. Only committed transactions are in the graph. Of those whose COMMIT a kill left unanswered
//!    the final state tells what became of them.

pub mod check;
pub mod cycles;
pub mod graph;
pub mod model;
pub mod plant;
pub mod run;
pub mod versions;
pub mod workload;

#[cfg(test)]
mod check_tests;
