//! Paths within a tree: names separated by slashes; the root is the empty path.

/// Returns the path of `name` in the directory `dir`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Returns `path` without leading, trailing and repeated slashes, and without `.`.
pub fn normal(path: &[u8]) -> Vec<u8> {
    let names: Vec<_> = path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    names.join(&b'/')
}
