//! Filters applied to real directories.

use kiln_builder::BuildOptions;
use kiln_parallel::Threads;
use kiln_source::dir::DirSource;
use kiln_source::image::erofs::ImageSource;
use kiln_source::{Scan, ScanOptions, Source, SourceError};
use kiln_tests::image::{build, open};
use kiln_tests::rng::Rng;
use kiln_tests::skip;
use kiln_tests::snapshot::of_tree;
use kiln_tests::temp::TempDir;
use kiln_tree::filter::{Filter, PathList, Rule, Rules};
use kiln_tree::{Kind, Tree};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Makes files, with their parents; paths that end in a slash are directories.
fn make(root: &Path, paths: &[&[u8]]) {
    for path in paths {
        let full = root.join(OsStr::from_bytes(path));
        match path.ends_with(b"/") {
            true => fs::create_dir_all(full).unwrap(),
            false => {
                fs::create_dir_all(full.parent().unwrap()).unwrap();
                fs::write(full, path).unwrap();
            }
        }
    }
}

/// Scans a directory. An image of the whole directory must give the same tree, left-out entries and
/// error.
fn try_scan(root: &Path, filter: &Filter, threads: usize, keep_going: bool) -> Result<Scan, SourceError> {
    let (threads, stop) = (Threads::at_least_one(threads), AtomicBool::new(false));
    let options = ScanOptions { threads, keep_going, filter, outputs: &[], sync: false, stop: &stop };
    let of_dir = DirSource::new(root).scan(&options);
    if !filter.one_file_system {
        let whole = DirSource::new(root).scan(&ScanOptions::new(&stop)).unwrap().tree;
        let image = open(build(&whole, &BuildOptions::default()).unwrap().0).unwrap();
        let shown = |scan: &Result<Scan, SourceError>| match scan {
            Ok(scan) => {
                let skipped: Vec<String> = scan.skipped.iter().map(ToString::to_string).collect();
                (Some(of_tree(&scan.tree).unwrap()), skipped)
            }
            Err(error) => (None, vec![error.to_string()]),
        };
        let (of_dir, of_image) = (shown(&of_dir), shown(&ImageSource::new(image, root).scan(&options)));
        assert_eq!(of_image.1, of_dir.1);
        assert!(of_image.0 == of_dir.0, "the trees differ");
    }
    of_dir
}

fn tree(root: &Path, filter: &Filter) -> Tree {
    let tree = try_scan(root, filter, 1, false).unwrap().tree;
    let others = try_scan(root, filter, 4, false).unwrap().tree;
    assert!(of_tree(&tree).unwrap() == of_tree(&others).unwrap(), "threads change nothing");
    tree
}

/// Returns all paths but the root, escaped; directories end with a slash.
fn paths(tree: &Tree) -> Vec<String> {
    let shown = |id| {
        let slash = if matches!(tree.node(id).kind, Kind::Directory(_)) { "/" } else { "" };
        format!("{}{slash}", tree.path(id).escape_ascii())
    };
    tree.walk().skip(1).map(shown).collect()
}

fn rules(lines: &[&str]) -> Filter {
    let rules = Rules::new(lines.iter().map(|line| Rule::new(line.as_bytes()).unwrap()).collect()).unwrap();
    Filter { rules: vec![rules], ..Filter::default() }
}

#[test]
fn globs_leave_out_and_take_back() {
    let dir = TempDir::new("filter").unwrap();
    let files: &[&[u8]] =
        &[b"keep.log", b"a.log", b"x/y/z/b.log", b"x/y/z/keep.log", b"x/y/c.txt", b"build/out", b"x/build/in"];
    make(dir.path(), files);
    let left = |lines: &[&str]| paths(&tree(dir.path(), &rules(lines)));
    assert_eq!(
        left(&["*.log", "!keep.log", "/build/"]),
        ["keep.log", "x/", "x/build/", "x/build/in", "x/y/", "x/y/c.txt", "x/y/z/", "x/y/z/keep.log"]
    );
    assert_eq!(
        left(&["x/**", "!x/y/", "!x/y/z/", "!x/y/z/b.log", "*.log/", "/*.log", "/build"]),
        ["x/", "x/y/", "x/y/z/", "x/y/z/b.log"]
    );
    assert_eq!(left(&["x", "!x/y/c.txt", "*.log", "build"]), [""; 0], "nothing comes back below what is out");
    assert_eq!(left(&["*"]), [""; 0]);
    assert_eq!(left(&[]).len(), 12);
}

#[test]
fn names_are_bytes() {
    let dir = TempDir::new("filter").unwrap();
    make(dir.path(), &[b"caf\xe9", b"caf\xc3\xa9", b"cafe", b"new\nline", b"sp ace ", b"d\xff/\xfe"]);
    let left = |rule: &[u8]| {
        let rules = Rules::new(vec![Rule::new(rule).unwrap()]).unwrap();
        paths(&tree(dir.path(), &Filter { rules: vec![rules], ..Filter::default() }))
    };
    let all = ["cafe", "caf\\xc3\\xa9", "caf\\xe9", "d\\xff/", "d\\xff/\\xfe", "new\\nline", "sp ace "];
    let without = |gone: &[usize]| {
        all.iter().enumerate().filter(|(idx, _)| !gone.contains(idx)).map(|(_, path)| *path).collect::<Vec<_>>()
    };
    assert_eq!(left(b"caf\xe9"), without(&[2]));
    assert_eq!(left(b"caf?"), without(&[0, 2]));
    assert_eq!(left(b"caf[\x80-\xff]*"), without(&[1, 2]));
    assert_eq!(left(b"new*line"), without(&[5]));
    assert_eq!(left(b"sp ace "), without(&[6]));
    assert_eq!(left(b"d?/[!a]"), without(&[4]));
    let mut filter = Filter::default();
    filter.exclude_path(b"/d\xff/./\xfe");
    filter.exclude_path(b"caf?");
    filter.regexes.add(r"^caf\xe9$").unwrap();
    filter.regexes.add("w.l|^sp").unwrap();
    assert_eq!(paths(&tree(dir.path(), &filter)), without(&[2, 4, 5, 6]));
}

#[test]
fn excluded_entries_are_not_read() {
    let dir = TempDir::new("filter").unwrap();
    make(dir.path(), &[b"a/b/c", b"in"]);
    // A path through a file gives an error if a rule needs its type.
    let list = PathList::parse(b"gone\na/b/c/d\nin\n", "list").unwrap();
    let both = Filter { only: Some(list), ..rules(&["gone", "/a/b/c"]) };
    assert_eq!(paths(&tree(dir.path(), &both)), ["a/", "a/b/", "in"]);
}

#[test]
fn ignore_files_rule_their_directories() {
    let dir = TempDir::new("filter").unwrap();
    let root = dir.path();
    make(root, &[b"a/x.o", b"a/x.c", b"a/b/y.o", b"a/b/keep.o", b"c/keep.o", b"c/secret", b"c/d/secret"]);
    fs::write(root.join(".kilnignore"), "*.o\n!/c/keep.o\n").unwrap();
    fs::write(root.join("a/b/.kilnignore"), "!keep.o\n").unwrap();
    fs::write(root.join("c/.kilnignore"), "/secret\n.kilnignore\n").unwrap();
    fs::write(root.join("c/.more"), "!secret\n").unwrap();
    let filter = Filter { ignore_files: vec![c".kilnignore".into()], ..Filter::default() };
    let expected = [
        ".kilnignore",
        "a/",
        "a/b/",
        "a/b/.kilnignore",
        "a/b/keep.o",
        "a/x.c",
        "c/",
        "c/.more",
        "c/d/",
        "c/d/secret",
        "c/keep.o",
    ];
    assert_eq!(paths(&tree(root, &filter)), expected);
    let two = Filter { ignore_files: vec![c".kilnignore".into(), c".more".into()], ..rules(&["/a", "!x.o", ".*"]) };
    assert_eq!(paths(&tree(root, &two)), ["c/", "c/d/", "c/d/secret", "c/keep.o", "c/secret"]);
}

#[test]
fn a_bad_ignore_file_never_lets_anything_in() {
    let dir = TempDir::new("filter").unwrap();
    let root = dir.path();
    make(root, &[b"a/x", b"b/x"]);
    let filter = Filter { ignore_files: vec![c".ig".into()], ..Filter::default() };
    let big = vec![b'\n'; (1 << 20) + 1];
    type Make<'a> = &'a dyn Fn(&Path) -> io::Result<()>;
    let cases: [(&str, Make); 4] = [
        (".ig, line 2: glob `[`", &|path| fs::write(path, "x\n[\n")),
        ("must be a regular file", &|path| symlink("x", path)),
        ("must be a regular file", &|path| fs::create_dir(path)),
        ("not be longer than 1 MiB", &|path| fs::write(path, &big)),
    ];
    for (words, make) in cases {
        make(&root.join("a/.ig")).unwrap();
        let error = try_scan(root, &filter, 2, false).err().unwrap().to_string();
        assert!(error.starts_with(root.join("a").to_str().unwrap()) && error.contains(words), "{error}");
        let scanned = try_scan(root, &filter, 2, true).unwrap();
        assert_eq!(paths(&scanned.tree), ["a/", "b/", "b/x"]);
        assert_eq!(scanned.skipped.len(), 1);
        fs::rename(root.join("a/.ig"), root.join(".ig")).unwrap();
        assert!(try_scan(root, &filter, 2, true).is_err(), "nothing would be left");
        let bad = root.join(".ig");
        if bad.is_dir() { fs::remove_dir(bad).unwrap() } else { fs::remove_file(bad).unwrap() }
    }
}

#[test]
fn a_list_names_all_there_is() {
    let dir = TempDir::new("filter").unwrap();
    let root = dir.path();
    make(root, &[b"a/b/c", b"a/b/d", b"a/e", b"f/g", b"\xff"]);
    let listed = |text: &[u8], keep_going| {
        let only = Some(PathList::parse(text, "list").unwrap());
        try_scan(root, &Filter { only, ..Filter::default() }, 3, keep_going)
    };
    assert_eq!(paths(&listed(b"./a/b/c\nf\n\xff\n", false).unwrap().tree), ["a/", "a/b/", "a/b/c", "f/", "\\xff"]);
    assert_eq!(paths(&listed(b"/a/e\0", false).unwrap().tree), ["a/", "a/e"]);
    assert_eq!(paths(&listed(b"", false).unwrap().tree), [""; 0]);
    for (text, path, reason) in
        [("nothing", "nothing", "No such file"), ("a/x/y", "a/x", "No such file"), ("a/e/x", "a/e", "not a directory")]
    {
        let error = listed(text.as_bytes(), false).err().unwrap().to_string();
        assert!(error.starts_with(&format!("{}: ", root.join(path).display())) && error.contains(reason), "{error}");
    }
    let scanned = listed(b"a/x/y\na/e\n", true).unwrap();
    assert_eq!((paths(&scanned.tree), scanned.skipped.len()), (vec!["a/".to_owned(), "a/e".to_owned()], 1));
}

#[test]
fn one_file_system_ends_at_mount_points() {
    let dir = TempDir::new("filter").unwrap();
    let root = dir.path();
    make(root, &[b"here", b"other/", b"bound/", b"real/file"]);
    let mount = |args: &[&OsStr]| Command::new("mount").args(args).output().is_ok_and(|output| output.status.success());
    let unmount = |name: &str| Command::new("umount").arg(root.join(name)).status();
    let (other, bound, real) = (root.join("other"), root.join("bound"), root.join("real"));
    if !mount(&["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), other.as_ref()]) {
        skip!("mounting needs root");
    }
    fs::write(other.join("there"), "").unwrap();
    let is_bound = mount(&["--bind".as_ref(), real.as_ref(), bound.as_ref()]);
    // A tree keeps its directory open: only its paths outlive the mounts.
    let found = |root: &Path, one_file_system| {
        try_scan(root, &Filter { one_file_system, ..Filter::default() }, 2, false).map(|scan| paths(&scan.tree))
    };
    let (all, one) = (found(root, false), found(root, true));
    // The root may be a mount point itself.
    let within = found(&other, true);
    unmount("other").unwrap();
    if is_bound {
        unmount("bound").unwrap();
    }
    assert_eq!(one.unwrap(), ["bound/", "here", "other/", "real/", "real/file"]);
    assert_eq!(within.unwrap(), ["there"]);
    let expected = ["bound/", "bound/file", "here", "other/", "other/there", "real/", "real/file"];
    assert!(is_bound && all.unwrap() == expected);
}

/// Returns a text of `len` random elements of `parts`.
fn text(rng: &mut Rng, parts: &[&[u8]], len: u64) -> Vec<u8> {
    (0..=rng.below(len)).flat_map(|_| rng.pick(parts).to_vec()).collect()
}

/// Rules that this crate accepts; git ignores others silently. Excludes rules with `**` within a
/// component: it should be like `*`, but git differs if only literal bytes precede it.
fn ignore_file(rng: &mut Rng) -> Vec<u8> {
    const PARTS: [&[u8]; 24] = [
        b"a",
        b"b",
        b"a",
        b"b",
        b"c",
        b"*",
        b"*",
        b"**",
        b"**/",
        b"/**",
        b"/**/",
        b"?",
        b"/",
        b"/",
        b"[ab]",
        b"[!a]",
        b"[^b-c]",
        b"[[:alpha:]]",
        b"[]-a]",
        b"\\a",
        b"\\*",
        b"\xff",
        b" ",
        b"{a,b}",
    ];
    let mut lines = Vec::new();
    for _ in 0..=rng.below(4) {
        let line = [if rng.below(3) == 0 { &b"!"[..] } else { b"" }, &text(rng, &PARTS, 5)].concat();
        let pattern = line.strip_prefix(b"!").unwrap_or(&line);
        let within = pattern.windows(3).any(|w| w[0] != b'/' && w[0] != b'*' && w[1..] == *b"**");
        if !within && Rules::parse(&line, "line").is_ok() {
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
    }
    lines
}

#[test]
fn ignore_files_mean_what_they_mean_to_git() {
    let git =
        |args: &[&OsStr]| Command::new("git").args(args).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/").output();
    if git(&["--version".as_ref()]).is_err() {
        skip!("no program git");
    }
    let mut rng = Rng::new(0x0006_1716);
    let names: [&[u8]; 9] = [b"a", b"b", b"c", b"ab", b"ba", b"\xff", b"*", b"a ", b"{a,b}"];
    for case in 0..60 {
        let dir = TempDir::new("git").unwrap();
        let (root, repository) = (dir.path().join("tree"), dir.path().join("repository"));
        fs::create_dir(&root).unwrap();
        for _ in 0..25 {
            let path: Vec<&[u8]> = (0..=rng.below(4)).map(|_| *rng.pick(&names)).collect();
            let path = root.join(OsStr::from_bytes(&path.join(&b'/')));
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() {
                fs::write(path, "").unwrap();
            }
        }
        let mut dirs: Vec<_> =
            fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_dir()).collect();
        dirs.sort();
        for dir in [&root].into_iter().chain(dirs.first()) {
            fs::write(dir.join(".ig"), ignore_file(&mut rng)).unwrap();
        }
        let git_dir = ["--git-dir".as_ref(), repository.as_os_str()];
        assert!(git(&[&git_dir[..], &["init".as_ref(), "-q".as_ref()]].concat()).unwrap().status.success());
        let list = ["ls-files", "-o", "-z", "--exclude-per-directory=.ig"].map(OsStr::new);
        let work_tree = ["--work-tree".as_ref(), root.as_os_str(), "-C".as_ref(), root.as_os_str()];
        let output = git(&[&git_dir[..], &work_tree, &list].concat()).unwrap();
        assert!(output.status.success(), "{}", output.stderr.escape_ascii());
        let expected: BTreeSet<Vec<u8>> =
            output.stdout.split(|&b| b == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
        let tree = tree(&root, &Filter { ignore_files: vec![c".ig".into()], ..Filter::default() });
        let is_file = |id: &_| !matches!(tree.node(*id).kind, Kind::Directory(_));
        let found: BTreeSet<Vec<u8>> = tree.walk().filter(is_file).map(|id| tree.path(id)).collect();
        let different = found.symmetric_difference(&expected).map(|path| path.escape_ascii().to_string());
        let different: Vec<String> = different.collect();
        let text = fs::read(root.join(".ig")).unwrap();
        assert!(different.is_empty(), "case {case}: {different:?} of {}", text.escape_ascii());
    }
}
