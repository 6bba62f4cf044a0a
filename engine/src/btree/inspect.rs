//! Nodes and changes for tools and people.

use super::codec::{decode, Decoded};
use super::node::Node;
use super::verify::check_page;
use crate::base::{Lsn, PageId, Result, TreeId};

/// A verified page, taken apart.
#[derive(Clone, Debug)]
pub struct NodeView {
    pub page: PageId,
    pub lsn: Lsn,
    pub tree: TreeId,
    pub level: u8,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    pub used_bytes: usize,
    /// Keys with entries in a leaf, with children's page ids (u64) in an inner node.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Verifies and decodes a page.
pub fn view_page(page: &[u8]) -> Result<NodeView> {
    check_page(page)?;
    let node = Node::new(page);
    Ok(NodeView {
        page: node.page_id(),
        lsn: super::apply::page_lsn(page),
        tree: node.tree(),
        level: node.level(),
        low: node.low().to_vec(),
        high: node.high().map(<[u8]>::to_vec),
        used_bytes: node.used(),
        entries: (0..node.count()).map(|i| (node.key(i), node.value(i).to_vec())).collect(),
    })
}

/// One line about a change of a page.
pub fn describe_change(change: &[u8]) -> Result<String> {
    let stamped = |stamp: bool| if stamp { " (stamped)" } else { "" };
    Ok(match decode(change)? {
        Decoded::Init(init) => format!("init level {} with {} entries", init.level, init.count),
        Decoded::Truncate { keep, .. } => format!("truncate to {keep} entries"),
        Decoded::Insert { slot, value, stamp, .. } => {
            format!("insert at {slot}, {} bytes{}", value.len(), stamped(stamp))
        }
        Decoded::Replace { slot, value, stamp } => {
            format!("replace {slot}, {} bytes{}", value.len(), stamped(stamp))
        }
        Decoded::Patch { slot, stamp, .. } => format!("patch {slot}{}", stamped(stamp)),
        Decoded::Remove { slot } => format!("remove {slot}"),
        Decoded::RemoveMany { .. } => "remove several".to_owned(),
    })
}
