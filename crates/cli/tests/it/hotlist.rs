//! Hot lists: `kiln hotlist`, `kiln pack --order`, `kiln preload`, `kiln mount --preload`.

use crate::common::{Scratch, fails, golden, json, kiln, run, skip, stderr, stdout, text};
use crate::mount::{Place, foreground, has_fuse};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;

const FIRST: &str =
    "#kiln-hotlist 1\n0+0\t3\tlib\n0+4096\t10\tlib/c.so\n8192+100\t25\tlib/c.so\n0+7\t1500000\tetc/a\\011b\n";
const SECOND: &str = "#kiln-hotlist 1\n0+0\t300\tlib\n2048+4096\t900\tlib/c.so\n0+5\t901\tnew\n";

/// Writes both lists to files.
fn lists(scratch: &Scratch) -> (String, String) {
    let (first, second) = (scratch.path("first.list"), scratch.path("second.list"));
    fs::write(&first, FIRST).unwrap();
    fs::write(&second, SECOND).unwrap();
    (first, second)
}

#[test]
fn recordings_merge_into_one() {
    let scratch = Scratch::new();
    let (first, second) = lists(&scratch);
    let merged = "#kiln-hotlist 1\n0+0\t3\tlib\n0+4096\t10\tlib/c.so\n4096+2048\t900\tlib/c.so\n\
                  8192+100\t25\tlib/c.so\n0+5\t901\tnew\n0+7\t1500000\tetc/a\\011b\n";
    assert_eq!(String::from_utf8(stdout(&["hotlist", "merge", &first, &second, "-o", "-"])).unwrap(), merged);
    let out = scratch.path("out.list");
    stdout(&["hotlist", "merge", &second, &first, "-o", &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), merged);
    fails(&["hotlist", "merge", &first, "-o", &out], 1, "out.list: exists already");
    fails(&["hotlist", "merge", &first, "--force", "-o", &first], 2, "is the list");
    assert_eq!(fs::read_to_string(&first).unwrap(), FIRST);
    stdout(&["hotlist", "merge", &first, "--force", "--output", &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), FIRST);
    let bad = scratch.path("bad.list");
    for (lines, words) in [
        ("0+1\t2\t../x\n", "bad.list, line 2: path `../x`: `..` has no meaning here"),
        ("0+18446744073709551616\t2\tx\n", "bad.list, line 2: length `18446744073709551616`: use a decimal number"),
        ("18446744073709551615+1\t2\tx\n", "bad.list, line 2: range `18446744073709551615+1`: it ends behind"),
    ] {
        fs::write(&bad, format!("#kiln-hotlist 1\n{lines}")).unwrap();
        fails(&["hotlist", "merge", &first, &bad, "-o", &scratch.path("none")], 2, words);
        fails(&["pack", "--order", &bad, &scratch.path(""), &scratch.path("none")], 2, words);
        fails(&["preload", &scratch.path(""), &bad], 2, words);
    }
    assert!(!fs::exists(scratch.path("none")).unwrap());
    fails(&["hotlist", "merge", "/dev/zero", "-o", "-"], 2, "/dev/zero: no list is longer than 268435456 bytes");
}

#[test]
fn a_list_is_counted() {
    let scratch = Scratch::new();
    let (first, _) = lists(&scratch);
    let told = String::from_utf8(stdout(&["hotlist", "show", &first])).unwrap();
    assert_eq!(
        told,
        "files     2\nranges    3\nbytes     4203 (4.1 KiB)\nmetadata  1 inodes and directories\nlast      1.500000 s\n"
    );
    let shown = json(&stdout(&["hotlist", "show", "--json", &first]));
    let field = |name: &str| shown[name].as_u64().unwrap();
    assert_eq!(["files", "ranges", "bytes", "metadata_entries", "last_micros"].map(field), [2, 3, 4203, 1, 1_500_000]);
    assert_eq!(crate::json::undocumented(&shown), [""; 0]);
    fs::write(&first, "usr/bin/ls\n").unwrap();
    fails(&["hotlist", "show", &first], 2, "first.list, line 1: first line `usr/bin/ls`: a hot list begins with");
}

#[test]
fn lists_are_compared_as_diff_does() {
    let scratch = Scratch::new();
    let (first, second) = lists(&scratch);
    let output = run(&["hotlist", "diff", &first, &second]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stdout).unwrap();
    let expected = "-0+2048\t10\tlib/c.so\n-8192+100\t25\tlib/c.so\n-0+7\t1500000\tetc/a\\011b\n\
                    +4096+2048\t900\tlib/c.so\n+0+5\t901\tnew\n";
    assert_eq!(told, expected);
    let document = json(&run(&["hotlist", "diff", "--json", &first, &second]).stdout);
    assert_eq!((&document["same"], &document["only_b"][1]["path"]), (&false.into(), &"new".into()));
    assert_eq!((&document["only_a"][0]["offset"], &document["only_a"][0]["bytes"]), (&0.into(), &2048.into()));
    assert_eq!(crate::json::undocumented(&document), [""; 0]);
    // The order is not compared.
    fs::write(&second, "#kiln-hotlist 1\n0+7\t1\tetc/a\tb\n0+0\t1\tlib\n8192+100\t3\tlib/c.so\n0+4096\t3\tlib/c.so\n")
        .unwrap();
    assert_eq!(run(&["hotlist", "diff", &first, &second]).status.code(), Some(0));
    fails(&["hotlist", "diff", &first, &scratch.path("gone")], 2, "gone: cannot read");
}

#[test]
fn data_lies_in_the_order_of_a_hot_list() {
    let scratch = Scratch::new();
    let (root, image, list) = (scratch.path("src"), scratch.path("image"), scratch.path("list"));
    fs::create_dir_all(format!("{root}/dir")).unwrap();
    let files = ["a", "b", "c", "dir/d"];
    for (seed, name) in (0..).zip(files) {
        fs::write(format!("{root}/{name}"), text(seed, 100_000)).unwrap();
    }
    // The inode of `a` was read, but not its data.
    let hot = "#kiln-hotlist 1\n0+0\t1\ta\n0+4096\t2\tdir/d\n0+9\t3\tgone\n4096+4096\t4\tc\n0+9\t5\tdir/d\n0+1\t6\tb\n";
    fs::write(&list, hot).unwrap();
    let output = run(&["pack", "--order", &list, &root, &image]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 paths of --order are not in the image: gone"), "{}", stderr(&output));
    let place = |name: &&str| {
        let stat: Value = serde_json::from_slice(&stdout(&["stat", "--json", "--extents", &image, name])).unwrap();
        stat["extents"][0]["address"].as_u64().unwrap_or_else(|| panic!("{stat}"))
    };
    let mut by_place = files;
    by_place.sort_by_key(place);
    assert_eq!(by_place, ["dir/d", "c", "b", "a"]);
    assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
    // The plain list of these files gives the same places of data; the hot list from standard input, the same bytes.
    let plain = scratch.path("plain");
    fs::write(&list, "dir/d\ngone\nc\nb\n").unwrap();
    stdout(&["pack", "-q", "--order", &list, &root, &image, "--force"]);
    by_place.sort_by_key(place);
    assert_eq!(by_place, ["dir/d", "c", "b", "a"]);
    fs::write(&list, hot).unwrap();
    stdout(&["pack", "-q", "--order", &list, &root, &plain]);
    let mut child =
        kiln().args(["pack", "-q", "--force", "--order", "-", &root, &image]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(hot.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(fs::read(&plain).unwrap() == fs::read(&image).unwrap());
}

/// Returns the bytes of contents that the server of the mount `dir` was asked for.
fn served(dir: &str) -> u64 {
    // A request is counted when it is done, just after its answer.
    std::thread::sleep(std::time::Duration::from_millis(200));
    json(&stdout(&["stats", "--json", dir]))["served_bytes"].as_u64().unwrap()
}

#[test]
fn mounts_are_read_ahead() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let (dir, list) = (scratch.path("mnt"), scratch.path("list"));
    fs::create_dir(&dir).unwrap();
    let len = stdout(&["cat", &image, "big/text"]).len() as u64;
    fs::write(
        &list,
        "#kiln-hotlist 1\n0+0\t1\t.\n0+0\t2\tbig\n0+4096\t3\tbig/text\n65536+9223372036854710271\t4\tbig/text\n",
    )
    .unwrap();
    let place = Place(&dir);
    let (mut child, _) = foreground(&["--prefetch=off", "--log", &scratch.path("log"), &image, &dir]);
    for args in [&["--max", "4k"][..], &["--wait"], &[]] {
        let output = run(&[&["preload", "--json"], args, &[&dir, &list]].concat());
        let done = json(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let bytes = if args.len() == 2 { 4096 } else { 4096 + len - 65536 };
        assert_eq!((&done["inodes"], &done["bytes"]), (&2.into(), &bytes.into()), "{done}");
        assert_eq!(done["left_out_bytes"], 4096 + len - 65536 - bytes);
        assert_eq!(crate::json::undocumented(&done), [""; 0]);
    }
    // Data that was read ahead is not requested again.
    let before = served(&dir);
    assert!(before >= 4096 + len - 65536, "{before}");
    let text = fs::read(format!("{dir}/big/text")).unwrap();
    assert!(text == stdout(&["cat", &image, "big/text"]));
    assert!(served(&dir) <= len + 65536, "{}", served(&dir));
    // Plain lists work, too; missing files are reported, and the exit code shows it.
    fs::write(&list, "/big/text\nmissing\nbig\n").unwrap();
    let output = run(&["preload", &dir, &list]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("missing: not preloaded: No such file")
            && told.contains("big: not preloaded: not a regular file")
    );
    assert!(told.contains("0 inodes") && told.contains("of files being read"), "{told}");
    fails(&["preload", &scratch.path("gone"), &list], 1, "gone: cannot open");
    drop(place);
    assert!(child.wait().unwrap().success());
}

#[test]
fn mount_preloads_ranges_of_a_hot_list() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let (dir, list) = (scratch.path("mnt"), scratch.path("list"));
    fs::create_dir(&dir).unwrap();
    fs::write(&list, "#kiln-hotlist 1\n0+0\t1\tbig\n0+4096\t3\tbig/text\n0+4096\t3\tno\\\n").unwrap();
    fails(&["mount", "--preload", &list, &image, &dir], 2, "list, line 4: path `no\\\\`: three octal digits");
    fs::write(&list, "#kiln-hotlist 1\n0+0\t1\tbig\n0+4096\t3\tbig/text\n0+4096\t3\tno\n").unwrap();
    let _place = Place(&dir);
    let output = run(&["mount", "--preload", &list, &image, &dir]);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    if told.contains("by the kernel") {
        assert!(told.contains("no: not preloaded: No such file"), "{told}");
    }
    assert!(fs::read(format!("{dir}/big/text")).unwrap() == stdout(&["cat", &image, "big/text"]));
}
