//! Files that two trees have at the same path, classified as unchanged or in doubt.

use kiln_source::FileStamps;
use kiln_tree::{ContentId, Kind, Metadata, Tree};
use std::collections::HashMap;

use super::stamps::Stamps;
use crate::comparison::Doubt;
use crate::same_paths;

/// Evidence that a file is unchanged.
pub(super) enum Evidence<'a> {
    /// Modification time, if it is at most this many seconds since 1970.
    Times { settled: i64 },
    /// Stamp.
    Stamps { then: &'a Stamps, now: &'a FileStamps },
    /// No evidence.
    None,
}

/// Files of equal size.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    /// Unchanged files: content ids of the old tree, by those of the new one.
    pub(super) reused: HashMap<u32, ContentId>,
    /// Files that must be compared.
    pub(super) in_doubt: Vec<Doubt>,
}

/// Finds non-empty regular files of the same path and size.
pub(super) fn find([new, old]: [&Tree; 2], evidence: &Evidence<'_>) -> Pairs {
    let mut pairs = Pairs::default();
    same_paths::visit([new, old], |same| {
        let [one, two] = [new.node(same.nodes[0]), old.node(same.nodes[1])];
        let Kind::File { len: new_len @ 1.., content, .. } = one.kind else { return };
        let Kind::File { len, content: old_content, .. } = two.kind else { return };
        if new_len != len {
            return;
        }
        let is_same = match evidence {
            Evidence::Times { settled } => has_time_of(&one.meta, &two.meta) && one.meta.mtime <= *settled,
            Evidence::Stamps { then, now } => then.has(&same.path(), now.of(content)),
            Evidence::None => false,
        };
        if is_same {
            pairs.reused.entry(content.0).or_insert(old_content);
        } else {
            pairs.in_doubt.push(Doubt { new: same.nodes[0], old: same.nodes[1] });
        }
    });
    pairs
}

fn has_time_of(one: &Metadata, other: &Metadata) -> bool {
    (one.mtime, one.mtime_nsec) == (other.mtime, other.mtime_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::{Entry, Metadata, NoContents, Node, NodeId, ThinSlice};

    /// Returns a tree with files (name, size, seconds, nanoseconds) in one directory below the
    /// root.
    fn tree(files: &[(&str, u64, i64, u32)]) -> Tree {
        let node = |kind, mtime, mtime_nsec| Node {
            meta: Metadata { mtime, mtime_nsec, ..Metadata::default() },
            xattrs: ThinSlice::default(),
            kind,
        };
        let names =
            (2..).zip(files).map(|(id, (name, ..))| Entry { name: name.as_bytes(), node: NodeId(id) }).collect();
        let dir = [Entry { name: b"dir", node: NodeId(1) }].into_iter().collect();
        let dirs = [dir, names].map(|entries| node(Kind::Directory(Box::new(entries)), 0, 0));
        let file = |(id, &(_, len, secs, nsec)): (u32, &(&str, u64, i64, u32))| {
            node(Kind::File { len, content: ContentId(id), sparse: false }, secs, nsec)
        };
        Tree::new(dirs.into_iter().chain((0..).zip(files).map(file)).collect(), Box::new(NoContents)).unwrap()
    }

    #[test]
    fn equal_size_and_time_is_unchanged_and_equal_size_alone_is_in_doubt() {
        let old = tree(&[
            ("a", 5, 10, 3),
            ("b", 5, 10, 3),
            ("c", 5, 10, 3),
            ("d", 5, 10, 3),
            ("e", 0, 10, 3),
            ("late", 5, 99, 3),
        ]);
        let new = tree(&[
            ("0", 5, 10, 3),
            ("a", 5, 10, 3),
            ("b", 6, 10, 3),
            ("c", 5, 11, 3),
            ("d", 5, 10, 4),
            ("e", 0, 10, 3),
            ("late", 5, 99, 3),
        ]);
        let doubt = |new, old| Doubt { new: NodeId(new), old: NodeId(old) };
        let Pairs { reused, in_doubt } = find([&new, &old], &Evidence::Times { settled: 50 });
        assert_eq!(reused, HashMap::from([(1, ContentId(0))]));
        assert_eq!(in_doubt, [doubt(5, 4), doubt(6, 5), doubt(8, 7)]);
        let Pairs { reused, in_doubt } = find([&new, &old], &Evidence::None);
        assert!(reused.is_empty());
        assert_eq!(in_doubt, [doubt(3, 2), doubt(5, 4), doubt(6, 5), doubt(8, 7)]);
    }
}
