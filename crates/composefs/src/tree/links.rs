//! Hard links whose targets are given by path.

use super::builder::check_target;
use super::{CfsTree, Data, NodeIdx};
use crate::error::TreeProblem;

impl CfsTree {
    /// Returns the node at a path with a leading slash.
    pub fn find(&self, path: &[u8]) -> Option<NodeIdx> {
        let path = path.strip_prefix(b"/")?;
        if path.is_empty() {
            return Some(NodeIdx::ROOT);
        }
        path.split(|&byte| byte == b'/').try_fold(NodeIdx::ROOT, |dir, name| {
            let entries = self.children(dir.0);
            let found = entries.binary_search_by(|&entry| self.name(NodeIdx(entry)).cmp(name));
            found.ok().map(|at| NodeIdx(entries[at]))
        })
    }

    /// Makes links lead to the nodes at their targets.
    ///
    /// # Errors
    /// The index of a link, and its problem.
    pub(crate) fn resolve(&mut self, links: &[(NodeIdx, &[u8])]) -> Result<(), (usize, TreeProblem)> {
        for (idx, (node, target)) in links.iter().enumerate() {
            let target = self.find(target).ok_or((idx, TreeProblem::MissingTarget))?;
            self.nodes[node.at()].data = Data::Link(target.0);
        }
        let mut way = Vec::new();
        for (idx, (node, _)) in links.iter().enumerate() {
            let mut end = node.0;
            way.clear();
            while let Data::Link(next) = self.nodes[end as usize].data {
                if way.len() > links.len() {
                    return Err((idx, TreeProblem::LinkLoop));
                }
                way.push(end);
                end = next;
            }
            check_target(&self.nodes[end as usize].data).map_err(|problem| (idx, problem))?;
            // So that no chain is followed twice.
            for &node in &way {
                self.nodes[node as usize].data = Data::Link(end);
            }
        }
        Ok(())
    }

    /// Returns the inodes, directories apart, whose link counts are not the number of their names:
    /// link count and number of names.
    pub(crate) fn odd_links(&self) -> impl Iterator<Item = (NodeIdx, u32, u32)> {
        let mut names = vec![0_u32; self.nodes.len()];
        for (idx, node) in self.nodes.iter().enumerate() {
            match node.data {
                Data::Link(target) => names[target as usize] += 1,
                _ => names[idx] += 1,
            }
        }
        self.nodes.iter().zip(names).enumerate().filter_map(|(idx, (node, names))| {
            let nlink = node.attributes.nlink;
            let has_count = !matches!(node.data, Data::Directory { .. } | Data::Link(_));
            (has_count && nlink != names).then_some((NodeIdx(idx as u32), nlink, names))
        })
    }
}
