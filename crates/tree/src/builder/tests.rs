//! Trees that are made, against a naive twin.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;

use super::{Builder, Implied, directory};
use crate::{Kind, Metadata, NoContents, Node, NodeId, ThinSlice, Tree, TreeError, TreeProblem};

fn meta(uid: u32) -> Metadata {
    Metadata { permissions: 0o755, uid, ..Metadata::default() }
}

fn file(uid: u32) -> Node {
    Node { meta: meta(uid), xattrs: ThinSlice::default(), kind: Kind::Fifo }
}

fn dir(uid: u32) -> Node {
    directory(meta(uid))
}

/// Path, type, uid, and the first path of the same node.
fn shown(tree: &Tree) -> Vec<(String, char, u32, String)> {
    let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
    let mut list = Vec::new();
    let mut stack = vec![(NodeId::ROOT, Vec::new())];
    while let Some((id, path)) = stack.pop() {
        let node = tree.node(id);
        list.push((text(path.clone()), node.kind.file_type().letter(), node.meta.uid, text(tree.path(id))));
        let below = |name: &[u8]| if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
        stack.extend(tree.entries(id).iter().map(|entry| (entry.node, below(entry.name))));
    }
    list.sort();
    list
}

fn finished(builder: Builder) -> Vec<(String, char, u32, String)> {
    shown(&builder.finish(Box::new(NoContents)).unwrap())
}

/// Returns the result of [`shown`] for paths, types and uids without hard links.
fn expected(list: &[(&str, char, u32)]) -> Vec<(String, char, u32, String)> {
    list.iter().map(|(path, kind, uid)| ((*path).to_owned(), *kind, *uid, (*path).to_owned())).collect()
}

#[test]
fn implied_parents_can_inherit() {
    let root = Metadata { permissions: 0o775, uid: 1, gid: 2, mtime: 3, mtime_nsec: 4 };
    let mut builder = Builder::new(Implied::Inherited(root));
    builder.insert(b"a/b/c", file(9)).unwrap();
    builder.insert(b"a/other", Node { meta: Metadata { permissions: 0o7707, ..root }, ..dir(0) }).unwrap();
    builder.insert(b"a/other/d/e", file(9)).unwrap();
    let tree = builder.finish(Box::new(NoContents)).unwrap();
    let meta = |path: &str| tree.node(tree.find(path.split('/').map(str::as_bytes)).unwrap()).meta;
    assert_eq!(tree.node(NodeId::ROOT).meta, root);
    // What only paths tell of is nobody's but root's, whoever may write to the directory that it is in.
    let implied = Metadata { permissions: 0o755, uid: 0, gid: 0, ..root };
    for path in ["a", "a/b", "a/other/d"] {
        assert_eq!(meta(path), implied, "{path}");
    }
}

#[test]
fn hard_links_to_nothing_can_be_left_out() {
    let links =
        [("a", "b"), ("b", "a"), ("c", "a"), ("d", "nothing"), ("e", "d"), ("f", "dir"), ("g", "file"), ("h", "g")];
    let mut builder = Builder::default();
    for (path, target) in links {
        builder.hard_link(path.as_bytes(), target.as_bytes()).unwrap();
    }
    builder.insert(b"dir/x", file(1)).unwrap();
    builder.insert(b"file", file(2)).unwrap();
    let mut lost = Vec::new();
    let mut on_lost = |error: TreeError| {
        lost.push(error.to_string());
        Ok(())
    };
    let tree = builder.finish_with(Box::new(NoContents), &mut on_lost).unwrap();
    let paths: Vec<_> = shown(&tree).into_iter().map(|(path, ..)| path).collect();
    assert_eq!(paths, ["", "dir", "dir/x", "file", "g", "h"]);
    let told: Vec<_> = lost.iter().map(|error| &error[..1]).collect();
    assert_eq!(told.len(), 6, "{lost:?}");
}

#[test]
fn parents_are_implied_until_they_come() {
    let mut builder = Builder::new(meta(9));
    builder.insert(b"/a/./b//c/", file(1)).unwrap();
    builder.insert(b"a", dir(2)).unwrap();
    builder.insert(b"./", dir(3)).unwrap();
    assert_eq!(finished(builder), expected(&[("", 'd', 3), ("a", 'd', 2), ("a/b", 'd', 9), ("a/b/c", 'p', 1)]));
}

#[test]
fn implied_directories_are_known() {
    let implied = |tree: &Tree| {
        let dirs = tree
            .nodes()
            .filter(|(id, _)| tree.is_implied(*id))
            .map(|(id, _)| String::from_utf8(tree.path(id)).unwrap());
        dirs.collect::<Vec<_>>()
    };
    let mut builder = Builder::new(meta(9));
    builder.insert(b"z/b/c", file(1)).unwrap();
    builder.insert(b"a/gone/c", file(1)).unwrap();
    builder.insert(b"a/b", dir(2)).unwrap();
    builder.insert(b"z", dir(2)).unwrap();
    builder.remove(b"a/gone").unwrap();
    let tree = builder.finish(Box::new(NoContents)).unwrap();
    assert_eq!(implied(&tree), ["", "a", "z/b"]);
    let (mut builder, contents) = Builder::from_tree(tree);
    builder.insert(b"", dir(1)).unwrap();
    builder.insert(b"0/x", file(1)).unwrap();
    assert_eq!(implied(&builder.finish(contents).unwrap()), ["0", "a", "z/b"]);
}

#[test]
fn entries_are_changed_by_their_directories() {
    let mut builder = Builder::new(meta(0));
    let usr = builder.dir_in(NodeId::ROOT, b"usr").unwrap();
    assert_eq!(builder.dir_in(NodeId::ROOT, b"usr").unwrap(), usr);
    let one = builder.insert_in(usr, b"one", file(1)).unwrap();
    builder.link_in(NodeId::ROOT, b"two", one).unwrap();
    builder.insert_in(usr, b"gone", file(2)).unwrap();
    builder.remove_in(usr, b"gone").unwrap();
    builder.remove_in(usr, b"never").unwrap();
    assert_eq!(builder.insert_in(NodeId::ROOT, b"usr", dir(7)).unwrap(), usr);
    let full = builder.dir_in(NodeId::ROOT, b"full").unwrap();
    builder.insert_in(full, b"x", file(3)).unwrap();
    builder.clear_dir(full);
    builder.insert_in(full, b"y", file(4)).unwrap();
    let shown = finished(builder);
    let list: Vec<_> = shown.iter().map(|(path, kind, uid, first)| (&**path, *kind, *uid, &**first)).collect();
    let expected = [
        ("", 'd', 0, ""),
        ("full", 'd', 0, "full"),
        ("full/y", 'p', 4, "full/y"),
        ("two", 'p', 1, "two"),
        ("usr", 'd', 7, "usr"),
        ("usr/one", 'p', 1, "two"),
    ];
    assert_eq!(list, expected);
}

#[test]
fn later_entries_override() {
    let mut builder = Builder::new(meta(0));
    builder.insert(b"dir/old", file(1)).unwrap();
    builder.insert(b"dir", file(2)).unwrap();
    builder.insert(b"file", file(3)).unwrap();
    builder.insert(b"file", dir(4)).unwrap();
    builder.insert(b"file/in", file(5)).unwrap();
    builder.insert(b"twice", file(6)).unwrap();
    builder.insert(b"twice", file(7)).unwrap();
    let expected = expected(&[("", 'd', 0), ("dir", 'p', 2), ("file", 'd', 4), ("file/in", 'p', 5), ("twice", 'p', 7)]);
    assert_eq!(finished(builder), expected);
}

#[test]
fn layers_take_away() {
    let mut builder = Builder::new(meta(0));
    for path in ["a/x", "a/y", "b/x", "c"] {
        builder.insert(path.as_bytes(), file(1)).unwrap();
    }
    builder.remove(b"a/x").unwrap();
    builder.remove(b"nowhere/at/all").unwrap();
    builder.remove(b"c").unwrap();
    builder.insert(b"c/in", file(2)).unwrap();
    builder.clear(b"b").unwrap();
    builder.insert(b"b/y", file(3)).unwrap();
    builder.clear(b"new").unwrap();
    assert_eq!(builder.find(b"a/x").unwrap(), None);
    assert_eq!(builder.find(b"c/in/deeper").unwrap(), None);
    assert!(builder.find(b"c/in").unwrap().is_some());
    let expected = expected(&[
        ("", 'd', 0),
        ("a", 'd', 0),
        ("a/y", 'p', 1),
        ("b", 'd', 0),
        ("b/y", 'p', 3),
        ("c", 'd', 0),
        ("c/in", 'p', 2),
        ("new", 'd', 0),
    ]);
    assert_eq!(finished(builder), expected);
}

#[test]
fn hard_links_may_come_first() {
    let mut builder = Builder::new(meta(0));
    builder.hard_link(b"a", b"/b").unwrap();
    builder.hard_link(b"b", b"z/file").unwrap();
    builder.hard_link(b"gone", b"nothing").unwrap();
    builder.insert(b"z/file", file(1)).unwrap();
    builder.hard_link(b"z/link", b"z/file").unwrap();
    // Names keep the file that they had.
    builder.insert(b"z/old", file(2)).unwrap();
    builder.hard_link(b"z/older", b"z/old").unwrap();
    builder.insert(b"z/old", file(3)).unwrap();
    builder.remove(b"gone").unwrap();
    let list = finished(builder);
    let of = |path: &str| list.iter().find(|(other, ..)| other == path).map(|(.., uid, first)| (*uid, &first[..]));
    for path in ["a", "b", "z/file", "z/link"] {
        assert_eq!(of(path), Some((1, "a")), "{path}");
    }
    assert_eq!((of("z/old"), of("z/older")), (Some((3, "z/old")), Some((2, "z/older"))));
    assert_eq!(list.len(), 8);
}

fn refused(make: impl FnOnce(&mut Builder) -> Result<(), TreeError>) -> String {
    let mut builder = Builder::default();
    make(&mut builder).and_then(|()| builder.finish(Box::new(NoContents)).map(drop)).unwrap_err().to_string()
}

#[test]
fn errors_name_the_path() {
    let insert = |path: &'static [u8]| refused(move |builder| builder.insert(path, file(1)).map(drop));
    assert_eq!(insert(b"a/../b"), "a/../b: `..` has no meaning here");
    assert_eq!(insert(b"a\0b"), "a\0b: a zero byte in a name");
    let long = insert(&[b'x'; 256]);
    assert!(long.ends_with("x: a name of 256 bytes: names have 255 at most"), "{long}");
    assert_eq!(insert(b"/."), "/.: the root is no directory");
    assert_eq!(refused(|builder| builder.remove(b"/")), "/: the root cannot be removed");
    assert_eq!(refused(|builder| builder.hard_link(b"./", b"x")), "./: the root is no directory");
    let file_as_parent = refused(|builder| {
        builder.insert(b"a/b", file(1))?;
        builder.insert(b"/a//b/c/d", file(1)).map(drop)
    });
    assert_eq!(file_as_parent, "/a//b/c/d: /a//b is no directory");
    let cleared = refused(|builder| {
        builder.insert(b"a", file(1))?;
        builder.clear(b"a")
    });
    assert_eq!(cleared, "a: a is no directory");
    let dangling = "a/b: a hard link to c, which does not exist";
    assert_eq!(refused(|builder| builder.hard_link(b"a/b", b"c")), dangling);
    let to_directory = "l: a hard link to d, which is a directory";
    for is_first in [true, false] {
        let error = refused(|builder| {
            if !is_first {
                builder.insert(b"d/x", file(1))?;
            }
            builder.hard_link(b"l", b"d")?;
            builder.insert(b"d", dir(1)).map(drop)
        });
        assert_eq!(error, to_directory);
    }
    let in_a_circle = refused(|builder| {
        builder.hard_link(b"a", b"b")?;
        builder.hard_link(b"b", b"c")?;
        builder.hard_link(b"c", b"./b")
    });
    assert!(in_a_circle.ends_with("which leads back to it"), "{in_a_circle}");
    assert_eq!(refused(|builder| builder.hard_link(b"a", b"a")), "a: a hard link to a, which leads back to it");
    let twice = refused(|builder| {
        let id = builder.add(file(1))?;
        builder.name(NodeId::ROOT, b"a", id);
        builder.name(NodeId::ROOT, b"a", id);
        Ok(())
    });
    assert_eq!(twice, "a: the name is there twice");
    let mut builder = Builder::default();
    builder.name(NodeId::ROOT, b"a", NodeId(7));
    let error = builder.finish(Box::new(NoContents)).map(drop).unwrap_err();
    assert_eq!((&error.path[..], error.problem), (&b"a"[..], TreeProblem::NoSuchNode));
}

#[test]
fn both_ways_can_be_mixed() {
    let mut builder = Builder::new(meta(0));
    let by_hand = builder.add(dir(1)).unwrap();
    builder.name(NodeId::ROOT, b"dir", by_hand);
    assert_eq!(builder.insert(b"dir/a", file(2)).unwrap(), NodeId(2));
    let second = builder.add(file(3)).unwrap();
    builder.name(by_hand, b"b", second);
    builder.hard_link(b"c", b"dir/b").unwrap();
    builder.meta_mut(second).0.uid = 4;
    let tree = builder.finish(Box::new(NoContents)).unwrap();
    let (mut builder, contents) = Builder::from_tree(tree);
    builder.insert(b"dir/a", file(5)).unwrap();
    let list = shown(&builder.finish(contents).unwrap());
    let uids: Vec<_> = list.iter().map(|(path, _, uid, _)| (&path[..], *uid)).collect();
    assert_eq!(uids, [("", 0), ("c", 4), ("dir", 1), ("dir/a", 5), ("dir/b", 4)]);
}

#[test]
fn nodes_are_in_walk_order_and_none_is_left_over() {
    let mut builder = Builder::new(meta(0));
    for path in ["z", "b/y", "b/x/1", "a", "c/d"] {
        builder.insert(path.as_bytes(), file(1)).unwrap();
    }
    builder.insert(b"z", file(2)).unwrap();
    builder.remove(b"c").unwrap();
    let tree = builder.finish(Box::new(NoContents)).unwrap();
    let paths: Vec<_> = tree.nodes().map(|(id, _)| String::from_utf8(tree.path(id)).unwrap()).collect();
    assert_eq!(paths, ["", "a", "b", "z", "b/x", "b/y", "b/x/1"]);
}

/// Operation on a builder.
#[derive(Clone, Debug)]
enum Step {
    File(&'static str),
    Dir(&'static str),
    Link(&'static str, &'static str),
    Remove(&'static str),
    Clear(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    const PATHS: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "a/b/a", "c"];
    let path = || select(&PATHS[..]);
    prop_oneof![
        4 => path().prop_map(Step::File),
        3 => path().prop_map(Step::Dir),
        2 => (path(), path()).prop_map(|(path, target)| Step::Link(path, target)),
        1 => path().prop_map(Step::Remove),
        1 => path().prop_map(Step::Clear),
    ]
}

/// Paths and what is there: a directory or a file, and a number that is its own but for hard links.
type Model = BTreeMap<String, (bool, u32)>;

/// Returns true if the model supports the operation.
fn apply(model: &mut Model, step: &Step, number: u32) -> bool {
    let below = |path: &str, other: &str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    let (Step::File(path) | Step::Dir(path) | Step::Link(path, _) | Step::Remove(path) | Step::Clear(path)) = step;
    if let Step::Remove(_) = step {
        model.retain(|other, _| other != path && !below(path, other));
        return true;
    }
    let linked = match step {
        Step::Link(_, target) => match model.get(*target) {
            Some((false, number)) => Some(*number),
            _ => return false,
        },
        _ => None,
    };
    let parents: Vec<&str> = path.match_indices('/').map(|(at, _)| &path[..at]).collect();
    if parents.iter().any(|parent| matches!(model.get(*parent), Some((false, _)))) {
        return false;
    }
    for parent in parents {
        model.entry(parent.to_owned()).or_insert((true, 0));
    }
    let there = model.get(*path).copied();
    match step {
        Step::Dir(_) if matches!(there, Some((true, _))) => drop(model.insert((*path).to_owned(), (true, number))),
        Step::Clear(_) => match there {
            Some((false, _)) => return false,
            _ => {
                model.retain(|other, _| !below(path, other));
                model.entry((*path).to_owned()).or_insert((true, 0));
            }
        },
        _ => {
            model.retain(|other, _| !below(path, other));
            model.insert((*path).to_owned(), (matches!(step, Step::Dir(_)), linked.unwrap_or(number)));
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn a_builder_is_a_map_of_paths(steps in vec(step(), 0..30)) {
        let (mut builder, mut model) = (Builder::new(meta(0)), Model::from([(String::new(), (true, 0))]));
        for (number, step) in (1..).zip(&steps) {
            if let Step::Link(_, target) = step && !model.contains_key(*target) {
                // The model knows no links to what comes later.
                continue;
            }
            let done = match step {
                Step::File(path) => builder.insert(path.as_bytes(), file(number)).map(drop),
                Step::Dir(path) => builder.insert(path.as_bytes(), dir(number)).map(drop),
                Step::Link(path, target) => builder.hard_link(path.as_bytes(), target.as_bytes()),
                Step::Remove(path) => builder.remove(path.as_bytes()),
                Step::Clear(path) => builder.clear(path.as_bytes()),
            };
            prop_assert_eq!(done.is_ok(), apply(&mut model, step, number), "{:?} {:?}", step, done);
        }
        let list = finished(builder).into_iter().map(|(path, kind, uid, _)| (path, (kind == 'd', uid)));
        prop_assert_eq!(Model::from_iter(list), model);
    }
}
