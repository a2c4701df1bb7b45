//! `fsck.erofs`: its findings and its extractions.

use super::{Names, arguments, flipped, images, tree};
use crate::common::{Scratch, golden, run, skip, stderr, stdout};
use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn sound_images_pass_and_damaged_superblocks_do_not() {
    let names = Names::new();
    for name in images() {
        let args = arguments(&name);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!(names.exits("fsck.erofs", &args, 0), "", "{name}");
        let flipped = flipped(&names.0, &name);
        let devices = &args[..args.len() - 1];
        let said = names.exits("fsck.erofs", &[devices, &[&flipped]].concat(), 1);
        assert!(said.contains("checksum"), "{name}: {said}");
        let said = names.exits("fsck.erofs", &[devices, &["--no-sbcrc", "-d3", &flipped]].concat(), 0);
        assert_eq!(said, "<I> erofs: No errors found\n", "{name}");
        // The same under kiln's own name.
        let devices: Vec<&str> = devices.iter().flat_map(|device| device.split('=')).collect();
        assert_eq!(run(&[&["check"], &devices[..], &[&flipped]].concat()).status.code(), Some(4), "{name}");
        let forgiven = run(&[&["check", "--no-sbcrc"], &devices[..], &[&flipped]].concat());
        assert_eq!(forgiven.status.code(), Some(0), "{name}");
        assert!(stderr(&forgiven).contains("checksum"), "{name}: the wrong checksum is mentioned");
    }
}

#[test]
fn damaged_contents_are_found_without_extracting() {
    let names = Names::new();
    let mut bytes = fs::read(golden("lz4.erofs")).unwrap();
    // In the second pcluster of /big/text.
    bytes[110_592..][..20].copy_from_slice(b"XXXXXXXXXXXXXXXXXXXX");
    let image = names.0.path("image");
    fs::write(&image, bytes).unwrap();
    for args in [&[&*image][..], &["--path=/big", &image], &["--path=big/text", &image], &["--extract", &image]] {
        let said = names.exits("fsck.erofs", args, 1);
        assert!(said.starts_with("<E> erofs: ") && said.contains("big/text"), "{said}");
    }
    for part in ["--path=/big/mixed", "--path=/names", "--nid=44"] {
        let code = i32::from(part == "--nid=44"); // that is /big
        names.exits("fsck.erofs", &[part, &image], code);
    }
}

#[test]
fn ratios_are_told() {
    let names = Names::new();
    for (name, ratio) in [("lz4", "73.99"), ("metabox-zstd", "60.13"), ("inline", "100.00"), ("lz4-tail", "73.56")] {
        let said = names.exits("fsck.erofs", &["-p", "-d3", &golden(&format!("{name}.erofs"))], 0);
        let expected = format!("<I> erofs: No errors found\n<I> erofs: Compression ratio: {ratio}(%)\n");
        assert_eq!(said, expected, "{name}");
    }
    let said = names.exits("fsck.erofs", &["-ap", "--path=/big", &golden("lz4.erofs")], 0);
    assert_eq!(said, "<I> erofs: Compression ratio: 54.95(%)\n");
}

#[test]
fn what_is_extracted_is_the_tree() {
    if !geteuid().is_root() {
        return skip("devices and owners need root");
    }
    let names = Names::new();
    let out = names.0.path("out");
    let said = names.exits("fsck.erofs", &[&format!("--extract={out}"), "-d3", &golden("zstd.erofs")], 0);
    assert_eq!(said, "<I> erofs: Extracted filesystem successfully\n");
    let found = tree(&out);
    let expected = fs::read_to_string(golden("tree-plain.jsonl")).unwrap();
    assert_eq!(found.len(), expected.lines().count());
    for line in expected.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        // Bytes are written as code points.
        let bytes = |text: &Value| text.as_str().unwrap().chars().map(|c| c as u8).collect::<Vec<u8>>();
        let shown = &found[&bytes(&entry["path"])];
        let number = |value: &Value| value.as_i64().unwrap();
        assert_eq!(i64::from(shown.mode & 0o7777), number(&entry["mode"]), "{line}");
        assert_eq!((shown.owner.0, shown.owner.1), (number(&entry["uid"]) as u32, number(&entry["gid"]) as u32));
        assert_eq!(shown.mtime, (number(&entry["mtime"][0]), number(&entry["mtime"][1])), "{line}");
        match entry["type"].as_str().unwrap() {
            "-" => assert_eq!(shown.contents.len() as i64, number(&entry["size"]), "{line}"),
            "l" => assert_eq!(shown.contents, bytes(&entry["target"]), "{line}"),
            _ => {}
        }
    }
    stdout(&["extract", &golden("inline.erofs"), &names.0.path("ours")]);
    assert!(found == tree(&names.0.path("ours")), "another image of the same tree");
}

#[test]
fn extraction_replaces_only_what_it_may() {
    let names = Names::new();
    let (image, out) = (golden("lz4.erofs"), names.0.path("out"));
    let extract = &*format!("--extract={out}");
    fs::create_dir(&out).unwrap();
    fs::write(format!("{out}/mine"), "kept").unwrap();
    names.exits("fsck.erofs", &[extract, "--path=/big", &image], 0);
    assert_eq!(fs::read(format!("{out}/mine")).unwrap(), b"kept");
    let text = fs::read(format!("{out}/text")).unwrap();
    assert!(text == stdout(&["cat", &image, "big/text"]));
    // The file exists already.
    fs::write(format!("{out}/text"), "changed").unwrap();
    let said = names.exits("fsck.erofs", &[extract, "--path=/big", &image], 1);
    assert!(said.contains("File exists"), "{said}");
    names.exits("fsck.erofs", &[extract, "--force", "--path=/big", &image], 1);
    names.exits("fsck.erofs", &[extract, "--overwrite", "--path=/big", &image], 0);
    assert!(text == fs::read(format!("{out}/text")).unwrap());
    assert_eq!(fs::read(format!("{out}/mine")).unwrap(), b"kept");
    // One file.
    let file = names.0.path("file");
    names.exits("fsck.erofs", &[&format!("--extract={file}"), "--path=big/text", &image], 0);
    assert!(text == fs::read(&file).unwrap());
}

#[test]
fn extraction_preserves_what_is_asked_for() {
    if !geteuid().is_root() {
        return skip("owners and attributes need root");
    }
    let names = Names::new();
    let image = golden("xattrs.erofs");
    let extract = |args: &[&str], name: &str| {
        let out = names.0.path(name);
        let to = format!("--extract={out}");
        let script = "umask 027; exec \"$0\" \"$@\"";
        let output = Command::new("sh")
            .args(["-c", script, &names.0.path("fsck.erofs"), &to])
            .args(args)
            .arg(&image)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        out
    };
    let has_xattrs = |dir: &str| {
        let mut names = [0; 65536];
        fs::read_dir(format!("{dir}/x"))
            .unwrap()
            .any(|entry| rustix::fs::llistxattr(entry.unwrap().path(), &mut names[..]).unwrap() > 0)
    };
    let (all, none) = (tree(&extract(&["--xattrs"], "all")), tree(&extract(&["--no-preserve"], "none")));
    assert!(has_xattrs(&names.0.path("all")) && !has_xattrs(&names.0.path("none")));
    for (path, shown) in &none {
        assert_eq!(shown.owner, (0, 0), "{}", path.escape_ascii());
        let is_link = shown.mode & 0o170_000 == 0o120_000;
        assert!(is_link || shown.mode & 0o027 == 0, "{}: {:o}", path.escape_ascii(), shown.mode);
        assert!(is_link || shown.mode & 0o777 == all[path].mode & 0o750, "{}", path.escape_ascii());
    }
    let owners = tree(&extract(&["--no-preserve", "--preserve-owner"], "owners"));
    assert!(owners.iter().all(|(path, shown)| shown.owner == all[path].owner));
    let modes = tree(&extract(&["--no-preserve-owner"], "modes"));
    assert!(modes.iter().all(|(path, shown)| shown.mode & 0o777 == all[path].mode & 0o777));
    // The corresponding options of kiln.
    stdout(&["extract", "--no-owners", "--no-xattrs", &image, &names.0.path("twin")]);
    assert!(modes == tree(&names.0.path("twin")));
    assert!(!has_xattrs(&names.0.path("twin")));
}

/// Contents that are objects of composefs are not zeros; all other files are extracted.
#[test]
fn objects_of_composefs_are_errors_of_contents_only() {
    let (names, image) = (Names::new(), golden("composefs/image.erofs"));
    assert_eq!(names.exits("fsck.erofs", &[&image], 0), "");
    let out = names.0.path("out");
    let said = names.exits("fsck.erofs", &[&format!("--extract={out}"), &image], 1);
    assert_eq!(said.matches("the contents are the composefs object").count(), 2, "{said}");
    assert!(said.lines().all(|line| line.starts_with("<E> erofs: ")), "{said}");
    assert_eq!(fs::read(format!("{out}/small")).unwrap(), b"contents of a small file\n");
    assert!(!fs::exists(format!("{out}/big")).unwrap());
    let said = names.exits("dump.erofs", &["--cat", "--path=/big", &image], 1);
    assert!(said.contains("contents are the composefs object"), "{said}");
    names.exits("dump.erofs", &["--cat", "--path=/small", &image], 0);
}

#[test]
fn missing_devices_are_told_first() {
    let (names, image, out) = (Names::new(), golden("blobdev.erofs"), Scratch::new());
    let needs = "blobdev.erofs: needs 1 extra device: name it with --device\n";
    for (name, args) in [
        ("fsck.erofs", &[&*image][..]),
        ("dump.erofs", &["--cat", "--path=/big/text", &image]),
        ("erofsfuse", &[&image, &out.path("")]),
    ] {
        let said = names.exits(name, args, 1);
        assert!(said.ends_with(needs) && said.lines().count() == 1, "{name}: {said}");
    }
    for args in
        [&["-s", &*image][..], &["--ls", "--path=/", &image], &["-S", &image], &["-e", "--path=/big/text", &image]]
    {
        let said = names.exits("dump.erofs", args, 0);
        assert!(said.starts_with("<W> erofs: ") && said.ends_with(needs), "{args:?}: {said}");
    }
}
