//! Tests of the public interface of `kiln-composefs-store`.

use kiln_composefs::from_tree::contents::{self, FileContents};
use kiln_composefs::tree::object_path;
use kiln_composefs_store::{Removal, Store, StoreError};
use kiln_digest::fsverity::digest;
use kiln_digest::{Algorithm, Digest};
use kiln_parallel::Threads;
use kiln_tests::image::scan_dir;
use kiln_tests::temp::TempDir;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const SHA256: Algorithm = Algorithm::Sha256;

fn temp() -> TempDir {
    TempDir::new("store").unwrap()
}

/// Returns contents of many lengths, on both sides of all limits.
fn all_contents() -> Vec<Vec<u8>> {
    let lens = [0, 1, 64, 65, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 << 20];
    let bytes = |len: usize| (0..len).map(|at| ((at * 7) >> 5) as u8 ^ len as u8).collect();
    lens.into_iter().map(bytes).collect()
}

fn object_at(store: &Path, contents: &[u8]) -> PathBuf {
    store.join(object_path(&digest(SHA256, contents)))
}

fn problems(store: &Path) -> Vec<(Digest, String)> {
    let verified = Store::open(store).unwrap().verify(Threads::at_least_one(3), &AtomicBool::new(false)).unwrap();
    verified.problems.into_iter().map(|(digest, problem)| (digest, problem.to_string())).collect()
}

#[test]
fn files_become_objects_with_their_digests() {
    let temp = temp();
    let (src, path) = (temp.dir("src"), temp.join("store"));
    for (at, contents) in all_contents().iter().enumerate() {
        fs::write(src.join(at.to_string()), contents).unwrap();
        fs::write(src.join(format!("{at}-again")), contents).unwrap();
    }
    let tree = scan_dir(&src, 2).unwrap().tree;
    for algorithm in [SHA256, Algorithm::Sha512] {
        let plain = contents::read(&tree, algorithm, Threads::ONE).unwrap();
        for threads in [1, 4] {
            let store = Store::create(&path).unwrap();
            let stop = AtomicBool::new(false);
            let found = store.read_tree(&tree, algorithm, Threads::at_least_one(threads), &stop).unwrap();
            store.sync().unwrap();
            for (id, _) in tree.nodes() {
                assert_eq!(found.of(id), plain.of(id));
            }
        }
        for (id, node) in tree.nodes() {
            let FileContents::Object(digest) = plain.of(id) else { continue };
            let object = path.join(object_path(&digest));
            assert_eq!(
                fs::read(&object).unwrap(),
                fs::read(src.join(&*String::from_utf8_lossy(&tree.path(id)))).unwrap()
            );
            assert_eq!(fs::metadata(&object).unwrap().mode() & 0o7777, 0o644, "{:?}", node.kind);
        }
    }
    let verified = Store::open(&path).unwrap().verify(Threads::ONE, &AtomicBool::new(false)).unwrap();
    let lens: u64 = all_contents().iter().map(|contents| contents.len() as u64).filter(|&len| len > 64).sum();
    assert_eq!((verified.sound, verified.bytes), (12, 2 * lens));
    assert!(verified.problems.is_empty() && verified.others.is_empty());
}

#[test]
fn an_object_that_exists_is_kept() {
    let temp = temp();
    let path = temp.join("store");
    let store = Store::create(&path).unwrap();
    store.put_bytes(b"contents", SHA256).unwrap();
    let object = object_at(&path, b"contents");
    let before = fs::metadata(&object).unwrap();
    // It is not read again.
    fs::write(&object, b"CONTENTS").unwrap();
    store.put_bytes(b"contents", SHA256).unwrap();
    assert_eq!(fs::metadata(&object).unwrap().ino(), before.ino());
    let told = problems(&path);
    let found = digest(SHA256, b"CONTENTS");
    assert_eq!(told, [(digest(SHA256, b"contents"), format!("its contents have the digest {found}"))]);
    // Another length is noticed.
    fs::write(&object, b"cont").unwrap();
    let error = store.put_bytes(b"contents", SHA256).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { len: 4, expected: 8, .. }), "{error}");
}

#[test]
fn what_is_no_regular_file_is_no_object() {
    let temp = temp();
    let path = temp.join("store");
    let store = Store::create(&path).unwrap();
    let found = [&b"a link"[..], b"a pipe", b"a directory"];
    for contents in found {
        fs::create_dir_all(object_at(&path, contents).parent().unwrap()).unwrap();
    }
    let elsewhere = temp.join("elsewhere");
    fs::write(&elsewhere, found[0]).unwrap();
    symlink(&elsewhere, object_at(&path, found[0])).unwrap();
    let mode = rustix_mode();
    rustix::fs::mknodat(rustix::fs::CWD, object_at(&path, found[1]), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::create_dir(object_at(&path, found[2])).unwrap();
    for (contents, kind) in found.into_iter().zip(["a symbolic link", "a pipe", "a directory"]) {
        let digest = digest(SHA256, contents);
        let words = format!("no object of a store: {kind}");
        let errors = [
            store.put_bytes(contents, SHA256).unwrap_err(),
            store.has(&digest).unwrap_err(),
            store.open_object(&digest).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().ends_with(&words), "{error}");
        }
        assert!(problems(&path).iter().any(|(of, problem)| *of == digest && problem.ends_with(&words)), "{kind}");
    }
    assert_eq!(problems(&path).len(), 3);
}

fn rustix_mode() -> rustix::fs::Mode {
    rustix::fs::Mode::from_raw_mode(0o644)
}

#[test]
fn other_files_are_listed_and_stay() {
    let temp = temp();
    let path = temp.join("store");
    let store = Store::create(&path).unwrap();
    store.put_bytes(b"contents", SHA256).unwrap();
    fs::write(path.join("README"), "").unwrap();
    fs::write(path.join(".tmp123456"), "").unwrap();
    fs::create_dir_all(path.join("AB")).unwrap();
    fs::write(object_at(&path, b"contents").with_file_name("short"), "").unwrap();
    let verified = store.verify(Threads::ONE, &AtomicBool::new(false)).unwrap();
    let names: Vec<_> = verified.others.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!((names, verified.sound), (vec!["short", "AB", "README"], 1));
    drop(store);
    let unused = Store::open(&path).unwrap().remove_unused(&HashSet::new(), Removal::Remove).unwrap();
    assert_eq!(unused.objects, [object_path(&digest(SHA256, b"contents"))]);
    assert!(path.join("README").exists() && path.join(".tmp123456").exists() && path.join("AB").exists());
}

#[test]
fn unused_objects_go_and_others_stay() {
    let temp = temp();
    let path = temp.join("store");
    let store = Store::create(&path).unwrap();
    let [used, unused] = [&b"used"[..], b"unused"].map(|contents| store.put_bytes(contents, SHA256).unwrap());
    let keep = HashSet::from([object_path(&used).into_bytes(), b"../elsewhere".to_vec()]);
    let other = Store::open(&path).unwrap();
    assert!(matches!(other.remove_unused(&keep, Removal::Remove), Err(StoreError::Busy { .. })));
    drop(store);
    for removal in [Removal::DryRun, Removal::Remove] {
        let found = other.remove_unused(&keep, removal).unwrap();
        assert_eq!((found.objects, found.bytes, found.kept), (vec![object_path(&unused)], 6, 1));
        assert_eq!(other.has(&unused).unwrap(), removal == Removal::DryRun);
    }
    assert!(other.has(&used).unwrap());
    assert!(!other.has_path(b"../elsewhere").unwrap() && !other.has_path(b"/etc/passwd").unwrap());
}

#[test]
fn repositories_are_read_and_not_changed() {
    let temp = temp();
    let objects = temp.join("repository/objects");
    Store::create(&objects).unwrap().put_bytes(b"contents", SHA256).unwrap();
    let path = temp.join("repository");
    fs::write(path.join("meta.json"), "{}").unwrap();
    let store = Store::open(&path).unwrap();
    assert!(store.has(&digest(SHA256, b"contents")).unwrap());
    assert_eq!(store.verify(Threads::ONE, &AtomicBool::new(false)).unwrap().sound, 1);
    let refused = store.remove_unused(&HashSet::new(), Removal::Remove).unwrap_err();
    assert!(matches!(refused, StoreError::Repository { .. }));
    assert!(matches!(Store::create(&path), Err(StoreError::Repository { .. })));
}

#[test]
fn a_file_that_cannot_be_stored_is_an_error() {
    let temp = temp();
    let (src, path) = (temp.dir("src"), temp.join("store"));
    fs::write(src.join("file"), vec![1; 2 << 20]).unwrap();
    let tree = scan_dir(&src, 1).unwrap().tree;
    let stopped = Store::create(&path).unwrap().read_tree(&tree, SHA256, Threads::ONE, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(StoreError::Stopped)));
    fs::write(src.join("file"), vec![2; 3 << 20]).unwrap();
    let changed = Store::create(&path).unwrap().read_tree(&tree, SHA256, Threads::ONE, &AtomicBool::new(false));
    let error = changed.unwrap_err().to_string();
    assert!(error.starts_with("file: changed"), "{error}");
    assert_eq!(Store::open(&path).unwrap().verify(Threads::ONE, &AtomicBool::new(false)).unwrap().sound, 0);
    let first = digest(SHA256, b"contents").to_string();
    symlink("elsewhere", path.join(&first[..2])).unwrap();
    let refused = Store::create(&path).unwrap().put_bytes(b"contents", SHA256).unwrap_err();
    assert!(matches!(refused, StoreError::NoObject { .. }), "{refused}");
}
