//! Paths within a tree: names separated by slashes; the root is the empty path.

/// Returns the path of `name` in the directory `dir`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
