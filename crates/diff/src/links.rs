//! Whether names that lead to one node in one tree do so in the other.

use kiln_tree::{NodeId, Tree};
use std::collections::HashMap;

use crate::change::Difference;
use crate::pairs::{OneSided, Pair, Pairs};

/// For nodes with several names: how many paths lead to both.
///
/// The names of a node in one tree are those of a node in the other if there are as many of them in both trees, and as many
/// that lead to both. So counting suffices, and no names are kept.
pub(crate) struct Links<'a> {
    a: &'a Tree,
    b: &'a Tree,
    common: HashMap<(NodeId, NodeId), u32>,
}

impl<'a> Links<'a> {
    /// Count.
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

    /// The difference of a path that leads to `a` and `b`.
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
