//! Updates that find nothing changed, and those that only seem to.

use super::{golden_copy, small, update};
use crate::common::readers::has_tree;
use crate::common::trees::{OLD, make, set_time, settle, write};
use crate::common::{Scratch, json, kiln, number, run, stderr, stdout, text};
use rustix::fs::{XattrFlags, setxattr};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Updates an image with its own tree: nothing may be written.
fn stays(image: &str, src: &str, options: &[&str]) {
    let before = fs::read(image).unwrap();
    let output = run(&[&["update", "--json", image, src][..], options].concat());
    assert!(output.status.success(), "{options:?}: {}", stderr(&output));
    let told = json(&output.stdout);
    assert!(fs::read(image).unwrap() == before, "{options:?}: {told}");
    assert_eq!((&told["unchanged"], number(&told, "appended_bytes")), (&true.into(), 0), "{told}");
    assert_eq!(number(&told, "reused_bytes"), number(&told, "bytes_in"), "{told}");
    assert_eq!(number(&told, "image_bytes"), before.len() as u64);
    assert!(stderr(&output).contains("nothing has changed: generation "), "{}", stderr(&output));
    assert!(crate::json::undocumented(&told).is_empty(), "{told}");
}

/// Updates an image with another tree.
fn changes(image: &str, src: &str, options: &[&str]) {
    let told = update(image, src, options);
    assert_eq!(told["unchanged"], false, "{options:?}: {told}");
    stays(image, src, options);
}

#[test]
fn nothing_is_written_where_nothing_has_changed() {
    let options = [
        &["--preset", "balanced"][..],
        &["--preset", "plain"],
        &["--preset", "dataset"],
        &["--preset", "fast", "--kernel", "5.4"],
        &["--kernel", "6.15"],
        &["--preset", "archive", "-C", "64k"],
    ];
    for (seed, options) in (0..).zip(options) {
        let (scratch, _) = make(300 + seed);
        let [image, src] = ["image.erofs", "src"].map(|name| scratch.path(name));
        stdout(&[&["pack", "--quiet", &src, &image], options].concat());
        stays(&image, &src, &[]);
        // Options for storing new data do not count.
        stays(&image, &src, &["-z", "lz4", "--base-trust", "content"]);
    }
    for name in ["chunk-4k.erofs", "lz4.erofs", "inline.erofs"] {
        let scratch = Scratch::new();
        let (image, src) = (golden_copy(&scratch, name), scratch.path("src"));
        stdout(&["extract", "--quiet", &image, &src]);
        stays(&image, &src, &[]);
    }
}

#[test]
fn all_that_an_image_shows_counts() {
    let (_scratch, src, image) = small();
    let at = |name: &str| Path::new(&src).join(name);
    stays(&image, &src, &[]);
    fs::set_permissions(at("small"), Permissions::from_mode(0o600)).unwrap();
    changes(&image, &src, &[]);
    set_time(&at("small"), OLD + 1);
    changes(&image, &src, &[]);
    symlink("here", at("link")).unwrap();
    changes(&image, &src, &[]);
    fs::remove_file(at("link")).unwrap();
    symlink("there", at("link")).unwrap();
    changes(&image, &src, &[]);
    // Another name of a file is not a copy of it.
    fs::copy(at("small"), at("twin")).unwrap();
    set_time(&at("twin"), OLD + 1);
    fs::set_permissions(at("twin"), Permissions::from_mode(0o600)).unwrap();
    changes(&image, &src, &[]);
    fs::remove_file(at("twin")).unwrap();
    fs::hard_link(at("small"), at("twin")).unwrap();
    changes(&image, &src, &[]);
    // Neither size nor time shows the change.
    write(at("large"), text(7, 500_000), OLD);
    changes(&image, &src, &["--base-trust", "content"]);
    if setxattr(at("small"), "user.mark", b"one", XattrFlags::empty()).is_ok() {
        changes(&image, &src, &[]);
        setxattr(at("small"), "user.mark", b"two", XattrFlags::empty()).unwrap();
        changes(&image, &src, &[]);
    }
    // The image has the tree that the options make.
    let told = json(&stdout(&["update", "--quiet", "--json", "--mtime", "5", &image, &src]));
    assert_eq!(told["unchanged"], false, "{told}");
    stays(&image, &src, &["--mtime", "5"]);
    let latest = || {
        let mut kiln = kiln();
        kiln.args(["update", "--quiet", "--json", &image, &src]).env("SOURCE_DATE_EPOCH", (OLD - 100).to_string());
        json(&kiln.output().unwrap().stdout)["unchanged"].clone()
    };
    assert_eq!([latest(), latest()], [false, true]);
}

#[test]
fn files_that_have_changed_places_are_no_longer_the_same() {
    for preset in ["plain", "balanced", "dataset"] {
        let scratch = Scratch::new();
        let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
        fs::create_dir(&src).unwrap();
        let path = |name: &str| Path::new(&src).join(name);
        // Of equal size and time: within their inodes, or with ends there.
        for (name, len) in [("a", 100), ("b", 100), ("c", 5000), ("d", 5000)] {
            write(path(name), text(len as u64 + u64::from(name.as_bytes()[0]), len), OLD);
        }
        set_time(Path::new(&src), OLD);
        stdout(&["pack", "--quiet", "--preset", preset, &src, &image]);
        for (one, other) in [("a", "b"), ("c", "d")] {
            fs::rename(path(one), path("x")).unwrap();
            fs::rename(path(other), path(one)).unwrap();
            fs::rename(path("x"), path(other)).unwrap();
            set_time(Path::new(&src), OLD);
            changes(&image, &src, &["--base-trust", "content"]);
        }
    }
}

#[test]
fn stamps_are_written_all_the_same() {
    let (_scratch, src, image) = small();
    settle(&Path::new(&src).join("small"));
    let stamps = format!("{image}.stamp");
    stays(&image, &src, &["--stamp"]);
    assert_eq!(fs::read_to_string(&stamps).unwrap().lines().count(), 3);
    // A new inode, with the same contents and time.
    let small = Path::new(&src).join("small");
    fs::remove_file(&small).unwrap();
    write(&small, text(2, 9000), OLD);
    set_time(Path::new(&src), 1_700_000_000);
    settle(&small);
    stdout(&["update", "--quiet", &image, &src]);
    let first = fs::read_to_string(&stamps).unwrap();
    stays(&image, &src, &[]);
    assert_eq!(fs::read_to_string(&stamps).unwrap(), first);
}

#[test]
fn edits_of_nothing_write_nothing() {
    let (_scratch, src, image) = small();
    let before = fs::read(&image).unwrap();
    let replace = format!("/large={src}/large");
    for edits in [&["--add", &src][..], &["--replace", &replace]] {
        let told = json(&stdout(&[&["update", "--quiet", "--json", &image][..], edits].concat()));
        assert_eq!(told["unchanged"], true, "{edits:?}: {told}");
        assert!(fs::read(&image).unwrap() == before);
    }
    write(Path::new(&src).join("large"), text(5, 500_000), OLD);
    let told = json(&stdout(&["update", "--quiet", "--json", &image, "--replace", &replace]));
    assert_eq!(told["unchanged"], false);
    has_tree(&image, &src);
}
