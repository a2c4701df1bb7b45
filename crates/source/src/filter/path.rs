//! Paths within a tree: names with slashes between, the root is empty.

/// The path of a name in a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
