//! `kiln pack`: trees as text, and definitions that change a tree.

use crate::common::{Scratch, fails, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir_all(format!("{root}/bin")).unwrap();
    fs::write(format!("{root}/bin/ping"), "elf").unwrap();
    root
}

fn pack(scratch: &Scratch, args: &[&str]) -> String {
    let image = scratch.path("image");
    let output = run(&[&["pack", "--force"][..], args, &[&image]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    image
}

fn stat(image: &str, path: &str) -> Value {
    serde_json::from_slice(&stdout(&["stat", "--json", image, path])).unwrap()
}

fn access(image: &str, path: &str) -> (u64, u64, String) {
    let stat = stat(image, path);
    let mode = stat["mode"].as_str().map_or_else(|| stat["mode"].to_string(), str::to_owned);
    (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap(), mode)
}

#[test]
fn a_manifest_is_packed_with_contents_below_a_root() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let manifest = scratch.path("manifest");
    let text = "#mtree\n. type=dir uid=1 gid=2\n./bin type=dir\n./bin/a\\040b type=file contents=bin/ping size=3\n";
    fs::write(&manifest, text).unwrap();
    let image = pack(&scratch, &["--root", &root, &manifest]);
    assert_eq!(stdout(&["cat", &image, "bin/a b"]), b"elf");
    assert_eq!((access(&image, "/").0, access(&image, "/").1), (1, 2));
    fails(&["pack", "--force", &manifest, &image], 1, "line 4: its contents are not in the manifest");
    fails(&["pack", "--force", "--root", &root, &root, &image], 2, "only an mtree manifest");
    // Without the signature, only its name makes a file a manifest.
    fs::write(&manifest, ". type=dir\nd type=dir\n").unwrap();
    fails(&["pack", "--force", &manifest, &image], 2, "not a directory, archive or image");
    assert_eq!(stdout(&["ls", &pack(&scratch, &["--from", "mtree", &manifest])]), b"d\n");
    fs::write(&manifest, ". type=dir\nd type=door\n").unwrap();
    fails(&["pack", "--force", "--from", "mtree", &manifest, &image], 1, "manifest, line 2: type `door`");
}

#[test]
fn definitions_and_lists_change_what_is_packed() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let (pseudo, table, list) = (scratch.path("pseudo"), scratch.path("table"), scratch.path("list"));
    fs::write(&pseudo, "dev/log I 5 600 7 8 s\nbin/ping m 4755 1 1\n").unwrap();
    fs::write(&table, "/dev/null c 666 0 5 1 3 - - -\n").unwrap();
    let dev = scratch.path("dev");
    fs::write(&dev, "dev d 755 0 0\n").unwrap();
    let edits = ["--all-root", "--edit", &format!("pseudo:{dev}"), "--edit", &format!("pseudo:{pseudo}"), &root];
    let image = pack(&scratch, &edits);
    assert_eq!((access(&image, "dev/log").0, access(&image, "bin/ping").1), (7, 1));
    fails(
        &["pack", "--force", "--edit", &format!("device-table:{table}"), &root, &image],
        1,
        "table, line 1: path `dev/null`",
    );
    fs::create_dir(format!("{root}/dev")).unwrap();
    let image = pack(&scratch, &["--edit", &format!("device-table:{table}"), &root]);
    assert_eq!(stat(&image, "dev/null")["type"], "character device");
    fs::write(&list, " 0 0 755\nsystem/bin 0 2000 751\nsystem/bin/ping 0 2000 750 capabilities=0x2000\ndev 0 0 700\n")
        .unwrap();
    let of_list = ["--edit", &format!("fs-config:{list}"), "--mount-point", "/system", &root];
    let listed = stat(&pack(&scratch, &of_list), "bin/ping");
    assert_eq!((&listed["gid"], listed["xattrs"].as_array().unwrap().len()), (&2000.into(), 1));
    fails(&["pack", "--force", "--edit", &format!("fs-config:{list}"), &root, &image], 1, "bin: not in ");
    fs::write(&pseudo, "x f 644 0 0 id\n").unwrap();
    fails(&["pack", "--force", "--edit", &format!("pseudo:{pseudo}"), &root, &image], 2, "pseudo, line 1: type `f`");
    fails(&["pack", "--force", "--edit", &format!("product-out:{root}"), &root, &image], 1, "fs_config_files");
    // mkfs.erofs does the same.
    let mkfs = scratch.path("mkfs.erofs");
    symlink(env!("CARGO_BIN_EXE_kiln"), &mkfs).unwrap();
    let config = format!("--fs-config-file={list}");
    let made =
        Command::new(&mkfs).args([&config, "--mount-point=/system", "--product-out=/none", &image, &root]).output();
    let made = made.unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert_eq!(stat(&image, "bin/ping")["gid"], 2000);
}
