//! Numbers of the nodes of a finished tree.

use std::collections::BTreeSet;

use crate::error::{TreeError, TreeProblem};
use crate::{Kind, Node, NodeId};

/// Numbers the nodes in walk order, with consecutive numbers for the nodes of each directory. The
/// order in which they were added does not matter. Nodes without a name are dropped, from the set
/// `marked`, too. Entries must be sorted by name.
///
/// # Errors
/// An entry that names no node.
pub(super) fn number_in_walk_order(nodes: &mut Vec<Node>, marked: &mut BTreeSet<NodeId>) -> Result<(), TreeError> {
    let mut numbers: Vec<Option<u32>> = vec![None; nodes.len()];
    numbers[0] = Some(0);
    let mut count = 1;
    let mut stack = vec![NodeId::ROOT];
    while let Some(dir) = stack.pop() {
        let Kind::Directory(entries) = &mut nodes[dir.idx()].kind else { continue };
        let before = stack.len();
        let renumbered: Result<(), ()> = entries.try_renumber(|node| {
            let number = numbers.get_mut(node.idx()).ok_or(())?.get_or_insert_with(|| {
                stack.push(node);
                count += 1;
                count - 1
            });
            Ok(NodeId(*number))
        });
        if renumbered.is_err() {
            let lost = entries.iter().find(|entry| entry.node.idx() >= numbers.len());
            return Err(TreeProblem::NoSuchNode.at(lost.map_or(&b""[..], |entry| entry.name)));
        }
        stack[before..].reverse();
    }
    *marked = marked.iter().filter_map(|id| numbers[id.idx()].map(NodeId)).collect();
    let unnamed = numbers.iter_mut().filter(|number| number.is_none());
    unnamed.zip(count..).for_each(|(number, next)| *number = Some(next));
    for at in 0..nodes.len() {
        while let Some(number) = numbers[at].take_if(|number| *number as usize != at) {
            let other = number as usize;
            nodes.swap(at, other);
            numbers[at] = numbers[other].replace(number);
        }
    }
    nodes.truncate(count as usize);
    Ok(())
}
