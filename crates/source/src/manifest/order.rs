//! Order of data from lists: lists of paths, and hot lists.

use kiln_read::hotlist::{HotList, HotListError};
use kiln_tree::storage::PathOrder;
use kiln_tree::{FileError, SyntaxError};

/// Parses the list in a file called `name`: either paths, one per line or each with a zero byte at
/// its end, whose files are listed as a whole, or a [`HotList`].
///
/// # Errors
/// A path with `..`, and invalid lines of a hot list.
pub fn parse_order(text: &[u8], name: &str) -> Result<PathOrder, FileError> {
    if !HotList::is_one(text) {
        return PathOrder::parse(text, name);
    }
    HotList::parse(text, name).map(|list| hot_order(&list)).map_err(of_hot_list)
}

/// Returns the order of the entries of `list`, each byte and each inode once.
pub fn hot_order(list: &HotList) -> PathOrder {
    let merged = HotList::merge(std::slice::from_ref(list));
    merged.entries().iter().map(|entry| (&*entry.path, entry.range())).collect()
}

fn of_hot_list(error: HotListError) -> FileError {
    let HotListError { name, line, field, value, reason } = error;
    FileError { name, line, source: SyntaxError { field, value, reason: reason.to_owned() } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::{Builder, ContentId, Kind, Metadata, NoContents, Node, NodeId, ThinSlice, Tree};

    /// `lib/deep/b` and `z`.
    fn tree() -> Tree {
        let mut builder = Builder::default();
        for path in ["lib/deep/b", "z"] {
            let kind = Kind::File { len: 9, content: ContentId(0), sparse: false };
            let node = Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
            builder.insert(path.as_bytes(), node).unwrap();
        }
        builder.finish(Box::new(NoContents)).unwrap()
    }

    #[test]
    fn hot_lists_are_orders_of_the_files_that_were_read() {
        let list = b"#kiln-hotlist 1\n0+0\t1\tz\n0+9\t2\tlib/deep/b\n0+9\t2\tlib/no\\011thing\n\
            5+9\t2\tlib/deep/b\n0+9\t2\t/z\n0+1\t1\t.\n";
        let (found, missing) = parse_order(list, "list").unwrap().of(&tree());
        let plain = parse_order(b"lib/deep/b\nz\n", "list").unwrap();
        assert_eq!((found, missing), (plain.of(&tree()).0, vec![b"lib/no\tthing".to_vec()]));
        let error = parse_order(b"#kiln-hotlist 1\n0+9\t2\t../b", "list").unwrap_err();
        assert_eq!(error.to_string(), "list, line 2: path `../b`: `..` has no meaning here");
    }

    #[test]
    fn hot_zones_have_each_byte_once() {
        let tree = tree();
        let list =
            b"#kiln-hotlist 1\n0+0\t1\tz\n4+5\t2\tlib/deep/b\n0+6\t2\tlib/deep/b\n0+9\t2\tlib/nothing\n0+0\t1\t.\n";
        let zone = parse_order(list, "list").unwrap().hot_zone(&tree);
        let find = |path: &str| tree.find(path.split('/').map(str::as_bytes)).unwrap();
        let b = find("lib/deep/b");
        assert_eq!(zone.ranges, [(b, 4..9), (b, 0..4)]);
        assert_eq!(zone.metadata, [NodeId::ROOT, find("z"), find("lib"), find("lib/deep"), b]);
    }
}
