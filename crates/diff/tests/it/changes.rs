//! Known differences of trees.

use crate::common::{Model, Spot, SpotKind, faulty_tree, tree};
use kiln_diff::{Aspect, Change, ChangeKind, DiffError, DiffOptions, DiffSummary, Difference, Side, XattrChange, diff};
use kiln_parallel::Threads;
use kiln_tests::data::Texture;
use kiln_tests::mem::{Fault, MemFile};
use kiln_tree::{ContentError, Tree};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

static GOING: AtomicBool = AtomicBool::new(false);
const USUAL: DiffOptions<'static> = DiffOptions {
    path: b"",
    ignore: &[],
    latest_mtime: None,
    is_same: None,
    brief: false,
    threads: Threads::ONE,
    stop: &GOING,
    progress: None,
};

fn run(a: &Tree, b: &Tree, options: &DiffOptions<'_>) -> (Vec<String>, DiffSummary) {
    let mut lines = Vec::new();
    let summary = diff(a, b, options, &mut |change| {
        lines.push(line(&change));
        ControlFlow::Continue(())
    });
    (lines, summary.unwrap())
}

fn lines(a: &Model, b: &Model) -> Vec<String> {
    run(&tree(a), &tree(b), &USUAL).0
}

/// Returns a change in words.
fn line(change: &Change) -> String {
    let path = change.path.escape_ascii();
    match &change.kind {
        ChangeKind::Added(file_type) => format!("+ {path} {}", file_type.letter()),
        ChangeKind::Removed(file_type) => format!("- {path} {}", file_type.letter()),
        ChangeKind::Unreadable { side, error } => format!("! {path} {side:?} {error}"),
        ChangeKind::Changed(list) => {
            assert!(!list.is_empty());
            format!("~ {path} {}", list.iter().map(words).collect::<Vec<_>>().join(", "))
        }
    }
}

fn words(difference: &Difference) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match difference {
        Difference::Type { a, b } => format!("type {}{}", a.letter(), b.letter()),
        Difference::Size { a, b } => format!("size {a} {b}"),
        Difference::Contents { off } => format!("contents {off}"),
        Difference::Target { a, b } => format!("target {} {}", text(a), text(b)),
        Difference::Rdev { a, b } => format!("rdev {}:{} {}:{}", a.major, a.minor, b.major, b.minor),
        Difference::Permissions { a, b } => format!("mode {a:o} {b:o}"),
        Difference::Owner { a, b } => format!("owner {a} {b}"),
        Difference::Group { a, b } => format!("group {a} {b}"),
        Difference::Mtime { a, b } => format!("mtime {}.{} {}.{}", a.0, a.1, b.0, b.1),
        Difference::Xattr { name, change: XattrChange::Added } => format!("xattr +{}", text(name)),
        Difference::Xattr { name, change: XattrChange::Removed } => format!("xattr -{}", text(name)),
        Difference::Xattr { name, change: XattrChange::Changed } => format!("xattr {}", text(name)),
        Difference::Links { a, b } => format!("links {a} {b}"),
    }
}

/// Returns a tree with everything that can differ.
fn base() -> Model {
    let mut model = Model::new();
    let mut add = |path: &[u8], spot: Spot| drop(model.insert(path.to_vec(), spot));
    add(b"dir", Spot::new(SpotKind::Dir));
    add(b"dir/sub", Spot::new(SpotKind::Dir));
    add(b"dir/sub/deep", Spot::file(b"deep"));
    add(b"dir-", Spot::file(b"after dir and what is in it"));
    add(b"dev", Spot::new(SpotKind::CharDevice(1, 3)));
    add(b"empty", Spot::new(SpotKind::Dir));
    add(b"fifo", Spot::new(SpotKind::Fifo));
    add(b"link", Spot::new(SpotKind::Symlink("target")));
    for name in ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "h0"] {
        add(name.as_bytes(), Spot::file(&Texture::Text.bytes(7, 3000)));
    }
    add(b"h1", Spot::new(SpotKind::Link(b"h0".to_vec())));
    add(b"h2", Spot::new(SpotKind::Link(b"h0".to_vec())));
    add(b"odd\xff\n", Spot::file(b"odd"));
    let mut with_xattrs = Spot::file(b"x");
    with_xattrs.xattrs = [("user.a", b"1".to_vec()), ("user.b", b"2".to_vec()), ("user.d", Vec::new())].into();
    add(b"xattrs", with_xattrs);
    model
}

/// Name, edit, and expected changes.
type Edit = (&'static str, fn(&mut Model), &'static [&'static str]);

fn at<'a>(model: &'a mut Model, path: &str) -> &'a mut Spot {
    model.get_mut(path.as_bytes()).unwrap()
}

fn flip(model: &mut Model, path: &str, off: usize) {
    let mut bytes = Texture::Text.bytes(7, 3000);
    bytes[off] ^= 0x80;
    at(model, path).kind = SpotKind::File(MemFile::whole(bytes));
}

/// Edits in walk order, in which `dir/sub` precedes `dir-`; they do not affect each other.
const EDITS: &[Edit] = &[
    ("device", |m| at(m, "dev").kind = SpotKind::CharDevice(1, 5), &["~ dev rdev 1:3 1:5"]),
    (
        "a directory becomes a file",
        |m| {
            m.remove(&b"dir/sub/deep"[..]);
            *at(m, "dir/sub") = Spot::file(b"sub");
        },
        &["~ dir/sub type d-", "- dir/sub/deep -"],
    ),
    ("size", |m| *at(m, "dir-") = Spot::file(b"shorter"), &["~ dir- size 27 7"]),
    (
        "new directory",
        |m| {
            m.insert(b"empty/new".to_vec(), Spot::new(SpotKind::Dir));
            m.insert(b"empty/new/b".to_vec(), Spot::new(SpotKind::Fifo));
            m.insert(b"empty/new/a".to_vec(), Spot::new(SpotKind::Symlink("b")));
        },
        &["+ empty/new d", "+ empty/new/a l", "+ empty/new/b p"],
    ),
    ("first byte", |m| flip(m, "f0", 0), &["~ f0 contents 0"]),
    ("last byte", |m| flip(m, "f1", 2999), &["~ f1 contents 2999"]),
    ("permissions", |m| at(m, "f2").meta.permissions = 0o4755, &["~ f2 mode 644 4755"]),
    ("owner", |m| at(m, "f3").meta.uid = 65_536, &["~ f3 owner 0 65536"]),
    ("group", |m| at(m, "f4").meta.gid = 5, &["~ f4 group 0 5"]),
    ("nanoseconds", |m| at(m, "f5").meta.mtime_nsec = 1, &["~ f5 mtime 1700000000.0 1700000000.1"]),
    ("removed", |m| drop(m.remove(&b"f6"[..])), &["- f6 -"]),
    ("type", |m| at(m, "fifo").kind = SpotKind::CharDevice(0, 0), &["~ fifo type pc"]),
    (
        "one link less",
        |m| at(m, "h2").kind = Spot::file(&Texture::Text.bytes(7, 3000)).kind,
        &["~ h0 links 3 2", "~ h1 links 3 2", "~ h2 links 3 1"],
    ),
    ("target", |m| at(m, "link").kind = SpotKind::Symlink("elsewhere"), &["~ link target target elsewhere"]),
    (
        "everything at once",
        |m| {
            let spot = m.get_mut(&b"odd\xff\n"[..]).unwrap();
            *spot = Spot::file(b"odD");
            (spot.meta.permissions, spot.meta.uid, spot.meta.gid, spot.meta.mtime) = (0, 1, 2, -3);
            spot.xattrs.insert("user.new", vec![1]);
        },
        &["~ odd\\xff\\n contents 2, mode 644 0, owner 0 1, group 0 2, mtime 1700000000.0 -3.0, xattr +user.new"],
    ),
    (
        "attributes",
        |m| {
            let xattrs = &mut at(m, "xattrs").xattrs;
            xattrs.insert("user.a", b"11".to_vec());
            xattrs.remove("user.b");
            xattrs.insert("user.c", Vec::new());
        },
        &["~ xattrs xattr user.a, xattr -user.b, xattr +user.c"],
    ),
];

#[test]
fn equal_trees_have_no_differences() {
    let (base, options) = (base(), DiffOptions { threads: Threads::at_least_one(3), ..USUAL });
    let (lines, summary) = run(&tree(&base), &tree(&base), &options);
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!((summary.same, summary.added, summary.removed, summary.changed), (base.len() as u64 + 1, 0, 0, 0));
    // Hard links are read once.
    assert_eq!(summary.bytes, 8 * 3000 + 4 + 27 + 3 + 1);
    // One tree needs no reading.
    let same = tree(&base);
    assert_eq!(run(&same, &same, &options).1.bytes, 0);
}

#[test]
fn each_edit_alone() {
    for (name, edit, expected) in EDITS {
        let mut edited = base();
        edit(&mut edited);
        assert_eq!(lines(&base(), &edited), *expected, "{name}");
    }
}

#[test]
fn all_edits_together_in_the_order_of_the_walk() {
    let mut edited = base();
    EDITS.iter().for_each(|(_, edit, _)| edit(&mut edited));
    let expected: Vec<_> = EDITS.iter().flat_map(|(.., lines)| lines.iter().copied()).collect();
    let (a, b) = (tree(&base()), tree(&edited));
    for threads in [1, 2, 5] {
        let (lines, summary) = run(&a, &b, &DiffOptions { threads: Threads::at_least_one(threads), ..USUAL });
        assert_eq!(lines, expected);
        assert_eq!((summary.added, summary.removed, summary.unreadable), (3, 2, 0));
        assert_eq!(summary.changed, expected.iter().filter(|line| line.starts_with('~')).count() as u64);
    }
}

#[test]
fn the_other_way_round_added_is_removed() {
    let mut edited = base();
    EDITS.iter().for_each(|(_, edit, _)| edit(&mut edited));
    let (forth, back) = (lines(&base(), &edited), lines(&edited, &base()));
    let signs = |lines: &[String], sign: char| -> Vec<String> {
        lines.iter().filter(|line| line.starts_with(sign)).map(|line| line[1..].to_owned()).collect()
    };
    assert_eq!(signs(&forth, '+'), signs(&back, '-'));
    assert_eq!(signs(&forth, '-'), signs(&back, '+'));
    let paths = |lines: Vec<String>| -> Vec<_> {
        let changed = lines.into_iter().filter(|line| line.starts_with('~'));
        changed.map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(paths(forth), paths(back));
}

#[test]
fn ignored_aspects_are_not_differences() {
    let mut edited = base();
    flip(&mut edited, "f0", 9);
    edited.extend([(b"f6".to_vec(), Spot::file(b"shorter"))]);
    let spot = at(&mut edited, "xattrs");
    (spot.meta.permissions, spot.meta.uid, spot.meta.gid, spot.meta.mtime) = (0, 1, 2, 3);
    spot.xattrs.clear();
    at(&mut edited, "h2").kind = SpotKind::Link(b"f5".to_vec());
    let (a, b) = (tree(&base()), tree(&edited));
    let all = [Aspect::Contents, Aspect::Permissions, Aspect::Owners, Aspect::Mtime, Aspect::Xattrs, Aspect::Links];
    let (some, summary) = run(&a, &b, &DiffOptions { ignore: &all, ..USUAL });
    assert_eq!((some, summary.bytes), (vec!["~ f6 size 3000 7".to_owned()], 0));
    let without = |aspect| {
        let ignore: Vec<_> = all.into_iter().filter(|other| *other != aspect).collect();
        run(&a, &b, &DiffOptions { ignore: &ignore, ..USUAL }).0.join("; ").replace("~ f6 size 3000 7", "*")
    };
    assert_eq!(without(Aspect::Contents), "~ f0 contents 9; *");
    assert_eq!(without(Aspect::Permissions), "*; ~ xattrs mode 644 0");
    assert_eq!(without(Aspect::Owners), "*; ~ xattrs owner 0 1, group 0 2");
    assert_eq!(without(Aspect::Mtime), "*; ~ xattrs mtime 1700000000.0 3.0");
    assert_eq!(without(Aspect::Xattrs), "*; ~ xattrs xattr -user.a, xattr -user.b, xattr -user.d");
    assert_eq!(without(Aspect::Links), "~ f5 links 1 2; *; ~ h0 links 3 2; ~ h1 links 3 2; ~ h2 links 3 2");
}

#[test]
fn brief_leaves_out_contents_of_directories() {
    let mut edited = base();
    EDITS.iter().for_each(|(_, edit, _)| edit(&mut edited));
    let options = DiffOptions { brief: true, ..USUAL };
    let lines = run(&tree(&base()), &tree(&edited), &options).0;
    assert!(lines.contains(&"+ empty/new d".to_owned()) && lines.contains(&"~ dir/sub type d-".to_owned()));
    assert!(!lines.iter().any(|line| line.contains("empty/new/") || line.contains("dir/sub/")), "{lines:?}");
}

#[test]
fn a_part_of_the_trees() {
    let mut edited = base();
    EDITS.iter().for_each(|(_, edit, _)| edit(&mut edited));
    let (a, b) = (tree(&base()), tree(&edited));
    let below = |path: &'static [u8]| run(&a, &b, &DiffOptions { path, ..USUAL }).0;
    assert_eq!(below(b"/dir//sub/"), ["~ dir/sub type d-", "- dir/sub/deep -"]);
    assert_eq!(below(b"dir/sub/deep"), ["- dir/sub/deep -"]);
    assert_eq!(below(b"empty/new"), ["+ empty/new d", "+ empty/new/a l", "+ empty/new/b p"]);
    // Links are compared by all names, including those elsewhere.
    assert_eq!(below(b"h0"), ["~ h0 links 3 2"]);
    for path in [&b"nothing"[..], b"dir/nothing", b"f0/x", b"dir/../f0"] {
        let error = diff(&a, &b, &DiffOptions { path, ..USUAL }, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, DiffError::NotFound { .. }), "{error}");
    }
}

const MIB: usize = 1 << 20;

/// Returns two files that differ at the given bytes.
fn large(len: usize, differ_at: &[usize]) -> (Model, Model) {
    let bytes = Texture::Noise.bytes(1, len);
    let mut other = bytes.clone();
    differ_at.iter().for_each(|&at| other[at] ^= 1);
    let model = |bytes: &[u8]| {
        let after = Spot::file(b"after");
        Model::from([(b"large".to_vec(), Spot::file(bytes)), (b"z".to_vec(), after)])
    };
    (model(&bytes), model(&other))
}

#[test]
fn the_first_difference_of_a_large_file_is_found_by_any_number_of_threads() {
    let len = 21 * MIB + 77;
    for at in
        [&[][..], &[0], &[4 * MIB - 1, 20 * MIB], &[4 * MIB, 4 * MIB + 1], &[9 * MIB + 3, 9 * MIB + 9], &[len - 1]]
    {
        let (a, b) = large(len, at);
        let (a, b) = (tree(&a), tree(&b));
        let expected: Vec<_> = at.first().map(|at| format!("~ large contents {at}")).into_iter().collect();
        for threads in [1, 2, 6] {
            assert_eq!(run(&a, &b, &DiffOptions { threads: Threads::at_least_one(threads), ..USUAL }).0, expected);
        }
    }
}

#[test]
fn unreadable_files_are_named_and_the_rest_is_compared() {
    for (fault, words) in [
        (Fault::Open, "permission denied"),
        (Fault::Read(9 * MIB as u64), "a bad sector"),
        (Fault::Changed, "its mtime"),
    ] {
        let (a, mut b) = large(13 * MIB, &[]);
        *at(&mut b, "z") = Spot::file(b"AFTER");
        at(&mut b, "large").meta.uid = 1;
        for threads in [1, 3] {
            let b = faulty_tree(&b, Some((b"large", fault)));
            let (lines, summary) =
                run(&tree(&a), &b, &DiffOptions { threads: Threads::at_least_one(threads), ..USUAL });
            assert!(lines[0].starts_with("! large B ") && lines[0].contains(words), "{lines:?}");
            assert_eq!(lines[1..], ["~ large owner 0 1", "~ z contents 0"]);
            assert_eq!((summary.unreadable, summary.changed), (1, 2));
            let (lines, _) = run(&b, &tree(&a), &DiffOptions { threads: Threads::at_least_one(threads), ..USUAL });
            assert!(lines[0].starts_with("! large A "), "{lines:?}");
        }
    }
}

#[test]
fn the_first_error_or_difference_counts() {
    for threads in [1, 4] {
        let (a, b) = large(13 * MIB, &[5 * MIB]);
        let error_at = |off: usize| faulty_tree(&b, Some((b"large", Fault::Read(off as u64))));
        let options = DiffOptions { threads: Threads::at_least_one(threads), ..USUAL };
        assert_eq!(run(&tree(&a), &error_at(12 * MIB), &options).0, ["~ large contents 5242880"]);
        assert_eq!(run(&tree(&a), &error_at(2 * MIB), &options).0, ["! large B a bad sector"]);
    }
}

#[test]
fn links_may_be_others_though_as_many() {
    let linked = |pairs: [(&str, &str); 2]| {
        let mut model = Model::new();
        for (first, second) in pairs {
            model.insert(first.into(), Spot::file(b"same"));
            model.insert(second.into(), Spot::new(SpotKind::Link(first.into())));
        }
        model
    };
    let (a, b) = (linked([("p", "q"), ("r", "s")]), linked([("p", "r"), ("q", "s")]));
    assert_eq!(lines(&a, &b), ["~ p links 2 2", "~ q links 2 2", "~ r links 2 2", "~ s links 2 2"]);
    assert_eq!(lines(&a, &linked([("r", "s"), ("p", "q")])), [""; 0]);
}

#[test]
fn links_to_an_unreadable_file_are_all_unreadable() {
    let broken = faulty_tree(&base(), Some((b"h0", Fault::Open)));
    let (lines, summary) = run(&broken, &tree(&base()), &DiffOptions { threads: Threads::at_least_one(2), ..USUAL });
    assert_eq!((lines.len(), summary.unreadable), (3, 3), "{lines:?}");
}

/// Data by offset.
type Data = &'static [(u64, &'static [u8])];
const FAR: u64 = (1 << 59) + 5;

/// Returns a file of `len` bytes with a few bytes of data.
fn sparse(len: u64, data: Data) -> Model {
    let mut file = MemFile::default();
    let mut end = 0;
    for (off, bytes) in data {
        file.push_hole(off - end);
        file.push(bytes.to_vec());
        end = off + bytes.len() as u64;
    }
    file.push_hole(len - end);
    Model::from([(b"sparse".to_vec(), Spot::new(SpotKind::File(file)))])
}

#[test]
fn holes_are_not_read() {
    let len = 1 << 60;
    let cases: [(Data, Data, &[&str]); 5] = [
        (&[], &[], &[]),
        (&[(3, b"abc"), (FAR, b"def")], &[(3, b"abc"), (FAR, b"def")], &[]),
        (&[(3, b"abc"), (FAR, b"def")], &[(3, b"abc"), (FAR, b"deF")], &["~ sparse contents 576460752303423495"]),
        (&[(3, b"abc"), (FAR, b"\0d")], &[(3, b"abc")], &["~ sparse contents 576460752303423494"]),
        // Zeros in data equal a hole.
        (&[(FAR, b"\0\0\0")], &[(FAR + 99, b"\0")], &[]),
    ];
    for (a, b, expected) in cases {
        for threads in [1, 2] {
            let options = DiffOptions { threads: Threads::at_least_one(threads), ..USUAL };
            let (a, b) = (tree(&sparse(len, a)), tree(&sparse(len, b)));
            let (lines, summary) = run(&a, &b, &options);
            assert_eq!(lines, expected);
            assert!(summary.bytes <= 32 << 20, "{}", summary.bytes);
            assert_eq!(run(&b, &a, &options).0, expected);
        }
    }
}

#[test]
fn the_caller_may_stop_at_any_change() {
    let mut edited = base();
    EDITS.iter().for_each(|(_, edit, _)| edit(&mut edited));
    let (a, b) = (tree(&base()), tree(&edited));
    for threads in [1, 3] {
        let mut count = 0;
        let options = DiffOptions { threads: Threads::at_least_one(threads), ..USUAL };
        let summary = diff(&a, &b, &options, &mut |_| {
            count += 1;
            if count == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let summary = summary.unwrap();
        assert_eq!((count, summary.added + summary.removed + summary.changed), (4, 4));
    }
}

#[test]
fn an_interruption_is_one() {
    let stop = AtomicBool::new(true);
    let options = DiffOptions { stop: &stop, ..USUAL };
    let error = diff(&tree(&base()), &tree(&base()), &options, &mut |_| panic!("nothing to report")).unwrap_err();
    assert!(matches!(error, DiffError::Interrupted));
}

#[test]
fn errors_keep_their_source() {
    let broken = faulty_tree(&base(), Some((b"f0", Fault::Open)));
    let mut errors = Vec::new();
    let _ = diff(&broken, &tree(&base()), &USUAL, &mut |change| {
        errors.push(change);
        ControlFlow::Continue(())
    });
    let [Change { path, kind: ChangeKind::Unreadable { side: Side::A, error } }] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(path, b"f0");
    assert!(matches!(&**error, ContentError::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied));
}
