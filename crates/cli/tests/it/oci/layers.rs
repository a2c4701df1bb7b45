//! Layers for overlayfs: those of `kiln oci convert` and of `kiln pack --layers`.

use super::{Layout, TAR, blob_path, document, index, tar, two_layers};
use crate::common::{Scratch, fails, json, names, run, skip, stdout};
use serde_json::json;
use std::fs;
use std::process::Command;

/// A member of a tar archive: a directory if its name ends with a slash.
struct Member {
    name: &'static str,
    text: &'static str,
    mode: u32,
    uid: u32,
    mtime: u64,
}

const fn member(name: &'static str, mode: u32, uid: u32, mtime: u64) -> Member {
    Member { name, text: "", mode, uid, mtime }
}

/// Returns a file that is distinguished by nothing but its name and text.
const fn file(name: &'static str, text: &'static str) -> Member {
    Member { name, text, mode: 0o644, uid: 0, mtime: 7 }
}

/// Makes an archive of these members only: it implies the directories that contain them.
fn ustar(members: &[Member]) -> Vec<u8> {
    let mut archive = Vec::new();
    for Member { name, text, mode, uid, mtime } in members {
        let mut header = [0; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, &format!("{uid:07o}"));
        put(116, &format!("{uid:07o}"));
        put(124, &format!("{:011o}", text.len()));
        put(136, &format!("{mtime:011o}"));
        put(148, "        ");
        put(156, if name.ends_with('/') { "5" } else { "0" });
        put(257, "ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(text.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Adds an image whose upper layers imply directories, some that lower ones have, and some that none has; one of
/// them comes twice.
fn implying(layout: &Layout) {
    let lower = [
        member("./", 0o711, 3, 30),
        member("a/", 0o750, 1000, 111),
        member("a/b/", 0o700, 1001, 112),
        file("a/b/old", "old"),
        member("gone/", 0o770, 5, 113),
        member("gone/sub/", 0o707, 6, 114),
        file("gone/x", "x"),
        member("full/", 0o757, 7, 115),
        file("full/x", "hidden"),
        member("new/", 0o777, 8, 116),
        member("new/sub/", 0o777, 8, 116),
    ];
    let middle = [
        file("a/b/new", "new"),
        file("gone/.wh.x", ""),
        file("fresh/sub/file", "in directories that no layer tells of"),
        file("full/.wh..wh..opq", ""),
        file("full/y", "seen"),
        // The lower directory is gone, and the one of the same name is new.
        file(".wh.new", ""),
        file("new/sub/file", "after all"),
    ];
    let upper = [file("a/b/newest", ""), file("gone/sub/deep/er", ""), member("fresh/", 0o733, 9, 117)];
    let layer = |members: &[Member]| layout.blob(TAR, &ustar(members));
    let layers = [layer(&lower), layer(&middle), layer(&upper), layer(&middle), layer(&[]), layer(&[])];
    let config = json!({ "os": "linux", "architecture": "amd64" });
    layout.index(&[layout.image(&config, &layers)]);
}

/// Returns the differences between `image` and the overlay of `layers`, the lowest first, mounted by the kernel;
/// `None` if it refuses.
fn diff_with_overlay(scratch: &Scratch, image: &str, layers: &[String]) -> Option<String> {
    let dir = |name: &str| {
        let dir = scratch.path(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    };
    let mut mounted = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let dir = dir(&format!("layer-{at}"));
        match run(&["mount", "--via", "kernel", layer, &dir]).status.success() {
            true => mounted.push(dir),
            false => break,
        }
    }
    let merged = dir("merged");
    let stacked: Vec<&str> = mounted.iter().rev().map(String::as_str).collect();
    let options = format!("lowerdir={}", stacked.join(":"));
    let is_merged = mounted.len() == layers.len()
        && Command::new("mount")
            .args(["-t", "overlay", "-o", &options, "overlay", &merged])
            .status()
            .unwrap()
            .success();
    let compared = is_merged.then(|| run(&["diff", image, &merged]));
    if is_merged {
        assert!(Command::new("umount").arg(&merged).status().unwrap().success());
    }
    mounted.iter().for_each(|dir| drop(stdout(&["umount", dir])));
    let compared = compared?;
    assert!(matches!(compared.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&compared.stderr));
    Some(String::from_utf8(compared.stdout).unwrap())
}

/// Returns the blobs of the layers of the only image in the layout at `out`.
fn layer_paths(out: &str) -> Vec<String> {
    let manifest = document(out, &index(out)[0]);
    manifest["layers"].as_array().unwrap().iter().map(|layer| blob_path(out, layer)).collect()
}

#[test]
fn the_kernel_stacks_converted_layers() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    layout.index(&[two_layers(&scratch, &layout)]);
    let (out, image) = (scratch.path("out"), scratch.path("image"));
    stdout(&["oci", "convert", "--quiet", &layout.0, &out]);
    stdout(&["pack", "--from", "oci", "--quiet", &layout.0, &image]);
    match diff_with_overlay(&scratch, &image, &layer_paths(&out)) {
        Some(differences) => assert_eq!(differences, ""),
        None => skip("the kernel does not mount EROFS and overlayfs for us"),
    }
}

#[test]
fn directories_that_a_layer_implies_are_those_of_the_layers_below() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    implying(&layout);
    let (out, image) = (scratch.path("out"), scratch.path("image"));
    stdout(&["oci", "convert", "--quiet", &layout.0, &out]);
    stdout(&["pack", "--from", "oci", "--quiet", &layout.0, &image]);
    let layers = layer_paths(&out);
    assert_eq!(layers.len(), 6);
    let stat = |layer: &str, path: &str| {
        let stat = json(&stdout(&["stat", "--json", layer, path]));
        (stat["mode"].as_str().unwrap().to_owned(), stat["uid"].as_u64().unwrap(), stat["mtime"].as_i64().unwrap())
    };
    let of = |mode: &str, uid: u64, mtime: i64| (mode.to_owned(), uid, mtime);
    // Every layer has them, as the uppermost one counts.
    for layer in &layers[1..4] {
        assert_eq!(stat(layer, "/"), of("0711", 3, 30), "{layer}");
    }
    assert_eq!(stat(&layers[1], "a"), of("0750", 1000, 111));
    assert_eq!(stat(&layers[2], "a/b"), of("0700", 1001, 112));
    assert_eq!(stat(&layers[2], "gone/sub"), of("0707", 6, 114));
    assert_eq!(stat(&layers[1], "full"), of("0757", 7, 115));
    assert_eq!(stat(&layers[1], "fresh"), of("0755", 0, 0), "no layer below has it");
    assert_eq!(stat(&layers[3], "fresh"), of("0733", 9, 117), "a layer between has it");
    assert_eq!(stat(&layers[1], "new/sub"), of("0755", 0, 0), "the lower one is gone");
    assert_eq!(stat(&image, "new/sub"), of("0755", 0, 0));
    match diff_with_overlay(&scratch, &image, &layers) {
        Some(differences) => assert_eq!(differences, ""),
        None => skip("the kernel does not mount EROFS and overlayfs for us"),
    }
}

#[test]
fn layers_are_packed_into_files() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    implying(&layout);
    let [archive, out, again, image] = ["layout.tar", "out", "again", "image"].map(|name| scratch.path(name));
    stdout(&["convert", &layout.0, &archive]);
    stdout(&["pack", "--from", "oci", "--quiet", &layout.0, &image]);
    let packed = json(&stdout(&["pack", "--layers", "--json", "--quiet", "--preset", "plain", &archive, &out]));
    assert_eq!(crate::json::undocumented(&packed), Vec::<String>::new());
    let packed = packed["layers"].as_array().unwrap();
    // The uppermost path of each layer.
    let inspected = json(&stdout(&["oci", "inspect", "--json", &layout.0]));
    let digests = inspected["images"][0]["layers"].as_array().unwrap();
    let expected = [0, 2, 3, 5].map(|at| digests[at]["digest"].clone());
    assert_eq!(packed.iter().map(|layer| layer["digest"].clone()).collect::<Vec<_>>(), expected);
    let paths: Vec<String> = packed.iter().map(|layer| layer["path"].as_str().unwrap().to_owned()).collect();
    for (path, digest) in paths.iter().zip(&expected) {
        let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
        assert_eq!(*path, format!("{out}/{hex}.erofs"));
        stdout(&["check", path]);
    }
    assert_eq!(names(&out).len(), 4, "nothing else is there");
    assert_eq!((&packed[0]["files"], &packed[1]["files"]), (&json!(3), &json!(2)));
    stdout(&["pack", "--layers", "--quiet", "--preset", "plain", "--from", "oci", &layout.0, "-o", &again]);
    assert_eq!(names(&again), names(&out));
    for name in names(&again) {
        assert_eq!(fs::read(format!("{out}/{name}")).unwrap(), fs::read(format!("{again}/{name}")).unwrap());
    }
    match diff_with_overlay(&scratch, &image, &paths) {
        Some(differences) => assert_eq!(differences, ""),
        None => skip("the kernel does not mount EROFS and overlayfs for us"),
    }
}

#[test]
fn files_of_layers_are_outputs_like_others() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let layer = |name: &str, text: &str| layout.blob(TAR, &tar(&scratch, name, &[("a", text)]));
    let layers = [layer("lower", "1"), layer("upper", "2")];
    let config = json!({ "os": "linux", "architecture": "amd64" });
    layout.index(&[layout.image(&config, &layers)]);
    let out = scratch.path("out");
    let file = |at: usize| {
        let hex = layers[at]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        format!("{out}/{hex}.erofs")
    };
    let pack = ["pack", "--layers", "--quiet", "--from", "oci", &layout.0, &out];
    stdout(&[&pack[..], &["--dry-run"]].concat());
    assert_eq!(names(&out), Vec::<String>::new());
    // The upper one exists: nothing is written.
    fs::write(file(1), "mine").unwrap();
    fails(&pack, 1, "exists already");
    assert_eq!((names(&out).len(), fs::read(file(1)).unwrap()), (1, b"mine".to_vec()));
    stdout(&[&pack[..], &["--force"]].concat());
    assert_eq!(stdout(&["cat", &file(0), "a"]), b"1");
    assert_eq!(stdout(&["cat", &file(1), "a"]), b"2");
    // A link stays, and so does its target.
    fs::remove_file(file(1)).unwrap();
    let other = scratch.path("other");
    fs::write(&other, "mine").unwrap();
    std::os::unix::fs::symlink(&other, file(1)).unwrap();
    fails(&[&pack[..], &["--force"]].concat(), 2, "");
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    fails(&["pack", "--layers", &layout.0, &scratch.path("x"), "-o", &out], 2, "one image of a container");
    fails(&["pack", "--layers", "--from", "tar", &layout.0, &out], 2, "--from tar");
    fails(
        &["pack", "--layers", "--edit", "pseudo:x", &layout.0, &out],
        2,
        "--edit pseudo cannot be used with --layers",
    );
    fails(&["pack", "--layers", &scratch.path("lower"), &out], 2, "it is not a container image");
}
