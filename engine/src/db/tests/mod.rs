//! The whole engine: what holds across its rooms. Tests of one file are beside it.

mod check;
mod damage;
pub(super) mod ddl;
mod deltas;
mod encrypted_tables;
mod encryption;
mod fuzz;
mod long_values;
mod model;
mod quarantine;
mod redo;
mod semi_consistent;
mod sorter;
mod space;
mod statistics;
mod stress;
mod wake;
mod writes;
