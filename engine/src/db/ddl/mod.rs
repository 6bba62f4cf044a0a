//! Statements that change which tables and indexes there are (rules M18).
//!
//! 1. One statement at a time (`Schema::ddl`), and each is one transaction on the catalog.
//! 2. It is durable when it returns. A crash in between leaves all of it or nothing.
//!    After an error of ALTER, RENAME or TRUNCATE nothing has happened; a change that is not durable
//!    yet is no error of theirs ([`Durability`]). CREATE and DROP do not tell the two apart.
//! 3. Trees that go are closed at once; their pages are freed in the background.
//! 4. What no transaction wrote is built in trees that nobody else can reach (`index_build`, `table_load`).
//!    A large INSERT of a transaction into an empty table is built in the table's own trees (`bulk_insert`).

mod admission;
mod author;
mod bulk_insert;
mod durability;
mod encryption;
mod index_build;
mod row_tree;
mod sort_memory;
pub(super) mod sorter;
mod statements;
mod table_load;

pub use bulk_insert::BulkInsert;
pub use durability::Durability;
pub use index_build::{AlteredIndex, FoundTwice, IndexBuild};
pub(super) use statements::compression_of;
pub use table_load::{Added, TableLoad, Twice};
