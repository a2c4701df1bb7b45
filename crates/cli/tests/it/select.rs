//! `kiln pack`: selection of the parts of a directory that go into an image, and their metadata.

use crate::common::{Scratch, fails, kiln, run, skip, stderr, stdout, text};
use rustix::fs::{XattrFlags, lsetxattr};
use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Stdio;

/// Makes a tree of sources, build products, and a hard link.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    for dir in ["lib", "target/debug"] {
        fs::create_dir_all(format!("{root}/{dir}")).unwrap();
    }
    for file in ["main.c", "main.o", "lib/a.c", "lib/a.o", "lib/keep.o", "target/debug/main"] {
        fs::write(format!("{root}/{file}"), text(file.len() as u64, 5000)).unwrap();
        fs::set_permissions(format!("{root}/{file}"), fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::hard_link(format!("{root}/main.c"), format!("{root}/lib/linked.c")).unwrap();
    symlink("main.c", format!("{root}/link")).unwrap();
    root
}

/// Packs with `options`, on one thread and on several, and returns the image.
fn pack(scratch: &Scratch, root: &str, options: &[&str]) -> String {
    let (one, many) = (scratch.path("one.erofs"), scratch.path("many.erofs"));
    for (image, threads) in [(&one, "1"), (&many, "5")] {
        let output = run(&[&["pack", "--force", "--threads", threads][..], options, &[root, image]].concat());
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", stderr(&output));
    }
    assert!(fs::read(&one).unwrap() == fs::read(&many).unwrap(), "{options:?}: threads change nothing");
    assert_eq!(run(&["check", &one]).status.code(), Some(0));
    one
}

fn ls(image: &str) -> Vec<String> {
    let listing = String::from_utf8(stdout(&["ls", "-R", image])).unwrap();
    listing.lines().map(str::to_owned).collect()
}

fn stat(image: &str, path: &str) -> Value {
    serde_json::from_slice(&stdout(&["stat", "--json", image, path])).unwrap()
}

/// Returns attributes as `name=value`.
fn xattrs(stat: &Value) -> Vec<String> {
    let shown = |xattr: &Value| format!("{}={}", xattr["name"].as_str().unwrap(), xattr["value"].as_str().unwrap());
    stat["xattrs"].as_array().unwrap().iter().map(shown).collect()
}

#[test]
fn globs_files_and_expressions_leave_out() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let packed = |options: &[&str]| ls(&pack(&scratch, &root, options));
    let left = ["lib", "lib/a.c", "lib/keep.o", "lib/linked.c", "link", "main.c"];
    assert_eq!(packed(&["--exclude", "*.o", "--exclude", "!keep.o", "--exclude", "/target/"]), left);
    let rules = scratch.path("rules");
    fs::write(&rules, "# built\n*.o\ntarget\n!link\n").unwrap();
    assert_eq!(packed(&["--exclude", "!keep.o", "--exclude-from", &rules]), left, "arguments override files");
    assert_eq!(packed(&["--exclude-regex", r"^target$|(main|/a)\.o$"]), left);
    fs::write(format!("{root}/.kilnignore"), "*.o\n/target\n/.kilnignore\n").unwrap();
    fs::write(format!("{root}/lib/.kilnignore"), "!keep.o\n").unwrap();
    let with_file = ["lib", "lib/.kilnignore", "lib/a.c", "lib/keep.o", "lib/linked.c", "link", "main.c"];
    assert_eq!(packed(&["--ignore-file", ".kilnignore"]), with_file);
    assert_eq!(packed(&["--ignore-file", ".kilnignore", "--exclude", "lib"]), ["link", "main.c"]);
}

#[test]
fn a_list_comes_from_a_file_or_standard_input() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let list = scratch.path("list");
    fs::write(&list, "./lib/a.c\ntarget\n").unwrap();
    assert_eq!(ls(&pack(&scratch, &root, &["--from-list", &list])), ["lib", "lib/a.c", "target"]);
    let image = scratch.path("image");
    let mut child =
        kiln().args(["pack", "-q", "--from-list", "-", &root, &image]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"main.o\0lib/a.o\0").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ls(&image), ["lib", "lib/a.o", "main.o"]);
    fs::write(&list, "lib/none\n").unwrap();
    fails(&["pack", "--from-list", &list, &root, &scratch.path("none")], 1, "src/lib/none: ");
}

#[test]
fn owners_permissions_and_times_are_as_told() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let of = |options: &[&str], path: &str| {
        let stat = stat(&pack(&scratch, &root, options), path);
        [&stat["uid"], &stat["gid"]].map(|id| id.as_u64().unwrap())
    };
    let me = geteuid().as_raw();
    assert_eq!(of(&["--all-root"], "main.c"), [0, 0]);
    assert_eq!(of(&["--owner", "12:34", "--uid-offset", "5", "--gid-offset=-4"], "lib"), [17, 30]);
    let map = format!("500:{me}:1");
    assert_eq!(of(&["--uid-map", &map], "link")[0], 500);
    let options = ["--chmod", "D2755,F644,u+w", "--mtime", "-5", "--hard-dereference"];
    let image = pack(&scratch, &root, &options);
    let (file, dir) = (stat(&image, "main.c"), stat(&image, "lib"));
    assert_eq!((&file["mode"], &dir["mode"]), (&"0644".into(), &"2755".into()));
    assert_eq!((&file["mtime"], &file["mtime_nsec"], &file["nlink"]), (&(-5).into(), &0.into(), &1.into()));
    let clamped = stat(&pack(&scratch, &root, &["--mtime", "clamp:1000000000"]), "link");
    assert_eq!(clamped["mtime"], 1_000_000_000);
}

#[test]
fn ids_of_a_container_come_home() {
    if !geteuid().is_root() {
        return skip("changing owners needs root");
    }
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let chown_all = |uid: u32, path: &str| chown(format!("{root}/{path}"), Some(uid), Some(uid)).unwrap();
    for path in ["", "lib", "lib/a.c", "main.c", "lib/keep.o"] {
        chown_all(if path == "main.c" { 100_005 } else { 1000 }, path);
    }
    let options = ["--exclude", "*.o", "--exclude", "target", "--exclude", "link", "--uid-map", "0:1000:1"];
    let both = ["--uid-map", "1:100000:65536", "--gid-map", "0:1000:1", "--gid-map", "1:100000:65536"];
    let image = pack(&scratch, &root, &[&options[..], &both].concat());
    let (main, other) = (stat(&image, "main.c"), stat(&image, "lib/a.c"));
    assert_eq!((&main["uid"], &main["gid"], &other["uid"]), (&6.into(), &6.into(), &0.into()));
    let image = scratch.path("image");
    fails(&[&["pack"][..], &options, &[&root, &image]].concat(), 1, "uid 100005 is in no range of the map");
}

#[test]
fn attributes_and_labels_are_as_told() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for (name, value) in [("user.a", "1"), ("user.b", "2")] {
        if lsetxattr(format!("{root}/main.c"), name, value.as_bytes(), XattrFlags::empty()).is_err() {
            return skip("no extended attributes in the temporary directory");
        }
    }
    let of = |options: &[&str], path: &str| xattrs(&stat(&pack(&scratch, &root, options), path));
    let mine = |options: &[&str]| of(options, "main.c");
    assert_eq!(mine(&["--xattr-include", "user.*"]), ["user.a=1", "user.b=2"]);
    assert_eq!(mine(&["--xattr-include", "user.*", "--xattr-exclude", "*.a"]), ["user.b=2"]);
    assert_eq!(mine(&["--xattrs", "none", "--set-xattr", "user.c=0x4142"]), ["user.c=AB"]);
    assert!(of(&["--xattrs", "none", "--set-xattr", "user.c=1"], "link").is_empty());
    let contexts = scratch.path("file_contexts");
    fs::write(&contexts, "/sys(/.*)?\tu:object_r:sys:s0\n/sys/main\\.c -- u:object_r:main:s0\n").unwrap();
    let labelled = ["--xattrs", "none", "--edit", &format!("file-contexts:{contexts}"), "--mount-point", "/sys"];
    assert_eq!(of(&labelled, "main.c"), ["security.selinux=u:object_r:main:s0\0"]);
    assert_eq!(of(&labelled, "link"), ["security.selinux=u:object_r:sys:s0\0"]);
    assert!(of(&labelled[..4], "main.c").is_empty());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    let (root, image) = (tree(&scratch), scratch.path("image"));
    let bad = scratch.path("bad");
    fs::write(&bad, "a\n[\n").unwrap();
    for (options, code, words) in [
        (&["--exclude", "["][..], 2, "--exclude: glob `[`: unclosed ["),
        (&["--exclude-from", &bad], 2, "bad, line 2: glob `[`"),
        (&["--exclude-from", "/none/such"], 1, "/none/such: cannot read"),
        (&["--exclude-regex", "("], 2, "--exclude-regex: regular expression `(`: unclosed group"),
        (&["--ignore-file", "a/b"], 2, "no slash"),
        (&["--edit", &format!("file-contexts:{bad}")], 2, "bad, line 1: line `a`: expected 2 or 3 fields"),
        (&["--mount-point", "/x"], 2, "--edit"),
        (&["--mount-point", "/x", "--edit", "pseudo:x"], 2, "only for --edit file-contexts"),
        (&["--edit", "acl:x"], 2, "is no kind; use one of device-table:FILE"),
        (&["--layout", "frob"], 2, "`frob` is no key; keys: align=SIZE"),
        (&["--owner", "root"], 2, "UID:GID"),
        (&["--owner", "0:0", "--all-root"], 2, "cannot be used with"),
        (&["--all-root", "--gid-map", "0:0:1"], 2, "cannot be used with"),
        (&["--uid-map", "0:0"], 2, "INSIDE:OUTSIDE:COUNT"),
        (&["--uid-map", "0:5:9", "--uid-map", "9:6:1"], 2, "--uid-map: ranges `0:5:9 9:6:1`: they overlap"),
        (&["--chmod", "u+q"], 2, "only r, w, x"),
        (&["--mtime", "today"], 2, "clamp:SECS"),
        (&["--set-xattr", "comment=x"], 2, "starts with user."),
        (&["--xattr-include", "[[:x:]]"], 2, "--xattr-include: glob"),
        (&["--uid-offset=-1", "--all-root"], 1, "uid 0 with the offset -1"),
    ] {
        fails(&[&["pack"][..], options, &[&root, &image]].concat(), code, words);
    }
    assert_eq!(scratch.names(), ["bad", "src"]);
}
