//! Filters applied to finished trees. Those of directories are tested with their source.

use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::of_tree;
use kiln_tree::filter::{Filter, PathList, Rules, select};
use kiln_tree::{NodeId, Tree};

/// Returns a tree with `a.o`, `d/b.o`, `d/c` and an ignore file `d/.ig` with this text.
fn tree(ignored: &[u8]) -> Tree {
    let mut tree = MemTree::default();
    tree.file(NodeId::ROOT, b"a.o", MemFile::whole(b"a".to_vec()));
    let dir = tree.dir(NodeId::ROOT, b"d");
    tree.file(dir, b"b.o", MemFile::whole(b"b".to_vec()));
    tree.file(dir, b"c", MemFile::whole(b"c".to_vec()));
    tree.file(dir, b".ig", MemFile::whole(ignored.to_vec()));
    tree.finish().unwrap()
}

fn paths(tree: &Tree) -> Vec<String> {
    of_tree(tree).unwrap().into_keys().skip(1).map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn rules_lists_and_ignore_files_select_together() {
    let (all, errors) = select(tree(b"c"), &Filter::default()).unwrap();
    assert_eq!((paths(&all), errors.len()), (["a.o", "d", "d/.ig", "d/b.o", "d/c"].map(String::from).to_vec(), 0));
    let mut filter = Filter { rules: vec![Rules::parse(b"*.o\n", "rules").unwrap()], ..Filter::default() };
    assert_eq!(paths(&select(tree(b"c"), &filter).unwrap().0), ["d", "d/.ig", "d/c"]);
    filter.ignore_files.push(c".ig".into());
    assert_eq!(paths(&select(tree(b"c"), &filter).unwrap().0), ["d", "d/.ig"]);
    filter.exclude_path(b"/d/./.ig");
    assert_eq!(paths(&select(tree(b"c"), &filter).unwrap().0), ["d"]);
}

#[test]
fn paths_that_cannot_be_selected_are_returned_with_their_errors() {
    let only = Some(PathList::parse(b"a.o/x\nd/none\nd/c\n", "list").unwrap());
    let (some, mut errors) = select(tree(b""), &Filter { only, ..Filter::default() }).unwrap();
    assert_eq!(paths(&some), ["d", "d/c"]);
    errors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let errors: Vec<String> = errors.iter().map(|(path, error)| format!("{}: {error}", path.escape_ascii())).collect();
    assert_eq!(errors[0], "a.o: not a directory");
    // As the system reports it for a directory.
    assert_eq!(errors[1], format!("d/none: {}", std::fs::metadata("/no such file").unwrap_err()));
    let bad = Filter { ignore_files: vec![c".ig".into()], ..Filter::default() };
    let (some, errors) = select(tree(b"["), &bad).unwrap();
    assert_eq!((paths(&some), &*errors[0].0), (vec!["a.o".to_owned(), "d".into()], &b"d"[..]));
}
