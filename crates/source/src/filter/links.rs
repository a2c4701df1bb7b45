//! Nodes and the names that lead to them.

use kiln_builder::tree::{Kind, Node, NodeId};

use super::error::PolicyError;

/// Make every further name of a file a file of its own, with the same contents.
///
/// # Errors
/// More nodes than a tree can have.
pub(super) fn separate(nodes: &mut Vec<Node>) -> Result<(), PolicyError> {
    let mut is_named = vec![false; nodes.len()];
    for dir in 0..nodes.len() {
        let mut entries = match &mut nodes[dir].kind {
            Kind::Directory(entries) => std::mem::take(entries),
            _ => continue,
        };
        entries.try_renumber(|node| {
            // A copy made here is named once, by this entry; copies lie behind all that `is_named` knows.
            match std::mem::replace(&mut is_named[node.idx()], true) {
                true => push(nodes, nodes[node.idx()].clone()),
                false => Ok(node),
            }
        })?;
        nodes[dir].kind = Kind::Directory(entries);
    }
    Ok(())
}

/// Add a node.
///
/// # Errors
/// More nodes than a tree can have.
pub(super) fn push(nodes: &mut Vec<Node>, node: Node) -> Result<NodeId, PolicyError> {
    let id = u32::try_from(nodes.len()).map_err(|_| PolicyError::TooMany)?;
    nodes.push(node);
    Ok(NodeId(id))
}

/// Only the nodes that still have a name, in the same order.
pub(super) fn reachable(mut nodes: Vec<Node>) -> Vec<Node> {
    let mut is_reached = vec![false; nodes.len()];
    let mut stack = vec![NodeId::ROOT];
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut is_reached[id.idx()], true)
            && let Kind::Directory(entries) = &nodes[id.idx()].kind
        {
            stack.extend(entries.iter().map(|entry| entry.node));
        }
    }
    let mut count = 0;
    let new_ids: Vec<u32> = is_reached.iter().map(|&reached| (count, count += u32::from(reached)).0).collect();
    let mut flags = is_reached.iter();
    nodes.retain(|_| *flags.next().expect("a flag for each node"));
    for node in &mut nodes {
        if let Kind::Directory(entries) = &mut node.kind {
            entries.renumber(|node| NodeId(new_ids[node.idx()]));
        }
    }
    nodes
}
