//! `kiln diff`, with the exit codes of diff(1): 0 same, 1 different, 2 trouble.

use crate::common::{Scratch, fails, golden, kiln, run, stderr, stdout, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

/// Makes a directory `a` with a bit of everything, its image `a.erofs`, and `b`, a copy.
fn trees() -> Scratch {
    let scratch = Scratch::new();
    for name in ["a", "b"] {
        make(Path::new(&scratch.path(name)));
    }
    stdout(&["pack", "--quiet", &scratch.path("a"), &scratch.path("a.erofs")]);
    scratch
}

fn make(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("dir/text"), text(1, 300_000)).unwrap();
    fs::write(root.join("dir/sub/same"), text(2, 5000)).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd\xff")), "odd").unwrap();
    fs::hard_link(root.join("dir/text"), root.join("hard")).unwrap();
    symlink("dir/text", root.join("link")).unwrap();
    settle(root);
}

/// Sets one time for all files.
fn settle(path: &Path) {
    let kind = path.symlink_metadata().unwrap().file_type();
    if kind.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| settle(&entry.unwrap().path()));
    }
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    if kind.is_symlink() {
        let time = rustix::fs::Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    } else {
        fs::File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

/// Changes some of `b`.
fn edit(root: &Path) {
    let mut bytes = text(1, 300_000);
    bytes[123_456] ^= 1;
    fs::write(root.join("dir/text"), bytes).unwrap();
    fs::set_permissions(root.join("dir/sub/same"), Permissions::from_mode(0o600)).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd\xff")), "odder").unwrap();
    fs::remove_file(root.join("hard")).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("dir", root.join("link")).unwrap();
    fs::create_dir(root.join("new")).unwrap();
    fs::write(root.join("new/file"), "new").unwrap();
    settle(root);
}

const EDITED: &[u8] = b"\
~ dir/sub/same (mode 0644 -> 0600)
~ dir/text (contents from byte 123456, links 2 -> 1)
- hard
~ link (target dir/text -> dir)
+ new
+ new/file
~ odd\xff (size 3 -> 5)
";

fn code_and_stdout(args: &[&str]) -> (Option<i32>, Vec<u8>) {
    let output = run(args);
    (output.status.code(), output.stdout)
}

#[test]
fn an_image_is_the_directory_it_was_made_from() {
    let scratch = trees();
    let (dir, image, copy) = (scratch.path("a"), scratch.path("a.erofs"), scratch.path("b"));
    for (a, b) in [(&dir, &image), (&image, &dir), (&image, &copy), (&image, &image), (&dir, &copy)] {
        let output = run(&["diff", a, b]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b""[..]), "{}", stderr(&output));
        assert_eq!(stderr(&output), "kiln: 0 added, 0 removed, 0 changed, 8 the same; 297.9 KiB compared\n");
    }
    assert_eq!(run(&["diff", "--quiet", &dir, &image]).stderr, b"");
}

#[test]
fn differences_are_told_by_path() {
    let scratch = trees();
    edit(Path::new(&scratch.path("b")));
    stdout(&["pack", "--quiet", "-z", "lz4", &scratch.path("b"), &scratch.path("b.erofs")]);
    for a in ["a", "a.erofs"].map(|name| scratch.path(name)) {
        for b in ["b", "b.erofs"].map(|name| scratch.path(name)) {
            for threads in ["1", "3"] {
                let (code, lines) = code_and_stdout(&["diff", "--threads", threads, &a, &b]);
                assert_eq!((code, lines.escape_ascii().to_string()), (Some(1), EDITED.escape_ascii().to_string()));
            }
        }
    }
    let (a, b) = (scratch.path("a.erofs"), scratch.path("b"));
    let output = run(&["diff", &a, &b]);
    assert_eq!(stderr(&output), "kiln: 2 added, 1 removed, 4 changed, 3 the same; 297.9 KiB compared\n");
    let brief = code_and_stdout(&["diff", "--brief", &a, &b]);
    assert_eq!(brief, (Some(1), b"~ dir/sub/same\n~ dir/text\n- hard\n~ link\n+ new\n~ odd\xff\n".to_vec()));
    let part = code_and_stdout(&["diff", &a, &b, "/dir/sub"]);
    assert_eq!(part, (Some(1), b"~ dir/sub/same (mode 0644 -> 0600)\n".to_vec()));
    let some = code_and_stdout(&["diff", "--ignore", "mode,links", "--contents", "size", &a, &b, "dir"]);
    assert_eq!(some, (Some(0), Vec::new()));
    let quiet = run(&["diff", "-q", &a, &b]);
    assert_eq!((quiet.status.code(), quiet.stdout.len(), quiet.stderr.len()), (Some(1), 0, 0));
}

#[test]
fn times_and_attributes() {
    let scratch = trees();
    let (a, b) = (scratch.path("a.erofs"), scratch.path("b"));
    let file = fs::File::open(scratch.path("b/dir/text")).unwrap();
    file.set_times(FileTimes::new().set_modified(UNIX_EPOCH + Duration::new(1, 5))).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::fsetxattr(&file, "user.note", b"hello", flags) {
        return crate::common::skip(&format!("extended attributes: {error}"));
    }
    let (_, lines) = code_and_stdout(&["diff", &a, &b]);
    let expected = "(mtime 2023-11-14T22:13:20.000000000Z -> 1970-01-01T00:00:01.000000005Z, xattr user.note added)\n";
    assert_eq!(String::from_utf8(lines).unwrap(), format!("~ dir/text {expected}~ hard {expected}"));
    assert_eq!(code_and_stdout(&["diff", "--ignore", "mtime,xattrs", &a, &b]).0, Some(0));
}

#[test]
fn golden_images_with_devices_and_at_an_offset() {
    let scratch = Scratch::new();
    let (flat, blob) = (golden("flat.erofs"), golden("blobdev.blob"));
    let shifted = scratch.path("shifted");
    fs::write(&shifted, [vec![0xEE; 8192], fs::read(golden("lz4.erofs")).unwrap()].concat()).unwrap();
    let same = ["diff", "--device-b", &blob, &flat, &golden("blobdev.erofs")];
    assert_eq!(code_and_stdout(&same), (Some(0), Vec::new()));
    assert_eq!(code_and_stdout(&["diff", "--offset-b", "8k", &flat, &shifted]), (Some(0), Vec::new()));
    let (code, lines) = code_and_stdout(&["diff", &flat, &golden("xattrs.erofs"), "x"]);
    assert_eq!((code, lines.starts_with(b"+ x\n+ x/")), (Some(1), true));
    fails(&["diff", "--offset-a", "4k", "/", &flat], 2, "/: devices and an offset do not apply to a directory");
}

#[test]
fn trouble_is_2() {
    let scratch = trees();
    let (a, image) = (scratch.path("a"), scratch.path("a.erofs"));
    fails(&["diff", &a, &scratch.path("missing")], 2, "missing");
    fails(&["diff", &a, &scratch.path("b/dir/text")], 2, "text");
    fails(&["diff", &a], 2, "required");
    fails(&["diff", &a, &image, "nothing/here"], 2, "nothing/here: no such file or directory on either side");
    fails(&["diff", "--json", "-q", &a, &image], 2, "cannot be used with");
}

/// Makes a copy of `lz4.erofs` with one damaged file.
fn damaged(scratch: &Scratch) -> String {
    let path = scratch.path("damaged");
    let mut bytes = fs::read(golden("lz4.erofs")).unwrap();
    let document = stdout(&["stat", "--json", &golden("lz4.erofs"), "big/text"]);
    let document: Value = serde_json::from_slice(&document).unwrap();
    // The compressed index beside the inode: no algorithm has the number 15.
    let inode = document["nid"].as_u64().unwrap() as usize * 32;
    let meta = bytes[1024 + 40..1024 + 44].try_into().unwrap();
    let inode = inode + u32::from_le_bytes(meta) as usize * 4096;
    let header = (inode + if bytes[inode] & 1 == 0 { 32 } else { 64 }).next_multiple_of(8);
    bytes[header + 6] = 0xFF;
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_compared() {
    let scratch = Scratch::new();
    let bad = damaged(&scratch);
    let output = run(&["diff", &golden("flat.erofs"), &bad]);
    let message = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
    assert!(message.contains(&format!("kiln: {bad}: big/text: unsupported image: ")), "{message}");
    assert!(message.contains("incomplete: 1 unreadable"), "{message}");
    let output = run(&["diff", "--json", &bad, &golden("flat.erofs")]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let change = &document["changes"][0];
    assert_eq!(
        (&change["path"], &change["change"], &change["side"]),
        (&"big/text".into(), &"unreadable".into(), &"a".into())
    );
    assert_eq!(document["unreadable"], 1);
}

#[test]
fn json_says_the_same() {
    let scratch = trees();
    edit(Path::new(&scratch.path("b")));
    let output = run(&["diff", "--json", &scratch.path("a.erofs"), &scratch.path("b")]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 2);
    let count = |name: &str| document[name].as_u64().unwrap();
    assert_eq!(["added", "removed", "changed", "unreadable", "same"].map(count), [2, 1, 4, 0, 3]);
    let changes = document["changes"].as_array().unwrap();
    let described: Vec<_> = changes.iter().map(|change| (change["path"].clone(), change["change"].clone())).collect();
    let lines = String::from_utf8_lossy(EDITED);
    assert_eq!(described.len(), lines.lines().count());
    for ((path, change), line) in described.iter().zip(lines.lines()) {
        let sign = match change.as_str().unwrap() {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        assert!(line.starts_with(&format!("{sign} {}", path.as_str().unwrap())), "{line}: {path} {change}");
    }
    assert_eq!(changes[1]["differences"][0], serde_json::json!({"what": "contents", "offset": 123_456}));
    assert_eq!(changes[1]["differences"][1], serde_json::json!({"what": "links", "a": 2, "b": 1}));
    assert_eq!((&changes[4]["type"], changes[6]["path_b64"].as_str()), (&"directory".into(), Some("b2Rk/w==")));
    let documented = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("JSON.md")).unwrap();
    let documented: BTreeSet<&str> = documented.split('`').skip(1).step_by(2).collect();
    let mut found = BTreeSet::new();
    fields(&document, &mut found);
    assert!(found.iter().all(|name| documented.contains(&**name)), "{found:?}");
}

/// Collects the names of all fields in `value`.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            fields(value, found);
        }),
        Value::Array(elements) => elements.iter().for_each(|element| fields(element, found)),
        _ => {}
    }
}

#[test]
fn a_closed_pipe_does_not_make_trees_the_same() {
    let scratch = trees();
    edit(Path::new(&scratch.path("b")));
    for args in [&["diff"][..], &["diff", "--json"]] {
        let mut command = kiln();
        command.args(args).args([scratch.path("a"), scratch.path("b")]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}
