//! Hard links to files that are inserted later.

use std::collections::{HashMap, HashSet};

use super::name_index::entries;
use crate::error::{TreeError, TreeProblem};
use crate::{Kind, Node, NodeId};

/// Hard links that wait for their targets. Each has a node that stands for the target until the tree
/// is finished.
#[derive(Default)]
pub(super) struct HardLinks(HashMap<NodeId, HardLink>);

struct HardLink {
    /// Path of the target, as given by the caller.
    target: Vec<u8>,
}

impl HardLinks {
    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a link: `node` stands for the file that will be at `target`.
    pub(super) fn add(&mut self, node: NodeId, target: &[u8]) {
        self.0.insert(node, HardLink { target: target.to_vec() });
    }

    /// Replaces the links in all entries by their targets. `find` returns the node at a path. A link
    /// that is still in the tree and leads to nothing, to a directory or to itself becomes `gone` if
    /// `on_lost` allows it.
    ///
    /// # Errors
    /// Those of `on_lost`.
    pub(super) fn resolve(
        &self,
        nodes: &mut [Node],
        find: impl Fn(&[Node], &[u8]) -> Option<NodeId>,
        gone: NodeId,
        on_lost: &mut dyn FnMut(TreeError) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let (mut targets, mut lost) = (HashMap::new(), HashMap::new());
        for node in reachable(nodes).into_iter().filter(|node| self.0.contains_key(node)) {
            let mut way = vec![node];
            let target = match self.follow(&mut way, nodes, &find, &targets) {
                // It leads to a link that leads to nothing.
                Ok(target) if target == gone => Err(TreeProblem::DanglingLink(self.0[&node].target.clone())),
                found => found,
            };
            let target = target.unwrap_or_else(|problem| {
                lost.insert(node, problem);
                gone
            });
            targets.extend(way.into_iter().map(|link| (link, target)));
        }
        if !lost.is_empty() {
            // A link may have several names, of links that lead to it.
            for_each_name(nodes, |path, node| match lost.get(&node) {
                Some(problem) => on_lost(problem.clone().at(path)),
                None => Ok(()),
            })?;
        }
        for node in nodes {
            if let Kind::Directory(entries) = &mut node.kind {
                entries.renumber(|node| targets.get(&node).copied().unwrap_or(node));
            }
        }
        Ok(())
    }

    /// Returns the target of the link in `way`, to which all links on the way are added.
    fn follow(
        &self,
        way: &mut Vec<NodeId>,
        nodes: &[Node],
        find: &impl Fn(&[Node], &[u8]) -> Option<NodeId>,
        targets: &HashMap<NodeId, NodeId>,
    ) -> Result<NodeId, TreeProblem> {
        let mut met: HashSet<NodeId> = way.iter().copied().collect();
        loop {
            let link = &self.0[&way[way.len() - 1]];
            let wrong = |problem: fn(Vec<u8>) -> TreeProblem| Err(problem(link.target.clone()));
            let Some(next) = find(nodes, &link.target) else { return wrong(TreeProblem::DanglingLink) };
            if matches!(nodes[next.idx()].kind, Kind::Directory(_)) {
                return wrong(TreeProblem::LinkToDirectory);
            }
            match targets.get(&next) {
                Some(target) => return Ok(*target),
                None if !self.0.contains_key(&next) => return Ok(next),
                None if !met.insert(next) => return wrong(TreeProblem::LinkLoop),
                None => way.push(next),
            }
        }
    }
}

/// Returns the nodes that have names, in walk order.
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

/// Calls `visit` with each path and its node, in walk order.
fn for_each_name(
    nodes: &[Node],
    mut visit: impl FnMut(&[u8], NodeId) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    let (mut path, mut is_met) = (Vec::new(), vec![false; nodes.len()]);
    // A node, its name, and the length of its directory's path.
    let mut stack: Vec<(NodeId, &[u8], usize)> = vec![(NodeId::ROOT, b"", 0)];
    while let Some((id, name, parent_len)) = stack.pop() {
        path.truncate(parent_len);
        if parent_len > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        visit(&path, id)?;
        if is_met.get_mut(id.idx()).is_some_and(|is_met| !std::mem::replace(is_met, true)) {
            stack.extend(entries(nodes, id).iter().rev().map(|entry| (entry.node, entry.name, path.len())));
        }
    }
    Ok(())
}
