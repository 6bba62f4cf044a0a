//! The sizes that several rooms must agree on, each with its reason. A room's own limits stand
//! in the room.

/// A page in memory. Images on disk are smaller when they compress.
pub const PAGE_BYTES: usize = 16 * 1024;

/// The unit of torn writes that we defend against, and of direct I/O: the larger of the usual
/// physical and logical sector sizes.
pub const BLOCK_BYTES: usize = 4096;

/// Longest key of a tree, so that at least four entries fit an inner node.
pub const KEY_BYTES_MAX: usize = 3200;

/// Longest value kept in a leaf; longer payloads live out of line (`db::long`).
pub const VALUE_BYTES_MAX: usize = 3900;

/// Longest payload of one entry that the engine accepts, out of line or not. The clustered
/// entry's payload is the row: one value of 4 GiB and a record of the server beside it.
pub const ROW_BYTES_MAX: usize = (4 << 30) + (1 << 20);

/// Longest payload of one log record: bounds what recovery allocates for a length it reads.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(PAGE_BYTES % BLOCK_BYTES == 0);
// Two largest entries and the node's own bytes must fit, else a split cannot make room.
const _: () = assert!(2 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + 1024 <= PAGE_BYTES);
// A split record carries at most three page images.
const _: () = assert!(RECORD_BYTES_MAX > 8 * PAGE_BYTES);
