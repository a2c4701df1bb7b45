//! Parallel walk of two trees over their common paths.

use kiln_tree::path::join;
use kiln_tree::{Kind, NodeId, Tree};

/// Two nodes at the same path.
pub(crate) struct SamePath<'a> {
    dir: &'a [u8],
    name: &'a [u8],
    /// Node of the first tree, and of the second one.
    pub(crate) nodes: [NodeId; 2],
}

impl SamePath<'_> {
    pub(crate) fn path(&self) -> Vec<u8> {
        join(self.dir, self.name)
    }
}

/// Calls `found` for each path that exists in both trees, below directories that exist in both. The
/// roots are not included.
pub(crate) fn visit([one, other]: [&Tree; 2], mut found: impl FnMut(&SamePath<'_>)) {
    let mut dirs = vec![(Vec::new(), [NodeId::ROOT; 2])];
    while let Some((path, dir)) = dirs.pop() {
        // Names are sorted by their bytes in both trees.
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
