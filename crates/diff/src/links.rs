//! Comparison of hard links.

use kiln_tree::{NodeId, Tree};
use std::collections::HashMap;

use crate::change::Difference;
use crate::pairs::{OneSided, Pair, Pairs};

/// Number of common paths of each pair of nodes with several names.
///
/// A node of one tree has the same names as a node of the other if both have the same number of
/// names, and as many paths lead to both. So counting is enough, and no names are stored.
pub(crate) struct Links<'a> {
    a: &'a Tree,
    b: &'a Tree,
    common: HashMap<(NodeId, NodeId), u32>,
}

impl<'a> Links<'a> {
    /// Counts the common paths.
    pub(crate) fn count(a: &'a Tree, b: &'a Tree) -> Self {
        let mut common = HashMap::new();
        if has_links(a) && has_links(b) {
            let root = Pair::Both(NodeId::ROOT, NodeId::ROOT);
            for pair in Pairs::new(a, b, root, b"", OneSided::Skip) {
                if let Pair::Both(x, y) = pair
                    && a.names_of(x) > 1
                    && b.names_of(y) > 1
                {
                    *common.entry((x, y)).or_default() += 1;
                }
            }
        }
        Self { a, b, common }
    }

    /// Returns the difference of a path that leads to `a` and `b`.
    pub(crate) fn difference(&self, a: NodeId, b: NodeId) -> Option<Difference> {
        let (in_a, in_b) = (self.a.names_of(a), self.b.names_of(b));
        let in_both = if (in_a, in_b) == (1, 1) { 1 } else { self.common.get(&(a, b)).copied().unwrap_or(0) };
        let are_same = in_a == in_b && in_both == in_a;
        (!are_same).then_some(Difference::Links { a: in_a, b: in_b })
    }
}

fn has_links(tree: &Tree) -> bool {
    tree.nodes().any(|(id, _)| tree.names_of(id) > 1)
}
