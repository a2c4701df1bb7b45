//! Hard links whose targets come later.

use std::collections::HashMap;

use super::name_index::entries;
use crate::tree::error::{TreeError, TreeProblem};
use crate::tree::{Kind, Node, NodeId};

/// Hard links that wait for their targets. Each has a node that stands for the target until the tree is finished.
#[derive(Default)]
pub(super) struct HardLinks(HashMap<NodeId, HardLink>);

struct HardLink {
    /// As the caller gave it.
    path: Vec<u8>,
    target: Vec<u8>,
}

impl HardLinks {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Let `node` stand for what will be at `target`.
    pub(super) fn add(&mut self, node: NodeId, path: &[u8], target: &[u8]) {
        self.0.insert(node, HardLink { path: path.to_vec(), target: target.to_vec() });
    }

    /// Let entries name the targets. `find` finds what is at a path.
    ///
    /// # Errors
    /// A link that is still there and leads to nothing, to a directory, or to itself.
    pub(super) fn resolve(
        &self,
        nodes: &mut [Node],
        find: impl Fn(&[Node], &[u8]) -> Option<NodeId>,
    ) -> Result<(), TreeError> {
        let mut targets = HashMap::new();
        for node in reachable(nodes).into_iter().filter(|node| self.0.contains_key(node)) {
            self.follow(node, nodes, &find, &mut targets)?;
        }
        for node in nodes {
            if let Kind::Directory(entries) = &mut node.kind {
                entries.renumber(|node| targets.get(&node).copied().unwrap_or(node));
            }
        }
        Ok(())
    }

    /// Find the target of the link `node`, and those of all links on the way.
    fn follow(
        &self,
        node: NodeId,
        nodes: &[Node],
        find: &impl Fn(&[Node], &[u8]) -> Option<NodeId>,
        targets: &mut HashMap<NodeId, NodeId>,
    ) -> Result<(), TreeError> {
        let mut way = vec![node];
        let target = loop {
            let link = &self.0[&way[way.len() - 1]];
            let wrong = |problem: fn(Vec<u8>) -> TreeProblem| Err(problem(link.target.clone()).at(&link.path[..]));
            let Some(next) = find(nodes, &link.target) else { return wrong(TreeProblem::DanglingLink) };
            if matches!(nodes[next.idx()].kind, Kind::Directory(_)) {
                return wrong(TreeProblem::LinkToDirectory);
            }
            match targets.get(&next) {
                Some(target) => break *target,
                None if !self.0.contains_key(&next) => break next,
                // A way that is longer than there are links goes in a circle.
                None if way.len() > self.0.len() => return wrong(TreeProblem::LinkLoop),
                None => way.push(next),
            }
        };
        targets.extend(way.into_iter().map(|link| (link, target)));
        Ok(())
    }
}

/// The nodes that names lead to, in walk order.
fn reachable(nodes: &[Node]) -> Vec<NodeId> {
    let mut found = Vec::new();
    let mut is_found = vec![false; nodes.len()];
    let mut stack = vec![NodeId::ROOT];
    while let Some(id) = stack.pop() {
        if is_found.get_mut(id.idx()).is_some_and(|is_found| !std::mem::replace(is_found, true)) {
            found.push(id);
            stack.extend(entries(nodes, id).iter().rev().map(|entry| entry.node));
        }
    }
    found
}
