//! `dump.erofs`. The expected outputs are in the files beside this one, which were compared with those of the
//! original; `KILN_BLESS=1` rewrites them.

use super::{Names, arguments, images};
use crate::common::{golden, stdout};
use std::fs;
use std::path::Path;

/// Compares a text with `dropin/FILE`.
fn is_as_reviewed(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/dropin").join(file);
    if std::env::var_os("KILN_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    for (line, reviewed) in text.lines().zip(expected.lines()) {
        assert_eq!(line, reviewed, "{}: KILN_BLESS=1 accepts the change", path.display());
    }
    assert!(text == expected, "{}: KILN_BLESS=1 accepts the change", path.display());
}

#[test]
fn superblocks_are_shown_as_reviewed() {
    let names = Names::new();
    let mut all = String::new();
    for name in images() {
        let args = arguments(&name);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        all += &format!("== {name}\n{}", names.stdout("dump.erofs", &args));
    }
    is_as_reviewed("superblocks.txt", &all);
    let udev = names.stdout("dump.erofs", &["--blkid-udev", &golden("lz4.erofs")]);
    let nil = "00000000-0000-0000-0000-000000000000";
    let keys = format!("ID_FS_UUID={nil}\nID_FS_UUID_ENC={nil}\nID_FS_TYPE=erofs\nID_FS_USAGE=filesystem\n");
    assert_eq!(udev, keys);
}

#[test]
fn inodes_are_shown_as_reviewed() {
    let names = Names::new();
    let mut all = String::new();
    for (name, args) in [
        ("lz4", &["--path=/big/mixed", "-e"][..]),
        ("lz4-frag", &["--path=/big/mixed", "-e"]),
        ("lz4-tail", &["--path=/dup/shifted", "-e"]),
        ("48bit-zstd", &["--path=/big/mixed", "-e"]),
        ("chunk-map-64k", &["--path=/sparse", "-e"]),
        ("blobdev", &["--path=/dup/shifted", "-e"]),
        ("inline", &["--path=/big/text", "-e"]),
        ("inline", &["--nid=44", "--ls"]),
        ("lz4-allfrag", &["--nid=3269"]), // the packed inode
        ("lz4", &["--path=/special", "-e", "--ls"]),
        ("lz4", &["--path=/special/chr"]),
        ("xattrs", &["--path=/x/f00"]),
    ] {
        let image = arguments(name);
        let args = [args, &image.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        let arguments = args.iter().filter(|arg| !arg.contains("golden")).copied().collect::<Vec<_>>().join(" ");
        all += &format!("== {name} {arguments}\n{}", names.stdout("dump.erofs", &args));
    }
    is_as_reviewed("inodes.txt", &all);
    let cat = names.run("dump.erofs", &["--cat", "--path=/big/text", &golden("lz4.erofs")]);
    assert!(cat.stdout == stdout(&["cat", &golden("lz4.erofs"), "big/text"]));
}

#[test]
fn statistics_are_shown_as_reviewed() {
    let names = Names::new();
    is_as_reviewed("statistics.txt", &names.stdout("dump.erofs", &["-S", &golden("lz4-dedupe-frag-tail.erofs")]));
}
