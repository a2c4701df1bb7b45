//! What two trees have at the same paths.

use kiln_tree::{Kind, NodeId, Tree};

use crate::filter::path::join;

/// Two nodes at the same path.
pub(super) struct SamePath<'a> {
    dir: &'a [u8],
    name: &'a [u8],
    /// Of the first tree, and of the second one.
    pub(super) nodes: [NodeId; 2],
}

impl SamePath<'_> {
    pub(super) fn path(&self) -> Vec<u8> {
        join(self.dir, self.name)
    }
}

/// Call `found` with all that two trees have at the same path, below directories that both have: but for the roots.
pub(super) fn visit([one, other]: [&Tree; 2], mut found: impl FnMut(&SamePath<'_>)) {
    let mut dirs = vec![(Vec::new(), [NodeId::ROOT; 2])];
    while let Some((path, dir)) = dirs.pop() {
        // Names are in the order of their bytes in both.
        let mut others = other.entries(dir[1]).iter().peekable();
        for entry in one.entries(dir[0]).iter() {
            while others.next_if(|other| other.name < entry.name).is_some() {}
            let Some(same) = others.next_if(|other| other.name == entry.name) else { continue };
            let nodes = [entry.node, same.node];
            if let [Kind::Directory(_), Kind::Directory(_)] = [&one.node(nodes[0]).kind, &other.node(nodes[1]).kind] {
                dirs.push((join(&path, entry.name), nodes));
            }
            found(&SamePath { dir: &path, name: entry.name, nodes });
        }
    }
}
