//! Laws of differences, over small random trees.

use crate::common::{Model, Spot, SpotKind, tree};
use kiln_builder::BuildOptions;
use kiln_diff::{Aspect, Change, ChangeKind, DiffOptions, diff};
use kiln_parallel::Threads;
use kiln_tests::image::{build, open, scan_image};
use kiln_tests::mem::MemFile;
use kiln_tests::snapshot::{Record, of_tree};
use kiln_tree::Tree;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

static GOING: AtomicBool = AtomicBool::new(false);

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0xD1FF), failure_persistence: None, ..Default::default() }
}

/// Few paths, so that two trees have much in common; `a-` sorts between `a` and `a/b`.
const PATHS: [&str; 14] =
    ["a", "a/a", "a/b", "a/b/c", "a/b/d", "a-", "b", "b/a", "b/b", "c", "d", "d/e", "d/e/f", "\u{7f}"];

fn spot() -> impl Strategy<Value = Spot> {
    let file = vec(0..2_u8, 0..4).prop_map(|bytes| SpotKind::File(MemFile::whole(bytes)));
    let kind = prop_oneof![
        3 => Just(SpotKind::Dir),
        4 => file,
        1 => select(vec!["x", "y"]).prop_map(SpotKind::Symlink),
        1 => (0..2_u32, 0..2_u32).prop_map(|(major, minor)| SpotKind::CharDevice(major, minor)),
        1 => Just(SpotKind::Fifo),
        4 => select(PATHS.to_vec()).prop_map(|path| SpotKind::Link(path.into())),
    ];
    let rarely = || prop::bool::weighted(0.1);
    let xattrs = prop_oneof![
        4 => Just(Default::default()),
        1 => btree_map(select(vec!["user.a", "user.b", "user.c"]), vec(0..2_u8, 0..2), 0..3),
    ];
    (kind, (rarely(), rarely(), rarely(), rarely(), rarely()), xattrs).prop_map(|(kind, odd, xattrs)| {
        let mut spot = Spot { xattrs, ..Spot::new(kind) };
        spot.meta.permissions += u16::from(odd.0);
        spot.meta.uid += u32::from(odd.1);
        spot.meta.gid += u32::from(odd.2);
        spot.meta.mtime += i64::from(odd.3);
        spot.meta.mtime_nsec += u32::from(odd.4);
        spot
    })
}

/// Makes a model of random nodes consistent: drops nodes without a parent directory, and links
/// without a valid target.
fn sound(spots: Model) -> Model {
    let mut model = Model::new();
    for (path, spot) in spots {
        let is_dir = |path: &[u8]| model.get(path).is_some_and(|spot: &Spot| matches!(spot.kind, SpotKind::Dir));
        let parent = path.iter().rposition(|&b| b == b'/').map(|slash| &path[..slash]);
        let fits = match &spot.kind {
            SpotKind::Link(to) => model.get(to).is_some_and(|to| !matches!(to.kind, SpotKind::Dir | SpotKind::Link(_))),
            _ => true,
        };
        if parent.is_none_or(is_dir) && fits {
            model.insert(path, spot);
        }
    }
    model
}

fn spots(count: std::ops::Range<usize>) -> impl Strategy<Value = Model> {
    btree_map(select(PATHS.to_vec()).prop_map(|path| path.as_bytes().to_vec()), spot(), count)
}

/// Returns two trees: the second is the first with some nodes changed, added and removed.
fn two() -> impl Strategy<Value = (Model, Model)> {
    (spots(0..14), spots(0..3), vec(select(PATHS.to_vec()), 0..2)).prop_map(|(a, changed, removed)| {
        let mut b = a.clone();
        b.extend(changed);
        removed.iter().for_each(|path| drop(b.remove(path.as_bytes())));
        (sound(a), sound(b))
    })
}

fn changes(a: &Tree, b: &Tree, ignore: &[Aspect], threads: usize) -> Vec<Change> {
    let mut list = Vec::new();
    let options = DiffOptions {
        path: b"",
        ignore,
        latest_mtime: None,
        is_same: None,
        brief: false,
        threads: Threads::at_least_one(threads),
        stop: &GOING,
        progress: None,
    };
    diff(a, b, &options, &mut |change| {
        list.push(change);
        ControlFlow::Continue(())
    })
    .unwrap();
    list
}

fn words(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| format!("{change:?}")).collect()
}

/// Returns sorted signs and paths, which snapshots can tell, too.
fn signs(changes: &[Change]) -> Vec<(char, Vec<u8>)> {
    let sign = |kind: &ChangeKind| match kind {
        ChangeKind::Added(_) => '+',
        ChangeKind::Removed(_) => '-',
        ChangeKind::Changed(_) => '~',
        ChangeKind::Unreadable { .. } => '!',
    };
    let mut signs: Vec<_> = changes.iter().map(|change| (sign(&change.kind), change.path.clone())).collect();
    signs.sort();
    signs
}

/// Returns the signs by a naive comparison that ignores links.
fn expected_signs(a: &Tree, b: &Tree) -> Vec<(char, Vec<u8>)> {
    let (a, b) = (of_tree(a).unwrap(), of_tree(b).unwrap());
    let without_links = |record: &Record| Record { nlink: 0, first_name: Vec::new(), ..record.clone() };
    let mut signs = Vec::new();
    for (path, record) in &a {
        match b.get(path) {
            None => signs.push(('-', path.clone())),
            Some(other) if without_links(record) != without_links(other) => signs.push(('~', path.clone())),
            _ => {}
        }
    }
    signs.extend(b.keys().filter(|path| !a.contains_key(*path)).map(|path| ('+', path.clone())));
    signs.sort();
    signs
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn no_changes_if_and_only_if_snapshots_are_equal((a, b) in two()) {
        let (a, b) = (tree(&a), tree(&b));
        let found = changes(&a, &b, &[], 1);
        prop_assert_eq!(found.is_empty(), of_tree(&a).unwrap() == of_tree(&b).unwrap(), "{:?}", found);
    }

    #[test]
    fn every_path_is_as_its_snapshot_says((a, b) in two()) {
        let (a, b) = (tree(&a), tree(&b));
        prop_assert_eq!(signs(&changes(&a, &b, &[Aspect::Links], 1)), expected_signs(&a, &b));
    }

    #[test]
    fn added_is_removed_the_other_way_round((a, b) in two()) {
        let (a, b) = (tree(&a), tree(&b));
        let swap = |(sign, path)| (match sign { '+' => '-', '-' => '+', other => other }, path);
        let mut back: Vec<_> = signs(&changes(&b, &a, &[], 1)).into_iter().map(swap).collect();
        back.sort();
        prop_assert_eq!(signs(&changes(&a, &b, &[], 1)), back);
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn threads_change_nothing((a, b) in two()) {
        let (a, b) = (tree(&a), tree(&b));
        prop_assert_eq!(words(&changes(&a, &b, &[], 3)), words(&changes(&a, &b, &[], 1)));
    }

    #[test]
    fn images_differ_as_their_trees_do((a, b) in two()) {
        let (a, b) = (tree(&a), tree(&b));
        let image = |tree: &Tree| {
            let bytes = build(tree, &BuildOptions::default()).unwrap().0;
            scan_image(&open(bytes).unwrap()).unwrap()
        };
        let (image_a, image_b) = (image(&a), image(&b));
        prop_assert!(changes(&a, &image_a, &[], 1).is_empty());
        let expected = words(&changes(&a, &b, &[], 1));
        prop_assert_eq!(&words(&changes(&image_a, &image_b, &[], 1)), &expected);
        prop_assert_eq!(&words(&changes(&image_a, &b, &[], 1)), &expected);
    }
}
