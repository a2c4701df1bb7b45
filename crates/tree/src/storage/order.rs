//! Order in which the data of files is stored.

use crate::{Kind, NodeId, Tree};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::hot_zone::HotZone;
use crate::filter::path_list::{components, paths};
use crate::syntax::FileError;

/// Order in which the data of files is stored. Names, the metadata of files and small files stored
/// with their inodes are always in path order.
#[derive(Clone, Debug, Default)]
pub enum DataOrder {
    /// By path: reading all files in the order of a walk reads the image sequentially.
    #[default]
    Path,
    /// In the order of a list; files that are not on it follow by path.
    List(PathOrder),
    /// At random, so that every section of the image is a random sample of the files. Files are
    /// sorted by the XXH3-64 of their path in the image, keyed with the seed: the order is the same
    /// on every machine, and adding or removing files does not change the relative order of the
    /// others. A file with several names uses the first one. Files with equal hashes are sorted by
    /// path.
    Shuffled {
        /// Seed of the hash.
        seed: u64,
    },
}

/// Formats the order as an argument of `kiln pack --order`: `path`, `list` or `shuffle:SEED`.
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
    /// Returns the nodes of `tree` whose order is given, and the paths of a list that do not exist.
    pub fn of(&self, tree: &Tree) -> (Vec<NodeId>, Vec<Vec<u8>>) {
        match self {
            Self::Path => Default::default(),
            Self::List(list) => list.of(tree),
            Self::Shuffled { seed } => (shuffled(tree, *seed), Vec::new()),
        }
    }

    /// Returns the files and metadata to store first.
    pub fn hot_zone(&self, tree: &Tree) -> HotZone {
        match self {
            Self::List(list) => list.hot_zone(tree),
            Self::Path | Self::Shuffled { .. } => HotZone::default(),
        }
    }
}

/// Returns all regular files, sorted by the keyed hashes of their paths.
fn shuffled(tree: &Tree, seed: u64) -> Vec<NodeId> {
    let files = tree.walk().filter(|&node| matches!(tree.node(node).kind, Kind::File { .. }));
    let mut keyed: Vec<(u64, NodeId)> = files.map(|node| (xxh3_64_with_seed(&tree.path(node), seed), node)).collect();
    // The sort is stable, and the walk is in path order.
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, node)| node).collect()
}

/// Ordered list of paths, relative to the root of the source.
#[derive(Clone, Debug, Default)]
pub struct PathOrder(Vec<OrderEntry>);

/// Entry of a list.
#[derive(Clone, Debug)]
struct OrderEntry {
    names: Vec<Vec<u8>>,
    /// Range of a file in bytes; empty for an inode alone or a directory.
    bytes: Range<u64>,
}

/// Ranges of files by their paths, in bytes and in the order of storage. An empty range stands for
/// an inode alone or a directory.
impl<'p> FromIterator<(&'p [u8], Range<u64>)> for PathOrder {
    fn from_iter<I: IntoIterator<Item = (&'p [u8], Range<u64>)>>(ranges: I) -> Self {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
        };
        Self(ranges.into_iter().map(|(path, bytes)| OrderEntry { names: names(path), bytes }).collect())
    }
}

impl PathOrder {
    /// Parses the list in a file called `name`, in the format of a
    /// [`PathList`](crate::filter::PathList). Its files are listed as a whole.
    ///
    /// # Errors
    /// A path with `..`.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, FileError> {
        let mut order = Vec::new();
        for (idx, path) in paths(text).enumerate() {
            let names = components(path).map_err(|error| error.at(name, idx))?;
            let names: Vec<_> = names.into_iter().map(<[u8]>::to_vec).collect();
            order.extend((!names.is_empty()).then_some(OrderEntry { names, bytes: 0..u64::MAX }));
        }
        Ok(Self(order))
    }

    /// Returns the nodes of `tree` with listed data, in the order of their first data, and the
    /// missing paths, each once. Inodes listed without data do not affect the order of data.
    pub fn of(&self, tree: &Tree) -> (Vec<NodeId>, Vec<Vec<u8>>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (mut seen, mut missed) = (HashSet::new(), HashSet::new());
        for OrderEntry { names, bytes } in &self.0 {
            match tree.find(names.iter().map(|name| &name[..])) {
                Some(node) => {
                    found.extend((!bytes.is_empty() && node != NodeId::ROOT && seen.insert(node)).then_some(node))
                }
                None => missing.extend(missed.insert(names).then(|| names.join(&b'/'))),
            }
        }
        (found, missing)
    }

    /// Returns the hot zone of an image of `tree`: the listed ranges, and the inodes and
    /// directories on the paths to them.
    pub fn hot_zone(&self, tree: &Tree) -> HotZone {
        let mut zone = HotZone::default();
        let mut seen = HashSet::new();
        for OrderEntry { names, bytes } in &self.0 {
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
    use crate::{ContentId, Entry, Metadata, NoContents, Node, ThinSlice};
    use std::collections::HashMap;

    #[test]
    fn paths_find_their_files_in_their_order() {
        let order = PathOrder::parse(b"/z\n./lib//deep/b\n\nlib/nothing\nlib\nlib/b\na.so/x\n", "list").unwrap();
        let (found, missing) = order.of(&tree());
        assert_eq!(found, [4, 7, 2].map(NodeId));
        assert_eq!(missing, [&b"lib/nothing"[..], b"a.so/x"]);
        let error = PathOrder::parse(b"a\n../b", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `../b`: `..` is not allowed");
    }

    #[test]
    fn ranges_are_orders_of_their_files() {
        let ranges = [("z", 0..0), ("lib/deep/b", 0..9), ("lib/no\tthing", 0..9), ("/z", 0..9), ("", 0..0)];
        let order: PathOrder = ranges.iter().map(|(path, bytes)| (path.as_bytes(), bytes.clone())).collect();
        let (found, missing) = order.of(&tree());
        let plain = PathOrder::parse(b"lib/deep/b\nz\n", "list").unwrap();
        assert_eq!((found, missing), (plain.of(&tree()).0, vec![b"lib/no\tthing".to_vec()]));
    }

    #[test]
    fn hot_zones_are_ranges_and_the_way_to_them() {
        let tree = tree();
        let ranges = [("z", 0..0), ("lib/deep/b", 4..9), ("lib/deep/b", 0..4), ("lib/nothing", 0..9), ("", 0..0)];
        let order: PathOrder = ranges.iter().map(|(path, bytes)| (path.as_bytes(), bytes.clone())).collect();
        let zone = order.hot_zone(&tree);
        let find = |path: &str| tree.find(path.split('/').map(str::as_bytes)).unwrap();
        let b = find("lib/deep/b");
        assert_eq!(zone.ranges, [(b, 4..9), (b, 0..4)]);
        assert_eq!(zone.metadata, [NodeId::ROOT, find("z"), find("lib"), find("lib/deep"), b]);
        let zone = PathOrder::parse(b"lib/deep/b\n", "list").unwrap().hot_zone(&tree);
        assert_eq!(zone.ranges, [(b, 0..u64::MAX)]);
        assert_eq!(zone.metadata, [NodeId::ROOT, find("lib"), find("lib/deep"), b]);
    }

    /// Returns a tree of these files, half of them in the directory `a`, half in `b`.
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

    /// Returns the paths of all files in random order.
    fn shuffled_paths(names: &[String], seed: u64) -> Vec<Vec<u8>> {
        let tree = tree_of(names);
        let (order, missing) = DataOrder::Shuffled { seed }.of(&tree);
        assert!(missing.is_empty());
        order.into_iter().map(|node| tree.path(node)).collect()
    }

    /// Returns Spearman's rank correlation of two orders of the same paths.
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
        // Adjacent files are from different directories as often as heads follow tails: 2000 times,
        // give or take 32.
        let changes = orders[1].windows(2).filter(|pair| pair[0][0] != pair[1][0]).count();
        assert!((1850..2150).contains(&changes), "{changes}");
    }

    #[test]
    fn files_that_come_or_go_leave_the_others_in_their_order() {
        let mut names = names(100);
        let before = shuffled_paths(&names, 3);
        names.push("new.jpg".into());
        let gone = names.remove(70);
        // The halves contain other files then; the remaining files stay in their directories.
        let after = shuffled_paths(&names, 3);
        let both = |paths: &[Vec<u8>], other: &[Vec<u8>]| {
            paths.iter().filter(|path| other.contains(path)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(both(&before, &after), both(&after, &before));
        assert_eq!(both(&before, &after).len(), 99, "but {gone}");
    }

    /// XXH3 is fixed, so this order is the same on every machine. A file with two names occurs
    /// once.
    #[test]
    fn random_orders_are_the_same_everywhere() {
        let paths = shuffled_paths(&names(6), 42);
        let paths: Vec<_> = paths.iter().map(|path| str::from_utf8(path).unwrap()).collect();
        // From xxhash 0.8 in Python: sorted(paths, key=lambda path: xxhash.xxh3_64_intdigest(path,
        // 42)).
        let expected = ["b/00004", "a/00001", "a/00000", "a/00002", "b/00003", "b/00005"];
        assert_eq!(paths, expected.map(|path| format!("{path}.jpg")));
        assert_eq!(DataOrder::Shuffled { seed: 42 }.of(&tree()).0.len(), 5);
        assert!(DataOrder::Path.of(&tree()).0.is_empty());
    }
}
