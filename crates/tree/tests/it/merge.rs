//! Merges of trees. They are compared with overlayfs where sources are merged.

use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::of_tree;
use kiln_tree::merge::{MergeBuilder, Whiteouts};
use kiln_tree::{
    Builder, Content, ContentError, ContentId, Kind, Metadata, Node, NodeId, PlainContents, ThinSlice, Tree, Version,
};
use std::io;

/// Returns a tree with a file of this name and contents, and a whiteout of `gone`.
fn layer(name: &str, bytes: &str) -> Tree {
    let mut tree = MemTree::default();
    let dir = tree.dir(NodeId::ROOT, b"d");
    tree.file(dir, name.as_bytes(), MemFile::whole(bytes.into()));
    tree.add(dir, b"gone", Kind::CharDevice(Default::default()));
    tree.finish().unwrap()
}

/// Returns the paths of a merge and the contents of its regular files.
fn merged(whiteouts: Whiteouts) -> Vec<(String, String)> {
    let mut merged = MergeBuilder::new(Builder::default(), whiteouts);
    for (tree, at) in [(layer("gone2", "0"), ""), (layer("a", "1"), "/"), (layer("a", "2"), "at//x/")] {
        merged.put(tree, at.as_bytes()).unwrap();
    }
    merged.link(b"first", b"./at/x/d/a").unwrap();
    assert!(merged.link(b"other", b"none").is_err());
    let tree = merged.finish().unwrap();
    let shown = |id: NodeId| {
        let Kind::File { len, .. } = tree.node(id).kind else { return String::new() };
        let mut bytes = vec![0; len as usize];
        tree.open(id).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let paths = of_tree(&tree).unwrap().into_keys().skip(1);
    let find = |path: &[u8]| tree.find(path.split(|&byte| byte == b'/')).unwrap();
    paths.map(|path| (String::from_utf8(path.clone()).unwrap(), shown(find(&path)))).collect()
}

#[test]
fn trees_are_merged_at_the_root_and_below_it() {
    let expected = |paths: &[(&str, &str)]| -> Vec<(String, String)> {
        paths.iter().map(|(path, bytes)| ((*path).to_owned(), (*bytes).to_owned())).collect()
    };
    let applied = [
        ("at", ""),
        ("at/x", ""),
        ("at/x/d", ""),
        ("at/x/d/a", "2"),
        ("d", ""),
        ("d/a", "1"),
        ("d/gone2", "0"),
        ("first", "2"),
    ];
    assert_eq!(merged(Whiteouts::Apply), expected(&applied));
    let kept = merged(Whiteouts::Keep).into_iter().filter(|(path, _)| path.ends_with("gone"));
    assert_eq!(kept.map(|(path, _)| path).collect::<Vec<_>>(), ["at/x/d/gone", "d/gone"]);
}

/// Contents that know their files by path.
struct ByPath(&'static str);

impl PlainContents for ByPath {
    fn open_plain(&self, _: ContentId, path: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        assert_eq!(path, self.0.as_bytes());
        Err(io::Error::other("opened").into())
    }
}

#[test]
fn contents_are_opened_by_their_original_paths() {
    let mut builder = Builder::default();
    let kind = Kind::File { len: 1, content: ContentId(0), sparse: false };
    builder.insert(b"z", Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind }).unwrap();
    let tree = builder.finish(Box::new(ByPath("z"))).unwrap();
    let mut merged = MergeBuilder::new(Builder::default(), Whiteouts::Apply);
    merged.put(tree, b"at").unwrap();
    merged.link(b"a", b"at/z").unwrap();
    let tree = merged.finish().unwrap();
    let error = tree.open(tree.find([&b"a"[..]]).unwrap()).err().unwrap();
    assert_eq!(error.to_string(), "a: opened");
}
