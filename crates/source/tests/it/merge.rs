//! Merges of several sources, compared with overlayfs.

use crate::common::GOING;
use kiln_source::dir::DirSource;
use kiln_source::merge::{MergePart, Merged};
use kiln_source::{ScanOptions, Source, SourceError};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{assert_same, of_dir, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::filter::{Filter, PathList, Rule, Rules};
use kiln_tree::merge::Whiteouts;
use kiln_tree::{Kind, Tree};
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

fn part(path: &Path, at: &str) -> MergePart {
    MergePart::new(Box::new(DirSource::new(path)), at.as_bytes())
}

fn merge(parts: Vec<MergePart>, whiteouts: Whiteouts, filter: &Filter) -> Result<Tree, SourceError> {
    let options = ScanOptions { filter, ..ScanOptions::new(&GOING) };
    Merged::new(parts, whiteouts).scan(&options).map(|scan| scan.tree)
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Directories mounted by overlayfs over each other, the lowest first.
struct OverlayMount(PathBuf);

impl OverlayMount {
    fn new(layers: &[PathBuf], at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        let lower: Vec<_> = layers.iter().rev().map(|layer| layer.to_str().unwrap()).collect();
        let options = format!("lowerdir={}", lower.join(":"));
        run("mount", &["-t", "overlay", "overlay", "-o", &options, at.to_str().unwrap()]);
        Self(at)
    }
}

impl Drop for OverlayMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Makes a random layer with few names, so that layers overlap: files, directories, opaque
/// directories, and whiteouts of names below. In a directory with none below it, overlayfs lists
/// whiteouts as names without files.
fn layer(rng: &mut Rng, dir: &Path, below: Option<&Path>, depth: u32) {
    for name in ["a", "b", "c", "d", "e"] {
        let path = dir.join(name);
        let below = below.map(|below| below.join(name)).filter(|below| below.symlink_metadata().is_ok());
        match rng.below(8) {
            0 | 1 => {
                fs::write(&path, format!("{}", rng.below(1000))).unwrap();
                lchown(&path, Some(rng.below(5) as u32), None).unwrap();
            }
            2 => std::os::unix::fs::symlink("target", &path).unwrap(),
            3 if below.is_some() => run("mknod", &[path.to_str().unwrap(), "c", "0", "0"]),
            4 | 5 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700 + rng.below(0o77) as u32)).unwrap();
                let is_opaque = rng.below(3) == 0;
                if is_opaque {
                    run("setfattr", &["-n", "trusted.overlay.opaque", "-v", "y", path.to_str().unwrap()]);
                }
                let below = below.filter(|below| !is_opaque && below.symlink_metadata().unwrap().is_dir());
                layer(rng, &path, below.as_deref(), depth - 1);
            }
            _ => {}
        }
    }
}

#[test]
fn layers_are_what_overlayfs_shows() {
    // The only filesystem here that is certain to support trusted attributes below an overlay.
    let dir = TempDir::in_memory("merge").unwrap();
    let mut rng = Rng::new(7);
    for round in 0..12 {
        let layers: Vec<PathBuf> = (0..3).map(|at| dir.dir(&format!("{round}-{at}"))).collect();
        layer(&mut rng, &layers[0], None, 2);
        layer(&mut rng, &layers[1], Some(&layers[0]), 2);
        let below = OverlayMount::new(&layers[..2], dir.path().join(format!("{round}-below")));
        layer(&mut rng, &layers[2], Some(&below.0), 2);
        drop(below);
        let mount = OverlayMount::new(&layers, dir.path().join(format!("{round}-all")));
        let parts = layers.iter().map(|path| part(path, "")).collect();
        let tree = merge(parts, Whiteouts::Apply, &Filter::default()).unwrap();
        let (mut expected, mut found) = (of_dir(&mount.0).unwrap(), of_tree(&tree).unwrap());
        // overlayfs reports 1 for directories that it merges.
        expected.values_mut().chain(found.values_mut()).for_each(|entry| entry.nlink = 1);
        assert_same(&expected, &found, &format!("round {round}"));
    }
}

#[test]
fn whiteouts_stay_if_asked() {
    let dir = TempDir::in_memory("merge").unwrap();
    let (lower, upper) = (dir.dir("lower"), dir.dir("upper"));
    fs::create_dir_all(lower.join("d/in")).unwrap();
    fs::write(lower.join("gone"), "x").unwrap();
    fs::create_dir(upper.join("d")).unwrap();
    run("setfattr", &["-n", "trusted.overlay.opaque", "-v", "y", upper.join("d").to_str().unwrap()]);
    run("mknod", &[upper.join("gone").to_str().unwrap(), "c", "0", "0"]);
    let shown = |whiteouts| {
        let tree = merge(vec![part(&lower, ""), part(&upper, "")], whiteouts, &Filter::default()).unwrap();
        let line = |(id, node): (_, &kiln_tree::Node)| {
            let path = String::from_utf8(tree.path(id)).unwrap();
            (path, matches!(node.kind, Kind::CharDevice(_)), node.xattrs.len())
        };
        tree.nodes().map(line).collect::<Vec<_>>()
    };
    assert_eq!(shown(Whiteouts::Apply), [(String::new(), false, 0), ("d".into(), false, 0)]);
    assert_eq!(shown(Whiteouts::Keep), [(String::new(), false, 0), ("d".into(), false, 1), ("gone".into(), true, 0)]);
}

#[test]
fn sources_lie_below_directories_of_their_own() {
    let dir = TempDir::new("merge").unwrap();
    let (one, other, whole) = (dir.dir("one"), dir.dir("other"), dir.dir("whole"));
    for (root, at) in [(&one, ""), (&whole, "")] {
        fs::create_dir_all(root.join(at).join("usr/lib")).unwrap();
        fs::write(root.join(at).join("usr/lib/a"), "1").unwrap();
        fs::hard_link(root.join(at).join("usr/lib/a"), root.join(at).join("usr/b")).unwrap();
    }
    for root in [other.clone(), whole.join("opt/x"), whole.join("usr/lib")] {
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("a"), "2").unwrap();
        fs::hard_link(root.join("a"), root.join("z")).unwrap();
    }
    run("chmod", &["-R", "u=rwX,go=rX", dir.path().to_str().unwrap()]);
    // `usr/lib/a` of the merged tree was written through its link.
    fs::remove_file(whole.join("usr/b")).unwrap();
    fs::write(whole.join("usr/b"), "1").unwrap();
    run(
        "find",
        &[
            whole.to_str().unwrap(),
            one.to_str().unwrap(),
            other.to_str().unwrap(),
            "-exec",
            "touch",
            "-hd",
            "@7",
            "{}",
            "+",
        ],
    );
    run("touch", &["-hd", "@0", whole.join("opt").to_str().unwrap()]);
    let parts = || vec![part(&one, ""), part(&other, "opt/x"), part(&other, "/usr/lib/")];
    let tree = merge(parts(), Whiteouts::Apply, &Filter::default()).unwrap();
    assert_same(&of_dir(&whole).unwrap(), &of_tree(&tree).unwrap(), "merged");
    // A filter applies to paths of the merged tree.
    let rules = Rules::new(vec![Rule::new(b"/usr/lib/z").unwrap(), Rule::new(b"/opt").unwrap()]).unwrap();
    let only = Some(PathList::parse(b"usr/b\nopt/x/a\n", "list").unwrap());
    let filters: [(Filter, &[&str]); 2] = [
        (Filter { rules: vec![rules], ..Filter::default() }, &["", "usr", "usr/b", "usr/lib", "usr/lib/a"]),
        (Filter { only, ..Filter::default() }, &["", "opt", "opt/x", "opt/x/a", "usr", "usr/b"]),
    ];
    for (filter, expected) in filters {
        let tree = merge(parts(), Whiteouts::Apply, &filter).unwrap();
        let paths: Vec<_> = of_tree(&tree).unwrap().into_keys().map(|path| String::from_utf8(path).unwrap()).collect();
        assert_eq!(paths, expected);
    }
    for (at, problem) in [("../x", "`..` has no meaning here"), ("usr/b/c", "usr/b is no directory")] {
        let parts = vec![part(&one, ""), part(&other, at)];
        let error = merge(parts, Whiteouts::Apply, &Filter::default()).map(drop).unwrap_err().to_string();
        assert!(error.starts_with(other.to_str().unwrap()) && error.ends_with(problem), "{error}");
    }
}

/// A layer with only `lib/foo` over one whose `lib` is a link hides the files behind the link.
#[test]
fn links_to_directories_that_become_directories_get_a_note() {
    let dir = TempDir::new("merge").unwrap();
    let [lower, upper] = ["lower", "upper"].map(|name| dir.join(name));
    fs::create_dir_all(lower.join("usr/lib")).unwrap();
    fs::create_dir_all(lower.join("inner")).unwrap();
    for (name, target) in [
        ("lib", "usr/lib"),
        ("inner/lib", "../lib"),
        ("absolute", "/lib"),
        ("file", "usr/lib/f"),
        ("lost", "nowhere"),
        ("loop", "loop"),
        ("same", "usr"),
    ] {
        std::os::unix::fs::symlink(target, lower.join(name)).unwrap();
    }
    fs::write(lower.join("usr/lib/f"), "x").unwrap();
    for name in ["lib", "inner/lib", "absolute", "file", "lost", "loop", "inner", "new"] {
        fs::create_dir_all(upper.join(name)).unwrap();
    }
    let told = |at: &str| {
        let parts = vec![part(&lower, at), part(&upper, at)];
        let scan = Merged::new(parts, Whiteouts::Apply).scan(&ScanOptions::new(&GOING)).unwrap();
        let links = scan.notes.iter().map(|note| {
            assert_eq!(note.path, upper);
            note.text.split(" and becomes").next().unwrap().to_owned()
        });
        let mut links: Vec<String> = links.collect();
        links.sort();
        links
    };
    let expected = |at: &str, absolute: bool| {
        let line = |name: &str, target: &str| format!("{at}{name} was a symbolic link to the directory {target}");
        let mut lines = vec![line("inner/lib", "../lib"), line("lib", "usr/lib")];
        lines.extend(absolute.then(|| line("absolute", "/lib")));
        lines.sort();
        lines
    };
    assert_eq!(told(""), expected("", true));
    // The target of an absolute link is elsewhere then.
    assert_eq!(told("at/some/place"), expected("at/some/place/", false));
    for number in 0..30 {
        std::os::unix::fs::symlink("usr", lower.join(format!("l{number}"))).unwrap();
        fs::create_dir(upper.join(format!("l{number}"))).unwrap();
    }
    let lines = told("");
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("more symbolic links")), "{lines:?}");
}
