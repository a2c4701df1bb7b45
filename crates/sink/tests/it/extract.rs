//! Extraction restores what the image holds.

use crate::common::{Node, image};
use kiln_format::inode::FileType;
use kiln_read::{FollowLast, Image, MemorySource, WalkEntry};
use kiln_sink::dir::{Control, Existing, ExtractOptions, ExtractReport, Owners, extract};
use kiln_sink::{Selection, SinkError};
use kiln_tests::golden::{golden_images, open as golden};
use kiln_tests::skipped as skip;
use kiln_tests::temp::TempDir;
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn run(image: &Image, target: &Path, patterns: &[&str], options: &ExtractOptions) -> Result<ExtractReport, SinkError> {
    let selection = Selection::of(patterns.iter().copied())?;
    extract(image, target, &selection, options, &Control { stop: &AtomicBool::new(false), progress: &|_| {} })
}

fn run_all(image: &Image, target: &Path, options: &ExtractOptions) -> Result<ExtractReport, SinkError> {
    run(image, target, &["/"], options)
}

/// Returns all paths below `dir`.
fn paths(dir: &Path) -> Vec<String> {
    fn visit(dir: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            found.push(path.clone());
            if entry.file_type().unwrap().is_dir() {
                visit(&entry.path(), &format!("{path}/"), found);
            }
        }
    }
    let mut found = Vec::new();
    visit(dir, "", &mut found);
    found.sort();
    found
}

fn walk(image: &Image) -> Vec<WalkEntry> {
    let root = image.inode(image.root_nid()).unwrap();
    image.walk(&root, b"").map(Result::unwrap).collect()
}

fn contents(image: &Image, entry: &WalkEntry) -> Vec<u8> {
    let mut bytes = vec![0; entry.inode.meta.size as usize];
    assert_eq!(image.read_at(&entry.inode, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn xattrs_of(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let value = |name: &[u8]| {
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value[..len].to_vec()
    };
    names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()).map(|n| (n.to_vec(), value(n))).collect()
}

/// Compares all properties of an extracted file. `owners` is true if root has extracted it.
fn compare(image: &Image, entry: &WalkEntry, path: &Path, owners: bool) {
    let meta = &entry.inode.meta;
    let stat = fs::symlink_metadata(path).unwrap();
    let shown = path.display();
    assert_eq!(stat.mode() & 0o170000, u32::from(meta.file_type.mode_bits()), "type of {shown}");
    if meta.file_type != FileType::Symlink && owners {
        assert_eq!(stat.mode() & 0o7777, u32::from(meta.permissions), "mode of {shown}");
    }
    if owners {
        assert_eq!((stat.uid(), stat.gid()), (meta.uid, meta.gid), "owner of {shown}");
        let expected: BTreeMap<_, _> =
            image.list_xattrs(&entry.inode).unwrap().into_iter().map(|x| (x.name, x.value)).collect();
        assert_eq!(xattrs_of(path), expected, "xattrs of {shown}");
    }
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (meta.mtime, meta.mtime_nsec.into()), "time of {shown}");
    match meta.file_type {
        FileType::Regular => assert!(fs::read(path).unwrap() == contents(image, entry), "contents of {shown}"),
        FileType::Symlink => {
            let target = image.read_link(&entry.inode).unwrap();
            assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), target, "target of {shown}");
        }
        FileType::CharDevice | FileType::BlockDevice => {
            let rdev = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
            assert_eq!(rdev, (meta.rdev().major, meta.rdev().minor), "device number of {shown}");
        }
        _ => {}
    }
}

fn compare_all(image: &Image, target: &Path, owners: bool) {
    let entries = walk(image);
    assert_eq!(paths(target).len(), entries.len() - 1);
    let mut inodes = HashMap::new();
    for entry in &entries {
        let path = target.join(OsStr::from_bytes(&entry.path));
        compare(image, entry, &path, owners);
        let ino = fs::symlink_metadata(&path).unwrap().ino();
        let of_nid = inodes.entry(entry.inode.nid).or_insert(ino);
        assert_eq!(*of_nid, ino, "{} is a hard link", path.display());
    }
}

#[test]
fn every_golden_image_comes_out_whole() {
    if !geteuid().is_root() {
        return skip("devices and owners need root");
    }
    for name in golden_images().unwrap().into_iter().map(|image| image.name) {
        let (image, scratch) = (golden(&name), TempDir::new("sink").unwrap());
        let done = AtomicU64::new(0);
        let selection = Selection::everything();
        let progress = |bytes| {
            done.fetch_add(bytes, Ordering::Relaxed);
        };
        let options = ExtractOptions::default();
        let target = scratch.join(&name);
        let report = extract(
            &image,
            &target,
            &selection,
            &options,
            &Control { stop: &AtomicBool::new(false), progress: &progress },
        )
        .unwrap();
        compare_all(&image, &target, true);
        assert_eq!(done.into_inner(), report.bytes, "{name}");
        assert_eq!(report.unset_xattrs, 0);
        let total = report.files + report.dirs + report.others + report.hard_links;
        assert_eq!(total, walk(&image).len() as u64, "{name}");
    }
}

#[test]
fn one_thread_is_enough() {
    let (image, scratch) = (golden("lz4-dedupe-frag-tail"), TempDir::new("sink").unwrap());
    let options = ExtractOptions { threads: 1, keep_going: true, ..Default::default() };
    run_all(&image, &scratch.join("out"), &options).unwrap();
    if geteuid().is_root() {
        compare_all(&image, &scratch.join("out"), true);
    }
}

#[test]
fn large_files_are_split_and_keep_their_holes() {
    let chunk = |seed: usize| Some((0..1 << 20).map(|i| ((i * 31 + seed * 7) >> 3) as u8 | 1).collect::<Vec<u8>>());
    let mut chunks: Vec<_> = (0..40).map(|i| if i % 3 == 0 { None } else { chunk(i) }).collect();
    chunks.extend([None, None].into_iter().cycle().take(60)); // a hole over several ranges
    chunks.push(chunk(77));
    chunks.extend([None, None].into_iter().cycle().take(20));
    let holes = chunks.iter().filter(|chunk| chunk.is_none()).count() as u64;
    let image = image(Node::Dir(vec![("sparse", Node::Chunks(chunks)), ("all-hole", Node::Chunks(vec![None; 50]))]));
    let scratch = TempDir::new("sink").unwrap();
    let target = scratch.join("out");
    let done = AtomicU64::new(0);
    let progress = |bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
    };
    let options = ExtractOptions { threads: 4, ..Default::default() };
    let stop = AtomicBool::new(false);
    let report =
        extract(&image, &target, &Selection::everything(), &options, &Control { stop: &stop, progress: &progress })
            .unwrap();
    assert_eq!((report.files, report.bytes), (2, 171 << 20));
    assert_eq!(done.into_inner(), report.bytes);
    compare_all(&image, &target, geteuid().is_root());
    let stat = fs::metadata(target.join("sparse")).unwrap();
    assert!(stat.blocks() * 512 <= stat.len() - (holes << 20) + (1 << 20), "holes are restored");
    assert_eq!(fs::metadata(target.join("all-hole")).unwrap().blocks(), 0);
}

#[test]
fn zeros_of_compressed_files_become_holes() {
    let (image, scratch) = (golden("lz4"), TempDir::new("sink").unwrap());
    run(&image, &scratch.join("out"), &["big/zeros"], &ExtractOptions::default()).unwrap();
    let stat = fs::metadata(scratch.join("out/big/zeros")).unwrap();
    assert_eq!(stat.len(), 90001);
    assert!(stat.blocks() * 512 <= 8192, "{} blocks", stat.blocks());
}

#[test]
fn selections_bring_their_parents_and_nothing_else() {
    let deep = "deep/d00/d01/d02";
    let image = golden("inline");
    let options = ExtractOptions::default();
    for (patterns, expected) in [
        (&["big/text"][..], &["big", "big/text"][..]),
        (&["/big/text", "big//./text"], &["big", "big/text"]),
        (&["big/*t"], &["big", "big/text"]),
        (&["**/zeros"], &["big", "big/zeros"]),
        (&["big/[tz]*", "big/mixed"], &["big", "big/mixed", "big/text", "big/zeros"]),
        (&["big"], &["big", "big/mixed", "big/text", "big/zeros"]),
        (&["big", "big/t*"], &["big", "big/mixed", "big/text", "big/zeros"]),
        (&["deep/d00/d01/d02", "big/text"], &["big", "big/text", "deep", "deep/d00", "deep/d00/d01"]),
    ] {
        let scratch = TempDir::new("sink").unwrap();
        run(&image, &scratch.join("out"), patterns, &options).unwrap();
        let mut found = paths(&scratch.join("out"));
        found.retain(|path| !path.starts_with(deep));
        assert_eq!(found, expected, "{patterns:?}");
        // Parents get their attributes, but the target is not the root of the image.
        let dir = fs::metadata(scratch.join("out/big")).unwrap();
        assert_eq!((dir.mtime(), dir.mode() & 0o7777), (1_650_000_000, 0o755));
        assert_ne!(fs::metadata(scratch.join("out")).unwrap().mtime(), 1_650_000_000);
    }
}

/// The walk returns to directories that it has created for an earlier selection.
#[test]
fn selections_may_share_their_parents() {
    let image = golden("inline");
    for keep_going in [false, true] {
        let options = ExtractOptions { keep_going, ..Default::default() };
        for (patterns, expected) in [
            (&["big/text", "big/zeros"][..], &["big", "big/text", "big/zeros"][..]),
            (&["big/zeros", "big/t*"], &["big", "big/text", "big/zeros"]),
            (&["dup/*", "big/text", "dup/a"], &["big", "big/text", "dup", "dup/a", "dup/b"]),
            (
                &["deep/d00/d01", "big/text", "big/mixed"],
                &["big", "big/mixed", "big/text", "deep", "deep/d00", "deep/d00/d01"],
            ),
        ] {
            let scratch = TempDir::new("sink").unwrap();
            let report = run(&image, &scratch.join("out"), patterns, &options).unwrap();
            assert!(report.skipped.is_empty(), "{:?}", report.skipped);
            let mut found = paths(&scratch.join("out"));
            found.retain(|path| {
                !(path.starts_with("deep/d00/d01/") || path.starts_with("dup/") && path.as_str() > "dup/b")
            });
            assert_eq!(found, expected, "{patterns:?}");
            let dir = fs::metadata(scratch.join("out/big")).unwrap();
            assert_eq!((dir.mtime(), dir.mode() & 0o7777), (1_650_000_000, 0o755));
        }
    }
}

/// Each shared parent of two selections is created once, and completed.
#[test]
fn selections_may_part_below_their_parents() {
    let leaf = |text: &str| Node::Dir(vec![("f", Node::File(text.as_bytes().to_vec()))]);
    let image = image(Node::Dir(vec![(
        "d",
        Node::Dir(vec![("a", Node::Dir(vec![("x", leaf("1")), ("y", leaf("2"))])), ("b", leaf("3"))]),
    )]));
    let scratch = TempDir::new("sink").unwrap();
    let report = run(&image, &scratch.join("out"), &["d/a/x", "d/a/y/f", "d/b/*"], &Default::default()).unwrap();
    assert_eq!(report.dirs, 5);
    let expected = ["d", "d/a", "d/a/x", "d/a/x/f", "d/a/y", "d/a/y/f", "d/b", "d/b/f"];
    assert_eq!(paths(&scratch.join("out")), expected);
    for dir in ["d", "d/a", "d/a/x", "d/a/y", "d/b"] {
        assert_eq!(fs::metadata(scratch.join("out").join(dir)).unwrap().mtime(), 1_600_000_000, "{dir}");
    }
}

/// Control characters in names must not reach a terminal.
#[test]
fn names_in_errors_are_escaped() {
    const NAME: &str = "a\x1b[31m\nb";
    let image = image(Node::Dir(vec![(NAME, Node::Dir(vec![(NAME, Node::File(b"text".to_vec()))]))]));
    let scratch = TempDir::new("sink").unwrap();
    let path = format!("{NAME}/{NAME}");
    fs::create_dir_all(scratch.join("out").join(&path)).unwrap();
    for (pattern, existing) in [(&*path, Existing::Keep), (&path, Existing::Refuse), ("\x1bno such", Existing::Keep)] {
        let options = ExtractOptions { existing, ..Default::default() };
        let message = run(&image, &scratch.join("out"), &[pattern], &options).unwrap_err().to_string();
        assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
        assert!(existing == Existing::Refuse || message.contains("\\u{1b}"), "{message:?}");
    }
}

/// Returns the image of mkcomposefs, with or without its header.
fn composefs(header: bool) -> Image {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden/composefs/image.erofs");
    let mut bytes = fs::read(path).unwrap();
    if !header {
        bytes[..32].fill(0);
    }
    Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &Default::default()).unwrap()
}

/// A file of zeros would be wrong: the object is reported, and everything else is extracted.
#[test]
fn objects_of_composefs_are_named_and_left_out() {
    if !geteuid().is_root() {
        return skip("devices and owners need root");
    }
    let (image, scratch) = (composefs(true), TempDir::new("sink").unwrap());
    let report = run_all(&image, &scratch.join("out"), &ExtractOptions::default()).unwrap();
    let skipped: Vec<_> = report.skipped.iter().map(|(path, _)| path.as_slice()).collect();
    assert_eq!(skipped, [&b"big"[..], b"sub/larger"]);
    for (path, error) in &report.skipped {
        let inode = image.resolve(path, FollowLast::Keep).unwrap();
        let redirect = image.get_xattr(&inode, b"trusted.overlay.redirect").unwrap().unwrap();
        let object = String::from_utf8(redirect[1..].to_vec()).unwrap();
        assert!(matches!(error, SinkError::NeedsObject { .. }) && error.to_string().contains(&object), "{error}");
    }
    for entry in walk(&image).iter().filter(|entry| !skipped.contains(&&*entry.path)) {
        compare(&image, entry, &scratch.join("out").join(OsStr::from_bytes(&entry.path)), true);
    }
    assert!(!scratch.join("out/big").exists());
    let file =
        ExtractOptions { root: Some(image.resolve(b"big", FollowLast::Keep).unwrap().nid), ..Default::default() };
    assert_eq!(run_all(&image, &scratch.join("file"), &file).unwrap().skipped.len(), 1);
    assert!(!scratch.join("file").exists());
}

/// A backup of an overlay's upper directory has the same attributes.
#[test]
fn metacopies_of_other_images_are_restored() {
    if !geteuid().is_root() {
        return skip("attributes of trusted programs need root");
    }
    let (image, scratch) = (composefs(false), TempDir::new("sink").unwrap());
    let report = run_all(&image, &scratch.join("out"), &ExtractOptions::default()).unwrap();
    assert_eq!((report.skipped.len(), report.unset_xattrs), (0, 0));
    compare_all(&image, &scratch.join("out"), true);
}

#[test]
fn selections_that_name_nothing_are_errors() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let target = scratch.join("out");
    let options = ExtractOptions::default();
    for pattern in ["missing", "big/text/below", "missing/*", "big/text/*", "[z]zz", "*/nothing-*", "big/{text,zeros}"]
    {
        let result = run(&image, &target, &[pattern], &options);
        assert!(
            matches!(&result, Err(SinkError::NoMatch { pattern: p }) if p == pattern.as_bytes()),
            "{pattern}: {result:?}"
        );
    }
    for pattern in ["..", "../x", "big/../../etc", "", "a[", "a\\"] {
        let result = run(&image, &target, &[pattern], &options);
        assert!(matches!(result, Err(SinkError::BadPattern { .. })), "{pattern}: {result:?}");
    }
}

#[test]
fn absolute_selections_stay_in_the_target() {
    let image = image(Node::Dir(vec![("etc", Node::Dir(vec![("passwd", Node::File(b"ours".to_vec()))]))]));
    let scratch = TempDir::new("sink").unwrap();
    run(&image, &scratch.join("out"), &["/etc/passwd"], &ExtractOptions::default()).unwrap();
    assert_eq!(fs::read(scratch.join("out/etc/passwd")).unwrap(), b"ours");
}

#[test]
fn targets_with_files_are_refused() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let target = scratch.join("out");
    fs::create_dir(&target).unwrap();
    run(&image, &target, &["big/text"], &ExtractOptions::default()).unwrap();
    let again = run(&image, &target, &["big/text"], &ExtractOptions::default());
    assert!(matches!(again, Err(SinkError::TargetNotEmpty { .. })));
    fs::write(target.join("big/text"), "changed").unwrap();
    fs::write(target.join("mine"), "kept").unwrap();
    let options = ExtractOptions { existing: Existing::Replace, ..Default::default() };
    run(&image, &target, &["big/text"], &options).unwrap();
    assert_eq!(fs::metadata(target.join("big/text")).unwrap().len(), 151_914);
    assert_eq!(fs::read(target.join("mine")).unwrap(), b"kept");
    let result = run(&image, &target.join("mine"), &["big/text"], &options);
    assert!(result.unwrap_err().to_string().contains("mine"));
}

#[test]
fn symlinks_in_the_target_lead_nowhere() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let (target, outside) = (scratch.join("out"), scratch.join("outside"));
    fs::create_dir_all(&target).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("text"), "precious").unwrap();
    let options = ExtractOptions { existing: Existing::Replace, ..Default::default() };
    // A parent directory, and the file itself.
    symlink(&outside, target.join("big")).unwrap();
    run(&image, &target, &["big/text"], &options).unwrap();
    assert!(fs::symlink_metadata(target.join("big")).unwrap().is_dir());
    fs::remove_file(target.join("big/text")).unwrap();
    symlink(outside.join("text"), target.join("big/text")).unwrap();
    run(&image, &target, &["big/text"], &options).unwrap();
    assert!(fs::symlink_metadata(target.join("big/text")).unwrap().is_file());
    assert_eq!(fs::read(outside.join("text")).unwrap(), b"precious");
    assert_eq!(paths(&outside), ["text"]);
}

fn all_ways() -> impl Iterator<Item = (Existing, bool)> {
    let all = [Existing::Refuse, Existing::Keep, Existing::Replace];
    all.into_iter().flat_map(|existing| [(existing, false), (existing, true)])
}

#[test]
fn a_target_can_be_added_to_without_harm() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let target = scratch.join("out");
    fs::create_dir_all(target.join("big")).unwrap();
    fs::write(target.join("big/mine"), "kept").unwrap();
    let options = ExtractOptions { existing: Existing::Keep, ..Default::default() };
    run(&image, &target, &["big/text", "dup/a"], &options).unwrap();
    assert_eq!(paths(&target), ["big", "big/mine", "big/text", "dup", "dup/a"]);
    let replace = ExtractOptions { existing: Existing::Replace, ..Default::default() };
    run(&image, &target, &["big/text", "special/empty"], &replace).unwrap();
    assert!(target.join("special/empty").is_dir());
    fs::write(target.join("big/text"), "changed").unwrap();
    let error = run(&image, &target, &["big/text"], &options).unwrap_err();
    assert!(matches!(&error, SinkError::Io { path, .. } if path.ends_with("big/text")), "{error}");
    assert_eq!(fs::read(target.join("big/text")).unwrap(), b"changed");
}

#[test]
fn any_file_can_become_the_target() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let resolve = |path: &str| image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
    let options = |path| ExtractOptions { root: Some(resolve(path).nid), ..Default::default() };
    let dir = scratch.join("dir");
    run_all(&image, &dir, &options("big")).unwrap();
    assert_eq!(paths(&dir), ["mixed", "text", "zeros"]);
    assert_eq!(fs::metadata(&dir).unwrap().mtime(), 1_650_000_000);
    let some = scratch.join("some");
    run(&image, &some, &["*t"], &options("big")).unwrap();
    assert_eq!(paths(&some), ["text"]);
    let file = scratch.join("file");
    let report = run_all(&image, &file, &options("big/text")).unwrap();
    assert_eq!((report.files, report.dirs, report.bytes), (1, 0, 151_914));
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("text")).unwrap());
    let again = run_all(&image, &file, &options("big/text")).unwrap_err();
    assert!(again.to_string().contains("file"), "{again}");
    let replace = ExtractOptions { existing: Existing::Replace, ..options("big/mixed") };
    run_all(&image, &file, &replace).unwrap();
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("mixed")).unwrap());
    for target in ["/", "..", "nowhere/file"] {
        assert!(run_all(&image, Path::new(target), &options("big/text")).is_err());
    }
}

#[test]
fn unwanted_properties_are_not_restored() {
    if !geteuid().is_root() {
        return skip("owners need root");
    }
    let (image, scratch) = (golden("xattrs"), TempDir::new("sink").unwrap());
    let options = ExtractOptions { owners: Owners::Skip, umask: 0o077, xattrs: false, ..Default::default() };
    run_all(&image, &scratch.join("out"), &options).unwrap();
    for entry in walk(&image) {
        let path = scratch.join("out").join(OsStr::from_bytes(&entry.path));
        let stat = fs::symlink_metadata(&path).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (0, 0), "{}", path.display());
        assert_eq!(xattrs_of(&path).len(), 0, "{}", path.display());
        let allowed = u32::from(entry.inode.meta.permissions) & 0o7700;
        assert!(stat.file_type().is_symlink() || stat.mode() & 0o7777 & !allowed == 0, "{}", path.display());
    }
}

/// The classic attack: a symbolic link, and a directory of the same name.
#[test]
fn an_image_cannot_lead_out_by_its_own_symlink() {
    let scratch = TempDir::new("sink").unwrap();
    let outside = scratch.join("outside");
    fs::create_dir(&outside).unwrap();
    let inside = || Node::Dir(vec![("evil", Node::File(b"evil".to_vec()))]);
    for entries in [
        vec![("a", Node::Symlink("../outside")), ("a", inside())],
        vec![("a", inside()), ("a", Node::Symlink("../outside"))],
        vec![("a", Node::Symlink("..")), ("a", Node::Dir(vec![("outside", inside())]))],
    ] {
        let image = image(Node::Dir(entries));
        for (existing, keep_going) in all_ways() {
            let options = ExtractOptions { existing, keep_going, ..Default::default() };
            let _ = run_all(&image, &scratch.join("out"), &options);
            assert!(paths(&outside).is_empty());
            assert_eq!(fs::read_dir(scratch.join("")).unwrap().count(), 2);
            fs::remove_dir_all(scratch.join("out")).unwrap();
        }
    }
}

/// Names that no reader should accept. Whichever layer refuses them, nothing may appear beside the
/// target.
#[test]
fn names_cannot_lead_out() {
    for name in ["../evil", "/evil", "a/b", "..", ".", "a/../../evil"] {
        let scratch = TempDir::new("sink").unwrap();
        let image = image(Node::Dir(vec![("ok", Node::Fifo), (name, Node::File(b"evil".to_vec()))]));
        let options = ExtractOptions { keep_going: true, existing: Existing::Replace, ..Default::default() };
        let _ = run_all(&image, &scratch.join("out"), &options);
        assert_eq!(paths(&scratch.join("")).iter().filter(|p| !p.starts_with("out")).count(), 0, "{name}");
        assert!(!Path::new("/evil").exists());
    }
}

/// Another program keeps swapping a directory of the target for a link to the outside.
#[test]
fn a_race_for_a_parent_cannot_be_won() {
    let files = || (0..100).map(|i| (&*format!("file-{i:03}").leak(), Node::File(vec![b'x'; 100]))).collect();
    let image = image(Node::Dir(vec![("dir", Node::Dir(vec![("sub", Node::Dir(files()))]))]));
    let scratch = TempDir::new("sink").unwrap();
    let (target, outside) = (scratch.join("out"), scratch.join("outside"));
    fs::create_dir_all(target.join("dir/sub")).unwrap();
    fs::create_dir_all(outside.join("sub")).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = fs::rename(target.join("dir"), scratch.join("moved"));
                let _ = symlink(&outside, target.join("dir"));
                let _ = fs::remove_file(target.join("dir"));
                let _ = fs::rename(scratch.join("moved"), target.join("dir"));
            }
        });
        let options = ExtractOptions { existing: Existing::Replace, keep_going: true, ..Default::default() };
        for _ in 0..100 {
            let _ = run_all(&image, &target, &options);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(paths(&outside), ["sub"]);
}

#[test]
fn stopping_is_an_error() {
    let (image, scratch) = (golden("inline"), TempDir::new("sink").unwrap());
    let (selection, options) = (Selection::everything(), ExtractOptions { keep_going: true, ..Default::default() });
    let stop = AtomicBool::new(true);
    let result = extract(&image, &scratch.join("a"), &selection, &options, &Control { stop: &stop, progress: &|_| {} });
    assert!(matches!(result, Err(SinkError::Stopped)));
    // In the middle: after the first bytes.
    let stop = AtomicBool::new(false);
    let progress = |_| stop.store(true, Ordering::Relaxed);
    let result =
        extract(&image, &scratch.join("b"), &selection, &options, &Control { stop: &stop, progress: &progress });
    assert!(matches!(result, Err(SinkError::Stopped)));
}

/// Properties that only root may set are left out and reported.
#[test]
fn unprivileged_users_extract_as_much_as_possible() {
    if !geteuid().is_root() {
        return skip("becoming someone else needs root");
    }
    let scratch = TempDir::new("sink").unwrap();
    let nobody = 65534;
    std::os::unix::fs::chown(scratch.join(""), Some(nobody), Some(nobody)).unwrap();
    // Credentials belong to a thread; threads that it starts inherit them.
    let work = || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(nobody)).unwrap();
        rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(nobody)).unwrap();

        let image = golden("xattrs");
        let report = run_all(&image, &scratch.join("xattrs"), &ExtractOptions::default()).unwrap();
        assert!(report.unset_xattrs > 0 && report.first_unset_xattr.is_some());
        assert!(report.skipped.is_empty());
        let xattrs = xattrs_of(&scratch.join("xattrs/x/f01"));
        assert_eq!(xattrs[&b"user.one.two.three"[..]], b"1");

        let image = crate::common::image(Node::Dir(vec![("a", Node::CharDevice), ("b", Node::File(b"b".to_vec()))]));
        let error = run_all(&image, &scratch.join("device"), &ExtractOptions::default()).unwrap_err().to_string();
        assert!(error.contains("device/a") && error.contains("not permitted"), "{error}");
        let options = ExtractOptions { keep_going: true, ..Default::default() };
        let report = run_all(&image, &scratch.join("skipped"), &options).unwrap();
        assert_eq!((report.files, report.skipped.len()), (1, 1));
        assert_eq!(report.skipped[0].0, b"a");
        let stat = fs::metadata(scratch.join("skipped/b")).unwrap();
        assert_eq!((stat.uid(), stat.mode() & 0o777), (nobody, 0o755));

        let image = golden("inline");
        let report = run_all(&image, &scratch.join("plain"), &options).unwrap();
        assert!(report.skipped.iter().all(|(_, error)| error.to_string().contains("device")), "{:?}", report.skipped);
        for entry in walk(&image) {
            let path = scratch.join("plain").join(OsStr::from_bytes(&entry.path));
            let Ok(stat) = fs::symlink_metadata(path) else { continue };
            assert!(stat.file_type().is_symlink() || stat.is_dir() || stat.mode() & 0o6000 == 0);
            assert!(!stat.file_type().is_block_device());
        }
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}
