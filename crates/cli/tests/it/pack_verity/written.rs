//! `--verity` of `pack`, `convert` and `relayout`.

use super::{SALT, assert_verified, files, has_veritysetup, is_unverified, piped, root_hash};
use crate::common::{Scratch, fails, golden, json, number, run, stderr, stdout};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Root hash of a small image without compression, as veritysetup 2.6.1 prints it.
const GOLDEN: &str = "240d7d9dad07b3b3ec0b0fe0a2f9a71459b028848d3a5241b99925f62cfe3cea";

/// Packs the same image again and again.
fn pack(src: &str, image: &str, more: &[&str]) -> String {
    let output = run(&[&["pack", "--build-time", "7", src, image], more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn a_tree_of_pack_is_that_of_verity_format() {
    let scratch = Scratch::new();
    let [src, plain, image, again] = ["src", "plain", "image", "again"].map(|name| scratch.path(name));
    files(&src);
    pack(&src, &plain, &[]);
    let data = fs::read(&plain).unwrap();
    for salt in ["zero", "none", "content", SALT] {
        for block_size in ["512", "2k", "4k"] {
            pack(&src, &plain, &["--force", "--block-size", block_size]);
            let told = pack(&src, &image, &["--force", "--block-size", block_size, "--verity", "--verity-salt", salt]);
            fs::copy(&plain, &again).unwrap();
            let formatted = stdout(&["verity", "format", "-q", "--force", "--salt", salt, &again]);
            let formatted = String::from_utf8(formatted).unwrap();
            assert_eq!(root_hash(&image), formatted.trim_end(), "{salt} {block_size}");
            assert!(told.contains(&format!("root hash: {formatted}")), "{told}");
            assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap(), "{salt} {block_size}");
            assert_verified(&image);
            stdout(&["check", &image]);
        }
    }
    // The last one.
    let sealed = fs::read(&image).unwrap();
    assert!(sealed.starts_with(&data) && sealed.len() > data.len());
    let mut wrong = sealed;
    wrong[data.len() / 2] ^= 1;
    fs::write(&image, wrong).unwrap();
    assert!(is_unverified(&image, &root_hash(&image)));
}

#[test]
fn a_tree_of_pack_is_that_of_veritysetup() {
    if !has_veritysetup() {
        return;
    }
    let scratch = Scratch::new();
    let [src, plain, image, tree, hash] = ["src", "plain", "image", "tree", "hash"].map(|name| scratch.path(name));
    files(&src);
    pack(&src, &plain, &[]);
    for (ours, theirs) in [("none", "-"), (SALT, SALT), ("zero", &*"00".repeat(32))] {
        let packed = |place: &str| pack(&src, &image, &["--force", "--verity-salt", ours, place]);
        packed("--verity");
        let shown = json(&stdout(&["verity", "show", "--json", &image]));
        let uuid = format!("--uuid={}", shown["uuid"].as_str().unwrap());
        let (salt, hash_file) = (format!("--salt={theirs}"), format!("--root-hash-file={hash}"));
        let _ = fs::remove_file(&tree);
        let made = Command::new("veritysetup").args(["format", &salt, &uuid, &hash_file, &plain, &tree]).output();
        assert!(made.as_ref().unwrap().status.success(), "{made:?}");
        assert_eq!(fs::read_to_string(&hash).unwrap(), root_hash(&image));
        let sealed = fs::read(&image).unwrap();
        let hash_off = number(&shown, "hash_offset");
        assert!(sealed[hash_off as usize..] == fs::read(&tree).unwrap(), "{ours}");
        let offset = format!("--hash-offset={hash_off}");
        let verified =
            Command::new("veritysetup").args(["verify", &offset, &image, &image, &root_hash(&image)]).output();
        assert!(verified.as_ref().unwrap().status.success(), "{verified:?}");
        // In a file of its own.
        let own = scratch.path("own");
        packed(&format!("--verity={own}"));
        assert!(fs::read(&own).unwrap() == fs::read(&tree).unwrap(), "{ours}");
        assert!(fs::read(&image).unwrap() == fs::read(&plain).unwrap());
    }
}

#[test]
fn the_root_hash_of_an_image_is_known() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    fs::write(format!("{src}/file"), vec![7; 300 * 4096]).unwrap();
    let fixed = ["--preset", "plain", "--all-root", "--mtime", "0", "--chmod", "D755,F644", "--verity"];
    pack(&src, &image, &[&fixed[..], &["-U", "6a64ad01-5d21-4f2b-9a4b-2d0c1e0f7788"]].concat());
    assert_eq!(root_hash(&image), GOLDEN);
}

#[test]
fn files_lie_where_they_are_asked_for() {
    let scratch = Scratch::new();
    let [src, image, tree, hash] = ["src", "image", "tree", "hash"].map(|name| scratch.path(name));
    files(&src);
    let output = stdout(&["pack", "--json", &src, &image, "--verity", "--root-hash-file", &hash, "--sidecar"]);
    let told = json(&output);
    assert_eq!(crate::json::undocumented(&told), [""; 0]);
    let made = &told["verity"];
    assert_eq!(
        (made["root_hash"].as_str().unwrap(), made["tree"].as_str().unwrap()),
        (&*fs::read_to_string(&hash).unwrap(), &*image)
    );
    assert_eq!(number(made, "hash_offset"), number(&told, "image_bytes"));
    assert_eq!(fs::metadata(&image).unwrap().len(), number(made, "hash_offset") + number(made, "tree_bytes"));
    assert_eq!(scratch.names(), ["hash", "image", "image.dmverity", "src"]);
    assert_eq!(fs::metadata(format!("{image}.dmverity")).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(json(&stdout(&["verity", "show", "--json", &image]))["root_hash"], made["root_hash"]);

    let beside = format!("--verity={tree}");
    let told = json(&stdout(&["pack", "--json", "--force", &src, &image, &beside]));
    assert_eq!((told["verity"]["tree"].as_str().unwrap(), number(&told["verity"], "hash_offset")), (&*tree, 0));
    stdout(&["verity", "verify", "-q", &image, &tree, "--root-hash", &root_hash(&image)]);
    // The file for containerd was about another image.
    assert_eq!(scratch.names(), ["hash", "image", "image.dmverity.old", "image.roothash", "src", "tree"]);

    let none = json(&stdout(&["pack", "--json", "--force", &src, &image]));
    assert!(none["verity"].is_null());
    assert!(!scratch.names().contains(&"image.roothash".to_owned()), "it told of another image");
}

#[test]
fn mistakes_are_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let [src, image, missing] = ["src", "image", "missing/file"].map(|name| scratch.path(name));
    files(&src);
    let refuse = |code: i32, more: &[&str], words: &str| {
        fails(&[&["pack", &src, &image], more].concat(), code, words);
        assert_eq!(scratch.names(), ["src"], "{more:?}");
    };
    refuse(2, &["--root-hash-file", &missing], "--verity");
    refuse(2, &["--sidecar"], "--verity");
    refuse(2, &["--verity-salt", "zero"], "--verity");
    refuse(2, &["--verity", "--verity-salt", "x"], "hexadecimal");
    refuse(1, &["--verity", "--root-hash-file", &missing], "missing");
    refuse(2, &[&format!("--verity={image}")], "a file of its own");
    refuse(2, &["--verity", "--root-hash-file", &image], "a file of its own");
    refuse(2, &[&format!("--verity={image}x"), "--sidecar"], "--sidecar");
    refuse(2, &["--verity", "--sidecar", "--offset", "4k"], "--sidecar");
    fs::write(format!("{image}.roothash"), "kept").unwrap();
    fails(&["pack", &src, &image, "--verity"], 1, "image.roothash: exists already");
    assert_eq!((scratch.names(), root_hash(&image)), (vec!["image.roothash".into(), "src".into()], "kept".into()));
    fails(&["convert", &src, &scratch.path("x.tar"), "--verity"], 2, "an archive has no hash tree");
}

#[test]
fn a_dry_run_writes_nothing_and_knows_the_root_hash() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image"].map(|name| scratch.path(name));
    files(&src);
    let dry = json(&stdout(&["pack", "--json", "--build-time", "7", "--dry-run", "--verity", &src, &image]));
    assert_eq!(scratch.names(), ["src"]);
    pack(&src, &image, &["--verity"]);
    assert_eq!(dry["verity"]["root_hash"], root_hash(&image));
}

#[test]
fn streams_get_the_tree_behind_the_image() {
    let scratch = Scratch::new();
    let [src, archive, image, hash] = ["src", "x.tar", "image", "hash"].map(|name| scratch.path(name));
    files(&src);
    stdout(&["convert", "-q", &src, &archive]);
    piped(&["pack", "-q", "--build-time", "7", "--verity", "-", &image], &archive);
    assert_verified(&image);
    let sealed = fs::read(&image).unwrap();
    let out = piped(&["pack", "-q", "--build-time", "7", "--verity", "--root-hash-file", &hash, "-", "-"], &archive);
    assert!(out.stdout == sealed);
    assert_eq!(fs::read_to_string(&hash).unwrap(), root_hash(&image));
    fails(&["pack", "--verity", "--sidecar", &src, "-"], 2, "--sidecar");
    assert_eq!(scratch.names(), ["hash", "image", "image.roothash", "src", "x.tar"]);
}

#[test]
fn an_offset_counts_for_the_tree() {
    let scratch = Scratch::new();
    let [src, image, disk] = ["src", "image", "disk"].map(|name| scratch.path(name));
    files(&src);
    pack(&src, &image, &["--verity"]);
    let sealed = fs::read(&image).unwrap();
    // In a new file, and in one that exists.
    for exists in [false, true] {
        let hash = scratch.path("hash");
        pack(&src, &disk, &["--force", "--offset", "1M", "--verity", "--root-hash-file", &hash]);
        assert!(fs::read(&disk).unwrap()[1 << 20..] == sealed, "{exists}");
        assert_eq!(fs::read_to_string(&hash).unwrap(), root_hash(&image));
    }
    // Without a tree, none stays behind an image of the same length.
    pack(&src, &disk, &["--force", "--offset", "1M"]);
    let end = (1 << 20) + number(&json(&stdout(&["verity", "show", "--json", &image])), "hash_offset") as usize;
    assert!(fs::read(&disk).unwrap()[end..][..512] == [0; 512]);
}

#[test]
fn other_ways_to_an_image_have_it_too() {
    let scratch = Scratch::new();
    let [src, image, more, moved] = ["src", "image", "more", "moved"].map(|name| scratch.path(name));
    files(&src);
    stdout(&["convert", "-q", "--verity", &golden("zstd.erofs"), &image]);
    assert_verified(&image);
    stdout(&["pack", "-q", "--base", &image, "--verity", &src, &more]);
    assert_verified(&more);
    // A tree behind the base is not part of it.
    stdout(&["relayout", "-q", "--verity", &more, &moved]);
    assert_verified(&moved);
    let [with, without] = [&moved, &more].map(|image| stdout(&["ls", "-R", "--json", image]));
    assert_eq!(with, without);
}

#[test]
fn a_tree_that_is_not_carried_over_is_told() {
    let scratch = Scratch::new();
    let [src, image, moved] = ["src", "image", "moved"].map(|name| scratch.path(name));
    files(&src);
    for place in ["--verity".to_owned(), format!("--verity={image}.verity")] {
        pack(&src, &image, &["--force", &place]);
        let output = run(&["relayout", "--force", &image, &moved]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("hash tree not carried over"), "{}", stderr(&output));
        fs::remove_file(&moved).unwrap();
        fails(&["relayout", "--require-verity", &image, &moved], 1, "hash tree not carried over");
        assert!(!fs::exists(&moved).unwrap());
    }
    stdout(&["relayout", "-q", "--verity", &image, &moved]);
    let output = run(&["relayout", "--require-verity", "--force", &moved, &scratch.path("again")]);
    assert_eq!(output.status.code(), Some(1));
    // An image without one has nothing to lose.
    pack(&src, &image, &["--force"]);
    let output = run(&["relayout", "--require-verity", "--force", &image, &moved]);
    assert!(output.status.success() && !stderr(&output).contains("hash tree"), "{}", stderr(&output));
}

#[test]
fn what_tells_of_an_older_image_goes_by_all_of_its_names() {
    let scratch = Scratch::new();
    let [src, real, link] = ["src", "real", "link"].map(|name| scratch.path(name));
    files(&src);
    std::os::unix::fs::symlink("real", &link).unwrap();
    pack(&src, &link, &["--verity"]);
    fs::copy(format!("{link}.roothash"), format!("{real}.roothash")).unwrap();
    pack(&src, &link, &["--force"]);
    assert_eq!(scratch.names(), ["link", "link.roothash.old", "real", "real.roothash.old", "src"]);
    // A hash tree that another salt makes is another one, too.
    pack(&src, &link, &["--force", "--verity", "--sidecar"]);
    stdout(&["verity", "format", "-q", "--force", &link]);
    assert_verified(&link);
    stdout(&["verity", "format", "-q", "--force", "--salt", "none", &link]);
    assert!(!fs::exists(format!("{link}.roothash")).unwrap() && !fs::exists(format!("{link}.dmverity")).unwrap());
    // Files of others keep their names.
    fs::write(format!("{link}.roothash"), "notes").unwrap();
    pack(&src, &link, &["--force"]);
    assert_eq!(root_hash(&link), "notes");
}
