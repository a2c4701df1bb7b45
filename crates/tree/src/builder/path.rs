//! Components of paths, as archives write them.

use kiln_format::dirent::NAME_MAX_LEN;

use crate::error::{TreeError, TreeProblem};

/// A name in a path.
#[derive(Clone, Copy)]
pub(super) struct Component<'p> {
    pub(super) name: &'p [u8],
    /// Offset of the end of the name in the path, in bytes.
    pub(super) end: usize,
}

/// Returns the names in `path`, from the root on. Leading, trailing and repeated slashes, and `.`, are
/// ignored.
///
/// # Errors
/// `..`, and names that no directory can hold.
pub(super) fn components(path: &[u8]) -> Result<impl Iterator<Item = Component<'_>> + Clone, TreeError> {
    let mut start = 0;
    let components = path.split(|&b| b == b'/').map(move |name| {
        let end = start + name.len();
        start = end + 1;
        Component { name, end }
    });
    let components = components.filter(|component| !matches!(component.name, b"" | b"."));
    for Component { name, .. } in components.clone() {
        let problem = match name {
            b".." => TreeProblem::DotDot,
            name if name.contains(&0) => TreeProblem::ZeroByte,
            name if name.len() > NAME_MAX_LEN => TreeProblem::NameTooLong(name.len()),
            _ => continue,
        };
        return Err(problem.at(path));
    }
    Ok(components)
}
