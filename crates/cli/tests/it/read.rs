//! The commands that read an image.

use crate::common::{Scratch, fails, golden, kiln, run, stderr, stdout};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

fn lines(args: &[&str]) -> Vec<String> {
    String::from_utf8_lossy(&stdout(args)).lines().map(String::from).collect()
}

fn json(args: &[&str]) -> Value {
    let value: Value = serde_json::from_slice(&stdout(args)).unwrap();
    assert_eq!(value["schema"], 2);
    value
}

/// Progress is printed as lines, for standard error is not a terminal here.
#[test]
fn progress_has_a_total() {
    let scratch = Scratch::new();
    let (image, out) = (golden("lz4.erofs"), scratch.path("out"));
    let one = scratch.path("one");
    for args in [
        &["check", "--progress", &image][..],
        &["extract", "--progress", &image, &out],
        &["extract", "--progress", &image, &one, "big/t*"],
        &["diff", "--progress", &image, &out],
    ] {
        let output = run(args);
        let told = crate::common::stderr(&output);
        let line =
            told.lines().find(|line| line.starts_with("kiln: 100%, ")).unwrap_or_else(|| panic!("{args:?}: {told}"));
        let (amount, rate) = line["kiln: 100%, ".len()..].split_once(", ").unwrap();
        let (done, total) = amount.split_once(" of ").unwrap();
        assert!(rate.ends_with("/s"), "{line}");
        assert_eq!(done, total, "{args:?}");
        let quiet: Vec<_> = args.iter().map(|arg| if *arg == "--progress" { "--no-progress" } else { arg }).collect();
        if args[0] != "extract" {
            assert!(!crate::common::stderr(&run(&quiet)).contains('%'), "{args:?}");
        }
        if args.contains(&"big/t*") {
            assert_eq!(total, "148.4 KiB", "only what is selected");
        }
    }
}

#[test]
fn ls_lists_in_the_order_of_the_image() {
    let image = golden("inline.erofs");
    assert_eq!(lines(&["ls", &image, "big"]), ["mixed", "text", "zeros"]);
    assert_eq!(lines(&["ls", &image, "/big/"]), ["mixed", "text", "zeros"]);
    assert_eq!(
        lines(&["ls", "-la", &image, "big/text"]),
        ["-rw-r--r--   1     0     0     151914 2023-11-14T22:13:20Z big/text"]
    );
    assert_eq!(lines(&["ls", "-R", &image, "big"]), ["big/mixed", "big/text", "big/zeros"]);
    assert!(lines(&["ls", "-R", &image]).contains(&"big/text".into()));
    assert_eq!(
        lines(&["ls", "-l", &image, "big"])[0],
        "-rw-r--r--   1     0     0     120841 2023-11-14T22:13:20Z mixed"
    );
}

#[test]
fn ls_shows_every_kind_of_file() {
    let listing = lines(&["ls", "-lR", &golden("inline.erofs")]).join("\n");
    let kinds: Vec<char> = listing.lines().filter_map(|line| line.chars().next()).collect();
    for kind in ['c', 'b', 'p', 's', 'l'] {
        assert!(kinds.contains(&kind), "no {kind} in\n{listing}");
    }
    assert!(listing.lines().filter(|line| line.starts_with('l')).all(|line| line.contains(" -> ")));
    assert!(listing.lines().filter(|line| line.starts_with(['c', 'b'])).all(|line| line.contains(", ")));
}

#[test]
fn names_are_raw_in_a_pipe_and_exact_in_json() {
    let image = golden("inline.erofs");
    let raw = stdout(&["ls", &image, "names"]);
    let odd: Vec<&[u8]> = raw.split(|&b| b == b'\n').filter(|name| str::from_utf8(name).is_err()).collect();
    assert!(!odd.is_empty());
    let listed = json(&["ls", "--json", &image, "names"]);
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.iter().filter(|entry| entry.get("path_b64").is_some()).count(), odd.len());
    // A name that is not UTF-8 works.
    let path = [b"names/", odd[0]].concat();
    let output = run(&[OsStr::new("stat"), OsStr::new(&image), OsStr::from_bytes(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn json_says_what_the_image_says() {
    let entry = json(&["stat", "--json", &golden("xattrs.erofs"), "x/f01"]);
    assert_eq!((&entry["path"], &entry["type"], &entry["mode"]), (&"x/f01".into(), &"file".into(), &"0644".into()));
    assert_eq!(
        (&entry["size"], &entry["mtime"], &entry["mtime_nsec"]),
        (&50.into(), &1_700_000_000.into(), &123_456_789.into())
    );
    assert!(entry["xattrs"].as_array().unwrap().iter().any(|x| x["name"] == "user.one.two.three" && x["value"] == "1"));
    let info = json(&["info", "--json", &golden("zstd-1m-frag.erofs")]);
    assert_eq!((&info["oldest_kernel"], &info["algorithms"][0]["name"]), (&"6.10".into(), &"zstd".into()));
    let report = json(&["check", "--json", &golden("zstd.erofs")]);
    assert_eq!(report["problem_count"], 0);
    let scratch = Scratch::new();
    let report = json(&["extract", "--json", &golden("zstd.erofs"), &scratch.path("out"), "big"]);
    assert_eq!((&report["files"], &report["directories"]), (&3.into(), &1.into()));
}

#[test]
fn stat_and_info_are_readable() {
    let text = lines(&["stat", &golden("xattrs.erofs"), "x/f01"]).join("\n");
    assert!(text.contains("Path: /x/f01") && text.contains("0644 (-rw-r--r--)"), "{text}");
    assert!(text.contains("2023-11-14T22:13:20.123456789Z") && text.contains("user.one.two.three = \"1\""), "{text}");
    let text = lines(&["info", &golden("zstd-1m-frag.erofs")]).join("\n");
    assert!(text.contains("zstd (Linux 6.10)") && text.contains("Oldest kernel: Linux 6.10"), "{text}");
}

#[test]
fn tree_draws_branches() {
    assert_eq!(
        lines(&["tree", &golden("inline.erofs"), "big"]),
        ["big", "├── mixed", "├── text", "└── zeros", "", "0 directories, 3 files"]
    );
    let drawn = lines(&["tree", "-L", "2", &golden("inline.erofs"), "deep"]);
    assert_eq!(drawn[..3], ["deep", "├── d00", "│   └── d01"], "{drawn:?}");
    assert!(!drawn.iter().any(|line| line.contains("d02")));
}

#[test]
fn cat_joins_files() {
    let (image, scratch) = (golden("lz4.erofs"), Scratch::new());
    stdout(&["extract", "--quiet", &image, &scratch.path("out"), "big"]);
    let joined = stdout(&["cat", &image, "big/text", "/big/zeros"]);
    assert!(joined == [fs::read(scratch.path("out/big/text")).unwrap(), vec![0; 90001]].concat());
    fails(&["cat", &image, "big"], 1, "big: is a directory");
    fails(&["cat", &image, "big/nothing"], 1, "big/nothing: no such file");
}

#[test]
fn extra_devices_are_named() {
    let (image, blob) = (golden("blobdev.erofs"), golden("blobdev.blob"));
    let text = stdout(&["cat", "--device", &blob, &image, "big/text"]);
    assert!(text == stdout(&["cat", &golden("flat.erofs"), "big/text"]));
    fails(&["cat", "--device", &blob, "--device", &blob, &image, "big/text"], 1, "extra devices");
}

#[test]
fn extract_refuses_what_is_there() {
    let (image, scratch) = (golden("inline.erofs"), Scratch::new());
    let out = scratch.path("out");
    let first = run(&["extract", &image, &out, "big/*"]);
    assert_eq!((first.status.code(), stderr(&first).contains("3 files")), (Some(0), true));
    fails(&["extract", &image, &out, "big/*"], 1, "--into-existing");
    assert_eq!(run(&["extract", "--quiet", "--into-existing", &image, &out, "big/*"]).stderr, b"");
    fails(&["extract", "--into-existing", &image, &out, "nothing/*"], 1, "nothing/*: nothing in the image matches");
    fails(&["extract", "--into-existing", &image, &out, "../out"], 2, "..");
}

#[test]
fn check_answers_as_fsck() {
    let (image, scratch) = (golden("lz4.erofs"), Scratch::new());
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    fails(&["check", &scratch.path("missing")], 8, "missing");
    fails(&["check", "/"], 8, "/");
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024 + 16] ^= 1; // inos, which the checksum covers
    fs::write(scratch.path("flipped"), &bytes).unwrap();
    fails(&["check", &scratch.path("flipped")], 4, "checksum");
    fails(&["ls", &scratch.path("flipped")], 1, "checksum");
    fs::write(scratch.path("short"), &bytes[..bytes.len() / 2]).unwrap();
    fails(&["check", &scratch.path("short")], 4, "short");
    fs::write(scratch.path("text"), vec![b'x'; 10_000]).unwrap();
    fails(&["check", &scratch.path("text")], 4, "text");
}

/// The result of a check without problems, and the limits of it.
#[test]
fn check_says_what_it_has_proved() {
    let image = golden("zstd-1m-frag.erofs");
    let said = stderr(&run(&["check", &image]));
    let last = said.lines().last().unwrap();
    assert!(last.contains("metadata: consistent") && last.contains("checksum is right"), "{last}");
    let report = json(&["check", "--json", &image]);
    assert!(last.contains("only a hash tree covers names, too"), "{last}");
    assert!(last.contains("; contents: not verifiable: without digests"), "{last}");
    assert_eq!((&report["has_checksum"], &report["digested_bytes"]), (&true.into(), &0.into()));
}

#[test]
fn objects_of_composefs_are_named_and_skipped() {
    let (image, scratch) = (golden("composefs/image.erofs"), Scratch::new());
    assert_eq!(run(&["check", &image]).status.code(), Some(0));
    let stat = json(&["stat", "--json", &image, "big"]);
    let redirect = stat["xattrs"].as_array().unwrap().iter().find(|x| x["name"] == "trusted.overlay.redirect").unwrap();
    let object = redirect["value"].as_str().unwrap().strip_prefix('/').unwrap();
    let cat = run(&["cat", &image, "big", "small"]);
    assert_eq!((cat.status.code(), &*cat.stdout), (Some(3), &b"contents of a small file\n"[..]));
    assert!(stderr(&cat).contains(&format!("skipped: big: its contents are the composefs object {object}")));
    let out = scratch.path("out");
    let extracted = run(&["extract", &image, &out, "big", "small", "sub"]);
    assert_eq!(extracted.status.code(), Some(3), "{}", stderr(&extracted));
    assert!(stderr(&extracted).contains(object), "{}", stderr(&extracted));
    assert_eq!(crate::common::names(&out), ["small", "sub"]);
    assert_eq!(crate::common::names(format!("{out}/sub")), ["empty"]);
    assert_eq!(json(&["info", "--json", &image])["composefs"], true);
}

/// The message comes once, before anything else: metadata can be read then, contents cannot.
#[test]
fn missing_devices_are_told_first() {
    let (image, blob, scratch) = (golden("blobdev.erofs"), golden("blobdev.blob"), Scratch::new());
    let needs = format!("kiln: {image}: needs 1 extra device");
    for args in [
        &["ls", &image][..],
        &["tree", &image],
        &["stat", "--extents", &image, "big/text"],
        &["info", &image],
        &["info", "--stats", &image],
        &["du", &image],
        &["explain", &image, "big/text"],
    ] {
        let (output, whole) = (run(args), run(&[args, &["--device", &blob]].concat()));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(said.starts_with(&needs) && said.ends_with(": name it with --device\n"), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert_eq!((output.stdout == whole.stdout, stderr(&whole)), (true, String::new()), "{args:?}");
    }
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    for (args, code, option) in [
        (&["cat", &image, "big/text"][..], 1, "--device"),
        (&["check", &image], 8, "--device"),
        (&["extract", &image, &out], 1, "--device"),
        (&["diff", &image, &out], 2, "--device-a"),
        (&["diff", &out, &image], 2, "--device-b"),
        (&["mount", &image, &out], 1, "--device"),
        (&["mount", "--via", "kernel", &image, &out], 1, "--device"),
        (&["mount", "--via", "fuse", &image, &out], 1, "--device"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let (said, end) = (stderr(&output), format!(": name it with {option}\n"));
        assert!(said.starts_with(&needs) && said.ends_with(&end) && said.lines().count() == 1, "{args:?}: {said}");
    }
    assert_eq!(crate::common::names(&out), [""; 0]);
}

/// A tree with many directories, some of them deep, under `ulimit -n 32`.
#[test]
fn few_descriptors_are_enough() {
    let scratch = Scratch::new();
    let src = scratch.path("src");
    let deep = (0..60).map(|level| format!("d{level}")).collect::<Vec<_>>().join("/");
    fs::create_dir_all(format!("{src}/{deep}")).unwrap();
    fs::write(format!("{src}/{deep}/file"), crate::common::text(1, 3000)).unwrap();
    for dir in 0..300 {
        fs::create_dir_all(format!("{src}/wide/{dir}")).unwrap();
        fs::write(format!("{src}/wide/{dir}/file"), crate::common::text(dir, 5000)).unwrap();
    }
    for file in 0..8 {
        fs::write(format!("{src}/large{file}"), crate::common::text(file, 17 << 20)).unwrap();
    }
    let limited = |args: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 32 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kiln")]).args(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    };
    let (image, blob, out) = (scratch.path("image"), scratch.path("blob"), scratch.path("out"));
    limited(&["pack", "--preset", "fast", &src, &image]);
    limited(&["check", "--threads", "40", &image]);
    limited(&["extract", "--threads", "40", &image, &out]);
    limited(&["diff", "--threads", "40", &src, &out]);
    limited(&["diff", &image, &out]);
    let chunked = scratch.path("chunked");
    limited(&["pack", "--preset", "plain", "--layout", "chunk-size=64k", "--blob-device", &blob, &src, &chunked]);
    limited(&["check", "--threads", "40", "--device", &blob, &chunked]);
    limited(&["diff", "--threads", "40", "--device-a", &blob, &chunked, &src]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["cat", &golden("lz4.erofs"), "big/text"][..], &["ls", "-lR", &golden("lz4.erofs")]] {
        let mut child = kiln().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut message = String::new();
        child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*message), (Some(0), ""));
    }
}

#[test]
fn a_full_output_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = kiln().args(["ls", &golden("lz4.erofs")]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}
