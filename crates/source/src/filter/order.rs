//! Which files' data comes first.

use kiln_builder::Tree;
use kiln_builder::tree::NodeId;

use super::error::FileError;
use super::path_list::{components, paths};

/// Paths from the root of the source on, in the order in which their data is wanted.
#[derive(Clone, Debug, Default)]
pub struct PathOrder(Vec<Vec<Vec<u8>>>);

impl PathOrder {
    /// The list in a file called `name`, in the form of [`PathList`](super::PathList).
    ///
    /// # Errors
    /// A path with `..`.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        let mut order = Vec::new();
        for (idx, path) in paths(text).enumerate() {
            let names = components(path).map_err(|error| error.at(name, idx))?;
            order.extend((!names.is_empty()).then(|| names.into_iter().map(<[u8]>::to_vec).collect()));
        }
        Ok(Self(order))
    }

    /// What is at these paths in `tree`, and the paths at which nothing is.
    pub fn of(&self, tree: &Tree) -> (Vec<NodeId>, Vec<Vec<u8>>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for names in &self.0 {
            match tree.find(names.iter().map(|name| &name[..])) {
                Some(node) => found.push(node),
                None => missing.push(names.join(&b'/')),
            }
        }
        (found, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::hints::tests::tree;
    use super::*;

    #[test]
    fn paths_find_their_files_in_their_order() {
        let order = PathOrder::parse(b"/z\n./lib//deep/b\n\nlib/nothing\nlib\nlib/b\na.so/x\n", "list").unwrap();
        let (found, missing) = order.of(&tree());
        assert_eq!(found, [4, 7, 2, 4].map(NodeId));
        assert_eq!(missing, [&b"lib/nothing"[..], b"a.so/x"]);
        let error = PathOrder::parse(b"a\n../b", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `../b`: `..` has no meaning here");
    }
}
