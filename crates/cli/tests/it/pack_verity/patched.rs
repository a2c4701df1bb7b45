//! Hash trees of images that patches are made of.

use super::{assert_verified, files, root_hash};
use crate::common::{Scratch, fails, json, kiln, run, stderr, stdout, text};
use std::fs;
use std::process::Stdio;

/// Makes images of two versions, the second one with a tree, and a patch between them.
fn versions(first: &[&str], second: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    let [src, v1, v2, patch] = ["src", "v1", "v2", "patch"].map(|name| scratch.path(name));
    files(&src);
    stdout(&[&["pack", "-q", &src, &v1], first].concat());
    fs::write(format!("{src}/new"), text(9, 50_000)).unwrap();
    stdout(&[&["pack", "-q", &src, &v2], second].concat());
    let told = json(&stdout(&["patch", "make", "--json", &v1, &v2, &patch]));
    assert_eq!(crate::json::undocumented(&told), [""; 0]);
    match second.contains(&"--verity") {
        true => assert_eq!(told["root_hash"], root_hash(&v2)),
        false => assert!(told["root_hash"].is_null()),
    }
    scratch
}

#[test]
fn a_patch_makes_the_tree_again() {
    for (first, second) in [
        (&[][..], &["--verity"][..]),
        (&["--verity"], &["--verity", "--verity-salt", "content"]),
        (&["--verity"], &["--verity", "--block-size", "512"]),
        (&["--verity"], &[]),
    ] {
        let scratch = versions(first, second);
        let [v1, v2, patch, new] = ["v1", "v2", "patch", "new"].map(|name| scratch.path(name));
        let expected = fs::read(&v2).unwrap();
        let has_tree = !second.is_empty();
        let told = json(&stdout(&["patch", "apply", "--json", &v1, &patch, &new]));
        assert_eq!(crate::json::undocumented(&told), [""; 0]);
        assert!(fs::read(&new).unwrap() == expected, "{first:?} {second:?}");
        assert_eq!(told["root_hash"].as_str().map(str::to_owned), has_tree.then(|| root_hash(&new)));
        if has_tree {
            assert_verified(&new);
        }
        let piped = kiln().args(["patch", "apply", "-q", &v1, &patch, "-"]).stdin(Stdio::null()).output().unwrap();
        assert!(piped.stdout == expected, "{}", stderr(&piped));
        // The old image may have lost its tree, or have another one.
        stdout(&["verity", "format", "-q", "--force", "--salt", "none", &v1]);
        stdout(&["patch", "apply", "-q", "--force", &v1, &patch, &new]);
        assert!(fs::read(&new).unwrap() == expected);
    }
}

#[test]
fn a_patch_of_hashes_is_small() {
    let scratch = Scratch::new();
    let [src, v1, v2] = ["src", "v1", "v2"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    fs::write(format!("{src}/file"), vec![7; 8 << 20]).unwrap();
    stdout(&["pack", "-q", "--preset", "plain", "--dedupe", "off", &src, &v1]);
    fs::write(format!("{src}/small"), "new").unwrap();
    stdout(&["pack", "-q", "--preset", "plain", "--dedupe", "off", "--verity", "--verity-salt", "content", &src, &v2]);
    let patch = scratch.path("patch");
    stdout(&["patch", "make", "-q", &v1, &v2, &patch]);
    // The tree has 68 KiB.
    assert!(fs::metadata(&patch).unwrap().len() < 4096);
}

#[test]
fn a_wrong_root_hash_makes_no_image() {
    let scratch = versions(&[], &["--verity"]);
    let [v1, v2, patch, new] = ["v1", "v2", "patch", "new"].map(|name| scratch.path(name));
    let mut bytes = fs::read(&v2).unwrap();
    let last = bytes.len() - 4096;
    bytes[last] ^= 1;
    fs::write(&v2, &bytes).unwrap();
    fails(&["patch", "make", &v1, &v2, &scratch.path("other")], 1, "hash tree");
    assert!(!fs::exists(scratch.path("other")).unwrap());
    // An image that is there stays, with what belongs to it.
    stdout(&["pack", "-q", "--verity", &scratch.path("src"), &new]);
    let (before, hash) = (fs::read(&new).unwrap(), root_hash(&new));
    fails(&["patch", "apply", &v1, &patch, &new], 1, "exists already");
    assert!(fs::read(&new).unwrap() == before && root_hash(&new) == hash);
}

#[test]
fn a_tree_follows_a_patch_in_place() {
    for (first, second) in [(&[][..], &["--verity"][..]), (&["--verity"], &["--verity"]), (&["--verity"], &[])] {
        let scratch = versions(first, second);
        let [v1, v2, patch] = ["v1", "v2", "patch"].map(|name| scratch.path(name));
        let expected = fs::read(&v2).unwrap();
        let status = || run(&["patch", "apply", "--in-place", "--status", &v1, &patch]).status.code();
        assert_eq!(status(), Some(10), "the old image");
        stdout(&["patch", "apply", "-q", "--in-place", &v1, &patch]);
        assert!(fs::read(&v1).unwrap() == expected, "{first:?} {second:?}");
        assert_eq!(status(), Some(0), "the new image");
        let told = json(&stdout(&["patch", "apply", "--json", "--in-place", &v1, &patch]));
        assert_eq!(told["outcome"], "present");
        assert!(fs::read(&v1).unwrap() == expected);
        match second.is_empty() {
            true => assert!(!fs::exists(format!("{v1}.roothash")).unwrap(), "of the old image"),
            false => assert_verified(&v1),
        }
        // A tree that is missing is made again.
        if !second.is_empty() {
            let told = json(&stdout(&["verity", "show", "--json", &v1]));
            fs::File::options().write(true).open(&v1).unwrap().set_len(told["hash_offset"].as_u64().unwrap()).unwrap();
            stdout(&["patch", "apply", "-q", "--in-place", &v1, &patch]);
            assert!(fs::read(&v1).unwrap() == expected);
        }
    }
}

#[test]
fn a_patch_for_another_image_drops_no_tree() {
    let scratch = versions(&[], &["--verity"]);
    let [src, other, patch] = ["src", "other", "patch"].map(|name| scratch.path(name));
    stdout(&["pack", "-q", "--verity", "-U", "6a64ad01-5d21-4f2b-9a4b-2d0c1e0f7788", &src, &other]);
    let names = scratch.names();
    let before = fs::read(&other).unwrap();
    fails(&["patch", "apply", "--in-place", &other, &patch], 1, "not the image that the patch was made for");
    assert!(fs::read(&other).unwrap() == before);
    assert_eq!(scratch.names(), names);
}
