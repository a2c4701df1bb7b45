//! Hard links.

use crate::{Builder, Kind, NodeId, TreeError};

/// Replaces every further name of a file by a separate file with the same contents.
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
            // Copies made here have one name each and ids beyond the end of `is_named`.
            match std::mem::replace(&mut is_named[node.idx()], true) {
                true => builder.add(builder.nodes()[node.idx()].clone()),
                false => Ok(node),
            }
        })?;
        builder.set_entries(NodeId(dir as u32), *entries);
    }
    Ok(())
}
