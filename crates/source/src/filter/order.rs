//! In which order data of files is stored.

use kiln_builder::HotZone;
use kiln_read::hotlist::{HotEntry, HotList};
use kiln_tree::Tree;
use kiln_tree::{Kind, NodeId};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::FileError;
use super::path_list::{components, paths};

/// In which order data of files is stored. Names, and the metadata of files, lie by path in any case; so do small files that lie beside their
/// inodes.
#[derive(Clone, Debug, Default)]
pub enum DataOrder {
    /// By path: who reads all files in the order of a walk reads forwards.
    #[default]
    Path,
    /// That of a list; files that are not on it follow by path.
    List(PathOrder),
    /// At random, so that a stretch of the image is a sample of all files. The place of a file follows from the XXH3-64 of its path in
    /// the image, keyed with the seed: it is the same on every machine, and other files that come or go do not change which of two comes first.
    /// A file with several names counts by the first one. Files of equal hashes lie by path.
    Shuffled {
        /// Chooses among the orders.
        seed: u64,
    },
}

/// As `--order` of `kiln pack` has it: `path`, `list`, or `shuffle:SEED`.
impl fmt::Display for DataOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::List(_) => f.write_str("list"),
            Self::Shuffled { seed } => write!(f, "shuffle:{seed}"),
        }
    }
}

impl From<PathOrder> for DataOrder {
    fn from(list: PathOrder) -> Self {
        Self::List(list)
    }
}

impl DataOrder {
    /// The nodes of `tree` that have an order of their own, for [`BuildOptions::order`](kiln_builder::BuildOptions), and paths of a list at
    /// which nothing is.
    pub fn of(&self, tree: &Tree) -> (Vec<NodeId>, Vec<Vec<u8>>) {
        match self {
            Self::Path => Default::default(),
            Self::List(list) => list.of(tree),
            Self::Shuffled { seed } => (shuffled(tree, *seed), Vec::new()),
        }
    }

    /// What comes first of files and of metadata, for [`BuildOptions::hot`](kiln_builder::BuildOptions).
    pub fn hot_zone(&self, tree: &Tree) -> HotZone {
        match self {
            Self::List(list) => list.hot_zone(tree),
            Self::Path | Self::Shuffled { .. } => HotZone::default(),
        }
    }
}

/// All regular files, by keyed hashes of their paths.
fn shuffled(tree: &Tree, seed: u64) -> Vec<NodeId> {
    let files = tree.walk().filter(|&node| matches!(tree.node(node).kind, Kind::File { .. }));
    let mut keyed: Vec<(u64, NodeId)> = files.map(|node| (xxh3_64_with_seed(&tree.path(node), seed), node)).collect();
    // Stable: a walk comes by paths in their order.
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, node)| node).collect()
}

/// Paths from the root of the source on, in the order in which what is there is wanted.
#[derive(Clone, Debug, Default)]
pub struct PathOrder(Vec<Wanted>);

/// What is wanted of what is at a path.
#[derive(Clone, Debug)]
struct Wanted {
    names: Vec<Vec<u8>>,
    /// Bytes of a file; none: its inode, or a directory.
    bytes: Range<u64>,
}

impl PathOrder {
    /// The list in a file called `name`: in the form of [`PathList`](super::PathList), whose files are wanted as a whole, or a [`HotList`].
    ///
    /// # Errors
    /// A path with `..`, and lines that do not belong to a hot list.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        if HotList::is_one(text) {
            return Ok(Self::of_hot_list(&HotList::parse(text, name)?));
        }
        let mut order = Vec::new();
        for (idx, path) in paths(text).enumerate() {
            let names = components(path).map_err(|error| error.at(name, idx))?;
            let names: Vec<_> = names.into_iter().map(<[u8]>::to_vec).collect();
            order.extend((!names.is_empty()).then_some(Wanted { names, bytes: 0..u64::MAX }));
        }
        Ok(Self(order))
    }

    /// What `list` has, each byte and each inode once.
    pub fn of_hot_list(list: &HotList) -> Self {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let wanted = |entry: &HotEntry| Wanted { names: names(&entry.path), bytes: entry.range() };
        Self(HotList::merge(std::slice::from_ref(list)).entries().iter().map(wanted).collect())
    }

    /// The nodes in `tree` of which data is wanted, by their first data, and the paths at which nothing is, each once. Inodes that are wanted
    /// without data say nothing about where data is wanted.
    pub fn of(&self, tree: &Tree) -> (Vec<NodeId>, Vec<Vec<u8>>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (mut seen, mut missed) = (HashSet::new(), HashSet::new());
        for Wanted { names, bytes } in &self.0 {
            match tree.find(names.iter().map(|name| &name[..])) {
                Some(node) => {
                    found.extend((!bytes.is_empty() && node != NodeId::ROOT && seen.insert(node)).then_some(node))
                }
                None => missing.extend(missed.insert(names).then(|| names.join(&b'/'))),
            }
        }
        (found, missing)
    }

    /// What comes first in an image of `tree`: the ranges, and the inodes and directories on the way to them.
    pub fn hot_zone(&self, tree: &Tree) -> HotZone {
        let mut zone = HotZone::default();
        let mut seen = HashSet::new();
        for Wanted { names, bytes } in &self.0 {
            let Some(node) = tree.find(names.iter().map(|name| &name[..])) else { continue };
            let mut nodes = vec![NodeId::ROOT];
            for name in names {
                nodes.extend(nodes.last().and_then(|dir| tree.entries(*dir).find(name)));
            }
            zone.metadata.extend(nodes.into_iter().filter(|node| seen.insert(*node)));
            if !bytes.is_empty() {
                zone.ranges.push((node, bytes.clone()));
            }
        }
        zone
    }
}

#[cfg(test)]
mod tests {
    use super::super::hints::tests::tree;
    use super::*;
    use kiln_tree::{ContentId, Entry, Metadata, NoContents, Node, ThinSlice};
    use std::collections::HashMap;

    #[test]
    fn paths_find_their_files_in_their_order() {
        let order = PathOrder::parse(b"/z\n./lib//deep/b\n\nlib/nothing\nlib\nlib/b\na.so/x\n", "list").unwrap();
        let (found, missing) = order.of(&tree());
        assert_eq!(found, [4, 7, 2].map(NodeId));
        assert_eq!(missing, [&b"lib/nothing"[..], b"a.so/x"]);
        let error = PathOrder::parse(b"a\n../b", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `../b`: `..` has no meaning here");
    }

    #[test]
    fn hot_lists_are_orders_of_the_files_that_were_read() {
        let list = b"#kiln-hotlist 1\n0+0\t1\tz\n0+9\t2\tlib/deep/b\n0+9\t2\tlib/no\\011thing\n5+9\t2\tlib/deep/b\n0+9\t2\t/z\n0+1\t1\t.\n";
        let (found, missing) = PathOrder::parse(list, "list").unwrap().of(&tree());
        let plain = PathOrder::parse(b"lib/deep/b\nz\n", "list").unwrap();
        assert_eq!((found, missing), (plain.of(&tree()).0, vec![b"lib/no\tthing".to_vec()]));
        let error = PathOrder::parse(b"#kiln-hotlist 1\n0+9\t2\t../b", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `../b`: `..` has no meaning here");
    }

    #[test]
    fn hot_zones_are_ranges_and_the_way_to_them() {
        let tree = tree();
        let list =
            b"#kiln-hotlist 1\n0+0\t1\tz\n4+5\t2\tlib/deep/b\n0+6\t2\tlib/deep/b\n0+9\t2\tlib/nothing\n0+0\t1\t.\n";
        let zone = PathOrder::parse(list, "list").unwrap().hot_zone(&tree);
        let find = |path: &str| tree.find(path.split('/').map(str::as_bytes)).unwrap();
        let b = find("lib/deep/b");
        assert_eq!(zone.ranges, [(b, 4..9), (b, 0..4)], "each byte once");
        assert_eq!(zone.metadata, [NodeId::ROOT, find("z"), find("lib"), find("lib/deep"), b]);
        let zone = PathOrder::parse(b"lib/deep/b\n", "list").unwrap().hot_zone(&tree);
        assert_eq!(zone.ranges, [(b, 0..u64::MAX)]);
        assert_eq!(zone.metadata, [NodeId::ROOT, find("lib"), find("lib/deep"), b]);
    }

    /// A tree of these files, half of them in the directory `a`, half in `b`.
    fn tree_of(names: &[String]) -> Tree {
        let node = |kind| Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
        let half = names.len() / 2;
        let dir = |entries: &[(&str, u32)]| {
            let entry = |&(name, node): &(&str, u32)| (name.as_bytes().to_vec(), NodeId(node));
            let entries: Vec<(Vec<u8>, NodeId)> = entries.iter().map(entry).collect();
            let entries = entries.iter().map(|(name, node)| Entry { name, node: *node });
            node(Kind::Directory(Box::new(entries.collect())))
        };
        let numbered: Vec<(&str, u32)> = names.iter().zip(3..).map(|(name, id)| (&**name, id)).collect();
        let files = names.iter().map(|_| node(Kind::File { len: 1, content: ContentId(0), sparse: false }));
        let dirs = [dir(&[("a", 1), ("b", 2)]), dir(&numbered[..half]), dir(&numbered[half..])];
        Tree::new(dirs.into_iter().chain(files).collect(), Box::new(NoContents)).unwrap()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{number:05}.jpg")).collect()
    }

    /// The paths of all files in their random order.
    fn shuffled_paths(names: &[String], seed: u64) -> Vec<Vec<u8>> {
        let tree = tree_of(names);
        let (order, missing) = DataOrder::Shuffled { seed }.of(&tree);
        assert!(missing.is_empty());
        order.into_iter().map(|node| tree.path(node)).collect()
    }

    /// Spearman's rank correlation of two orders of the same paths.
    fn correlation(one: &[Vec<u8>], other: &[Vec<u8>]) -> f64 {
        let ranks: HashMap<&[u8], usize> = other.iter().enumerate().map(|(rank, path)| (&**path, rank)).collect();
        let squares = one.iter().enumerate().map(|(rank, path)| (rank as f64 - ranks[&**path] as f64).powi(2));
        let count = one.len() as f64;
        1.0 - 6.0 * squares.sum::<f64>() / (count * (count * count - 1.0))
    }

    #[test]
    fn random_orders_have_each_file_once_and_no_trace_of_paths() {
        let names = names(4000);
        let mut orders = vec![shuffled_paths(&names, 0)];
        orders[0].sort();
        orders.extend([0, 1, 2, u64::MAX].map(|seed| shuffled_paths(&names, seed)));
        for (idx, one) in orders.iter().enumerate() {
            let mut sorted = one.clone();
            sorted.sort();
            assert_eq!(sorted, orders[0]);
            // The correlation of random orders has a standard deviation of 1 / sqrt(4000), 0.016.
            assert!(orders[..idx].iter().all(|other| correlation(one, other).abs() < 0.06), "{idx}");
        }
        assert!(correlation(&orders[0], &orders[0]) > 0.999);
        assert_eq!(shuffled_paths(&names, 1), orders[2]);
        // Files of both directories follow each other as often as heads and tails: 2000 times, give or take 32.
        let changes = orders[1].windows(2).filter(|pair| pair[0][0] != pair[1][0]).count();
        assert!((1850..2150).contains(&changes), "{changes}");
    }

    #[test]
    fn files_that_come_or_go_leave_the_others_in_their_order() {
        let mut names = names(100);
        let before = shuffled_paths(&names, 3);
        names.push("new.jpg".into());
        let gone = names.remove(70);
        // Halves are of other files then: what stays is in the same directory.
        let after = shuffled_paths(&names, 3);
        let both = |paths: &[Vec<u8>], other: &[Vec<u8>]| {
            paths.iter().filter(|path| other.contains(path)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(both(&before, &after), both(&after, &before));
        assert_eq!(both(&before, &after).len(), 99, "but {gone}");
    }

    /// XXH3 is fixed, so this order is that of every machine. A file with two names is there once.
    #[test]
    fn random_orders_are_the_same_everywhere() {
        let paths = shuffled_paths(&names(6), 42);
        let paths: Vec<_> = paths.iter().map(|path| str::from_utf8(path).unwrap()).collect();
        // Of xxhash 0.8 by way of Python: sorted(paths, key=lambda path: xxhash.xxh3_64_intdigest(path, 42)).
        let expected = ["b/00004", "a/00001", "a/00000", "a/00002", "b/00003", "b/00005"];
        assert_eq!(paths, expected.map(|path| format!("{path}.jpg")));
        assert_eq!(DataOrder::Shuffled { seed: 42 }.of(&tree()).0.len(), 5);
        assert!(DataOrder::Path.of(&tree()).0.is_empty());
    }
}
