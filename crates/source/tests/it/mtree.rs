//! Manifests of mtree(5).

use kiln_source::{KINDS, ScanOptions, Source, SourceError, SourceKind, SourceOptions, open, open_as};
use kiln_tests::image::scan_dir;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_tree};
use kiln_tests::{temp::TempDir, without};
use kiln_tree::{Kind, Version};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::GOING;

fn kind() -> SourceKind {
    *KINDS.iter().find(|kind| kind.name == "mtree").unwrap()
}

fn opened(manifest: &Path, root: Option<&Path>) -> Result<Box<dyn Source>, SourceError> {
    let options = SourceOptions { root_dir: root.map(Path::to_owned), ..SourceOptions::default() };
    open_as(&[kind()], manifest, &options)
}

fn read(manifest: &Path, root: Option<&Path>) -> Result<Snapshot, SourceError> {
    let scan = opened(manifest, root)?.scan(&ScanOptions::new(&GOING))?;
    Ok(of_tree(&scan.tree).unwrap())
}

/// Makes a directory with everything that manifests can describe, including names that need
/// escapes.
fn directory(dir: &TempDir) -> PathBuf {
    let root = dir.dir("tree");
    for sub in ["d", "d/e", "empty dir"] {
        fs::create_dir(root.join(sub)).unwrap();
    }
    for (name, len) in [("a", 70_000), ("d/f", 3), ("d/e/none", 0), ("with # \\ = \t\"quotes\"", 5)] {
        fs::write(root.join(name), vec![b'x'; len]).unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"\xFF\x01\x7F\xE9")), "bytes").unwrap();
    fs::hard_link(root.join("a"), root.join("d/again")).unwrap();
    fs::set_permissions(root.join("d/f"), fs::Permissions::from_mode(0o4711)).unwrap();
    symlink("tar get\\", root.join("link")).unwrap();
    let fifo = Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
    assert!(fifo.success());
    root
}

/// Returns the tree with each hard link as a separate file.
fn without_links(mut snapshot: Snapshot) -> Snapshot {
    for (path, record) in &mut snapshot {
        if record.file_type != kiln_format::inode::FileType::Directory {
            record.nlink = 1;
            record.first_name = path.clone();
        }
    }
    snapshot
}

#[test]
fn manifests_of_bsdtar_are_the_directory() {
    if Command::new("bsdtar").arg("--version").output().is_err() {
        return without("bsdtar");
    }
    let dir = TempDir::new("mtree").unwrap();
    let root = directory(&dir);
    let expected = of_tree(&scan_dir(&root, 1).unwrap().tree).unwrap();
    let made = |options: &[&str]| {
        let manifest = dir.join("manifest");
        let mut command = Command::new("bsdtar");
        command.arg("-cf").arg(&manifest).arg("-C").arg(&root).arg("--format=mtree").args(options).arg(".");
        assert!(command.status().unwrap().success());
        // Detected by its first line.
        let options = SourceOptions { root_dir: Some(root.clone()), ..SourceOptions::default() };
        let source = open(&manifest, &options).unwrap();
        of_tree(&source.scan(&ScanOptions::new(&GOING)).unwrap().tree).unwrap()
    };
    assert_same(&without_links(expected.clone()), &without_links(made(&[])), "bsdtar");
    assert_same(&expected, &made(&["--options=mtree:all,mtree:use-set,mtree:indent"]), "bsdtar with all keywords");
}

#[test]
fn manifests_of_netbsd_are_the_directory() {
    let dir = TempDir::new("mtree").unwrap();
    let root = directory(&dir);
    let output = Command::new("mtree").arg("-c").arg("-p").arg(&root).args(["-K", "sha256,uid,gid"]).output();
    let Ok(output) = output else { return without("mtree") };
    fs::write(dir.join("manifest"), output.stdout).unwrap();
    let expected = of_tree(&scan_dir(&root, 1).unwrap().tree).unwrap();
    let found = read(&dir.join("manifest"), Some(&root)).unwrap();
    assert_same(&without_links(expected), &without_links(found), "mtree");
}

const RELATIVE: &str = "#mtree v2.0
# A comment
/set type=file uid=5 gid=6 mode=0640 size=0
.               type=dir mode=0755 time=12.000000034
    a           mode=u=rwx,go=rx uname=somebody
    sub\\040dir  type=dir \\
                mode=0700
        b       size=0 nochange
        /unset mode
        c       optional
        deep    type=dir
        ..
        link    type=link link=../a\\\\b
    ..
    null        type=char device=native,1,3 gid=0
    disk        type=block device=0x801
    pipe        type=fifo
    sock        type=socket
./sub\\sdir/full  mode=0400
after
";

#[test]
fn relative_and_full_paths_mix() {
    let dir = TempDir::new("mtree").unwrap();
    fs::write(dir.join("m"), RELATIVE).unwrap();
    let found = read(&dir.join("m"), None).unwrap();
    let lines: Vec<String> = found
        .iter()
        .map(|(path, record)| {
            let (kind, target) = (record.file_type, record.target.escape_ascii());
            let (path, mode) = (path.escape_ascii(), record.permissions);
            format!("{path} {kind:?} {mode:o} {}:{} {:?} {target}", record.uid, record.gid, record.rdev)
        })
        .collect();
    let expected = [
        " Directory 755 5:6 (0, 0) ",
        "a Regular 755 5:6 (0, 0) ",
        "disk BlockDevice 644 5:6 (8, 1) ",
        "null CharDevice 644 5:0 (1, 3) ",
        "pipe Fifo 644 5:6 (0, 0) ",
        "sock Socket 644 5:6 (0, 0) ",
        "sub dir Directory 700 5:6 (0, 0) ",
        "sub dir/after Regular 644 5:6 (0, 0) ",
        "sub dir/b Regular 640 5:6 (0, 0) ",
        "sub dir/c Regular 644 5:6 (0, 0) ",
        "sub dir/deep Directory 755 5:6 (0, 0) ",
        "sub dir/full Regular 400 5:6 (0, 0) ",
        "sub dir/link Symlink 777 5:6 (0, 0) ../a\\\\b",
    ];
    assert_eq!(lines, expected);
    assert_eq!(found[&b""[..]].mtime, (12, 34));
}

#[test]
fn contents_lie_below_the_root() {
    let dir = TempDir::new("mtree").unwrap();
    let root = dir.dir("root");
    fs::create_dir(root.join("store")).unwrap();
    fs::write(root.join("store/1"), "one").unwrap();
    fs::write(root.join("two"), "two").unwrap();
    symlink("/etc", root.join("out")).unwrap();
    let scan = |text: &str, keep_going: bool| {
        fs::write(dir.join("m"), text).unwrap();
        let options = ScanOptions { keep_going, ..ScanOptions::new(&GOING) };
        opened(&dir.join("m"), Some(&root)).unwrap().scan(&options)
    };
    // SHA-256 of "one".
    let digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    let found = scan(&format!("./a type=file contents=./store/1 sha256={digest}\n./two type=file size=3\n"), false);
    let tree = found.unwrap().tree;
    let mut bytes = [0; 3];
    tree.open(tree.find([&b"a"[..]]).unwrap()).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one");
    for (line, error) in [
        ("./none type=file", "none below the root: No such file"),
        ("./store type=file", "store below the root: not a regular file"),
        ("./two type=file size=4", "two below the root: its size is 3, but the manifest has 4"),
        ("./out/passwd type=file", "out/passwd below the root: "),
        ("./x type=file contents=../m", "../m below the root: "),
        ("./x type=file contents=/etc/passwd", "etc/passwd below the root: "),
    ] {
        let error_found = scan(&format!("./two type=file\n{line}\n"), false).map(drop).unwrap_err().to_string();
        assert!(error_found.contains(&format!("line 2: {error}")), "{line}: {error_found}");
        let kept = scan(&format!("./two type=file\n{line}\n"), true).unwrap();
        assert_eq!((kept.tree.len(), kept.skipped.len()), (2, 1), "{line}");
    }
    let kept = scan("./none type=file optional\n./two type=file\n", false).unwrap();
    assert_eq!((kept.tree.len(), kept.skipped.len()), (2, 0));
    // A digest is checked each time contents are opened, for the whole file.
    let wrong = scan(&format!("./two type=file sha256={digest}\n"), false).unwrap().tree;
    let two = wrong.find([&b"two"[..]]).unwrap();
    assert!(matches!(wrong.node(two).kind, Kind::File { len: 3, .. }));
    for _ in 0..2 {
        let error = wrong.open(two).map(drop).unwrap_err().to_string();
        assert!(error.contains("two") && error.contains("its SHA-256 is 3fc4ccfe7458"), "{error}");
    }
    assert!(wrong.open_version(two, Version::Changed).is_err());
    let without_root = read(&dir.join("m"), None).map(drop).unwrap_err().to_string();
    assert!(
        without_root.ends_with(
            "line 1: its contents are not in the manifest; name the directory with the contents by --root DIR"
        )
    );
    // Other kinds have no contents elsewhere.
    let options = SourceOptions { root_dir: Some(root.clone()), ..SourceOptions::default() };
    assert!(matches!(open(&root, &options), Err(SourceError::Options { .. })));
}

#[test]
fn errors_name_line_field_and_value() {
    let dir = TempDir::new("mtree").unwrap();
    for (line, error) in [
        ("a", "path `a`: it has no type"),
        ("a type=door", "type `door`: not one of"),
        ("a type=char", "device ``: missing"),
        ("a type=link", "link ``: missing"),
        ("a type=dir uname=nobody", "uname `nobody`: it has no number"),
        ("a type=dir colour=red", "keyword `colour=red`: unknown"),
        ("a\\q type=dir", "path `a\\q`: unknown escape"),
        ("a/../b type=dir", "path `a/../b`: `..` has no meaning here"),
        ("..", "path `..`: it leads out of the tree"),
        ("/etc type=dir", "command `/etc`: neither /set nor /unset"),
        ("/unset colour", "keyword `colour`: unknown"),
        ("/set size=-1", "size `-1`: not a decimal number"),
        ("a\\000b type=dir", "path `a\\000b`: a zero byte in a name"),
    ] {
        fs::write(dir.join("m"), format!("#mtree\n\n{line}\n")).unwrap();
        let found = read(&dir.join("m"), None).map(drop).unwrap_err().to_string();
        let start = format!("{}, line 3: {error}", dir.join("m").display());
        assert!(found.starts_with(&start), "{found}\n{start}");
    }
}

#[test]
fn random_texts_do_not_panic() {
    let dir = TempDir::in_memory("mtree").unwrap();
    let mut rng = Rng::new(7);
    let path = dir.join("m");
    for _ in 0..kiln_tests::rounds("KILN_MUTATIONS", 2000, 50_000) {
        let mut text = RELATIVE.as_bytes().to_vec();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len() as u64) as usize;
            match rng.below(3) {
                0 => text[at] = rng.below(256) as u8,
                1 => text.truncate(at.max(1)),
                _ => text.insert(at, *rng.pick(b"=\\\n /.0")),
            }
        }
        fs::write(&path, text).unwrap();
        let _ = opened(&path, None).and_then(|source| source.scan(&ScanOptions::new(&GOING)).map(drop));
    }
}
