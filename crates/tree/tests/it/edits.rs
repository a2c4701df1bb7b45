//! Edits of trees. Those of definition files are tested with their parsers.

use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{Snapshot, of_tree};
use kiln_tree::policy::{EditOp, EditTime, MetadataChange, MissingParents, Policy, TreeEdit, TreeEdits, apply};
use kiln_tree::{Kind, NoContents, NodeId, Tree};
use std::sync::Arc;

/// Returns a tree with the files `a` and `d/f`.
fn some() -> Tree {
    let mut tree = MemTree::default();
    tree.file(NodeId::ROOT, b"a", MemFile::whole(b"contents".to_vec()));
    let dir = tree.dir(NodeId::ROOT, b"d");
    tree.file(dir, b"f", MemFile::whole(b"f".to_vec()));
    tree.meta(NodeId::ROOT).mtime = 7;
    tree.finish().unwrap()
}

fn edited(edits: Vec<(&str, EditOp)>) -> Result<Snapshot, String> {
    let edit =
        |(line_idx, (path, op)): (usize, (&str, EditOp))| TreeEdit { line_idx, path: path.as_bytes().into(), op };
    let edits = edits.into_iter().enumerate().map(edit).collect();
    let edits = vec![TreeEdits::new("edits".into(), edits, Arc::new(NoContents))];
    let tree = apply(some(), &Policy { edits, ..Policy::default() }).map_err(|error| error.to_string())?;
    Ok(of_tree(&tree).unwrap())
}

fn change(permissions: u16) -> MetadataChange {
    MetadataChange { permissions: Some(permissions), uid: 1, gid: 2, time: None }
}

fn new_dir(parents: MissingParents) -> EditOp {
    let node = change(0o750).new_node(Kind::Directory(Box::default()));
    EditOp::Create { node, time: EditTime::OfRoot, parents }
}

#[test]
fn edits_apply_in_their_order() {
    let found = edited(vec![
        ("x/y", new_dir(MissingParents::Created)),
        ("d", EditOp::ChangeBelow(change(0o700))),
        ("d/link", EditOp::Link(b"a"[..].into())),
        ("a", EditOp::Change(change(0o640))),
        ("none", EditOp::ChangeIfThere(change(0))),
    ])
    .unwrap();
    let modes = |path: &[u8]| (found[path].permissions, found[path].uid, found[path].gid);
    for (path, permissions) in
        [(&b"x"[..], 0o750), (b"x/y", 0o750), (b"d", 0o700), (b"d/f", 0o700), (b"a", 0o640), (b"d/link", 0o640)]
    {
        assert_eq!(modes(path), (permissions, 1, 2), "{}", path.escape_ascii());
    }
    assert_eq!((found[&b"x/y"[..]].mtime.0, found[&b"a"[..]].nlink), (7, 2));
    assert_eq!(found[&b"d/link"[..]].contents, of_tree(&some()).unwrap()[&b"a"[..]].contents);
}

#[test]
fn errors_name_the_line_and_the_path() {
    let first = |op| edited(vec![("d", EditOp::Change(change(0o700))), ("x/y", op)]).unwrap_err();
    let missing = "edits, line 2: path `x/y`: there is no directory x; define it first";
    assert_eq!(first(new_dir(MissingParents::Refused)), missing);
    assert_eq!(first(EditOp::Change(change(0))), "edits, line 2: path `x/y`: there is no such file");
}
