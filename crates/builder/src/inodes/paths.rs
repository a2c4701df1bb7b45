//! A check that readers can follow all paths.

use kiln_format::dirent::PATH_MAX_LEN;

use crate::error::{BuildError, InputProblem};
use kiln_tree::{Kind, NodeId, Tree};

/// Bytes of a path that is too long which an error quotes.
const FRONT_LEN: usize = 64;

/// Refuses `tree` if it has a path that readers of images do not follow: a part of the image would be out of reach.
///
/// # Errors
/// A path that is too long, by its front.
pub(super) fn check(tree: &Tree) -> Result<(), BuildError> {
    let mut stack = vec![(NodeId::ROOT, 0)];
    while let Some((dir, dir_len)) = stack.pop() {
        for entry in tree.entries(dir) {
            // Readers count a slash in front of each name.
            let len = dir_len + 1 + entry.name.len();
            if len > PATH_MAX_LEN {
                let mut path = [&*tree.path(dir), b"/", entry.name].concat();
                path.truncate(FRONT_LEN);
                return Err(BuildError::Input { path, reason: InputProblem::PathLen(len) });
            }
            if matches!(tree.node(entry.node).kind, Kind::Directory(_)) {
                stack.push((entry.node, len));
            }
        }
    }
    Ok(())
}
