//! Nodes and the names that lead to them.

use kiln_tree::{Builder, Kind, NodeId, TreeError};

/// Make every further name of a file a file of its own, with the same contents.
///
/// # Errors
/// More nodes than a tree can have.
pub(super) fn separate(builder: &mut Builder) -> Result<(), TreeError> {
    let mut is_named = vec![false; builder.nodes().len()];
    for dir in 0..is_named.len() {
        let mut entries = match &builder.nodes()[dir].kind {
            Kind::Directory(entries) => entries.clone(),
            _ => continue,
        };
        entries.try_renumber(|node| {
            // A copy made here is named once, by this entry; copies lie behind all that `is_named` knows.
            match std::mem::replace(&mut is_named[node.idx()], true) {
                true => builder.add(builder.nodes()[node.idx()].clone()),
                false => Ok(node),
            }
        })?;
        builder.set_entries(NodeId(dir as u32), *entries);
    }
    Ok(())
}
