//! Archives and images of other formats, read as images.

use crate::common::{Scratch, fails, run, skip, stderr, stdout, text};
use crate::mount::{Place, has_fuse};
use std::fs;
use std::process::Command;

/// Makes a tree, and archives of it. Returns their paths, with the directory that each has at its root.
fn archives(scratch: &Scratch) -> Vec<String> {
    let tree = scratch.path("tree");
    fs::create_dir_all(format!("{tree}/dir")).unwrap();
    for (name, len) in [("empty", 0), ("small", 700), ("dir/medium", 300_000), ("dir/long", 3_000_000)] {
        fs::write(format!("{tree}/{name}"), text(len as u64, len)).unwrap();
    }
    fs::hard_link(format!("{tree}/small"), format!("{tree}/dir/linked")).unwrap();
    std::os::unix::fs::symlink("dir/medium", format!("{tree}/link")).unwrap();
    let mut made = Vec::new();
    for (program, args) in [
        ("tar", &["-cf", "../a.tar", "."][..]),
        ("tar", &["-czf", "../a.tar.gz", "."]),
        ("tar", &["--zstd", "-cf", "../a.tar.zst", "."]),
        ("sh", &["-c", "find . | cpio --quiet -o -H newc >../a.cpio"]),
        ("zip", &["-qry", "../a.zip", "."]),
        ("mksquashfs", &[".", "../a.squashfs", "-quiet", "-no-progress"]),
    ] {
        let output = Command::new(program).args(args).current_dir(&tree).output();
        let name = args.iter().find_map(|arg| arg.split("../").nth(1)).unwrap();
        match output {
            Ok(output) if output.status.success() => made.push(scratch.path(name)),
            _ => kiln_tests::without(program),
        }
    }
    assert!(made.len() >= 2);
    made
}

#[test]
fn commands_read_archives() {
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    for archive in archives(&scratch) {
        assert_eq!(stdout(&["ls", &archive, "/dir"]), b"linked\nlong\nmedium\n", "{archive}");
        assert!(
            stdout(&["cat", &archive, "/dir/medium", "/small"]) == [text(300_000, 300_000), text(700, 700)].concat()
        );
        let out = scratch.path("out");
        stdout(&["extract", "--quiet", &archive, &out]);
        // Times of a ZIP archive have two seconds, and it has no hard links.
        let same = Command::new("diff").args(["-r", "--no-dereference", &tree, &out]).status().unwrap();
        assert!(same.success(), "{archive}");
        fs::remove_dir_all(&out).unwrap();
        stdout(&["check", &archive]);
        let told = String::from_utf8(stdout(&["stat", &archive, "/dir/long"])).unwrap();
        assert!(told.contains("3000000"), "{archive}: {told}");
    }
}

#[test]
fn archives_are_mounted() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, dir) = (scratch.path("tree"), scratch.path("dir"));
    fs::create_dir(&dir).unwrap();
    for archive in archives(&scratch) {
        let _place = Place(&dir);
        stdout(&["mount", "--quiet", &archive, &dir]);
        let same = Command::new("diff").args(["-r", "--no-dereference", &tree, &dir]).status().unwrap();
        assert!(same.success(), "{archive}");
        stdout(&["umount", &dir]);
        let output = run(&["run", "--at", &dir, &archive, "--", "cat", &format!("{dir}/small")]);
        assert!(output.stdout == text(700, 700), "{archive}: {}", stderr(&output));
        fails(&["mount", "--via=kernel", &archive, &dir], 2, "no EROFS image");
    }
}

#[test]
fn damage_in_an_archive_is_told() {
    let scratch = Scratch::new();
    let archives = archives(&scratch);
    let zip = archives.iter().find(|path| path.ends_with(".zip"));
    if let Some(zip) = zip {
        let mut bytes = fs::read(zip).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 16].fill(0x55);
        fs::write(zip, bytes).unwrap();
        let output = run(&["cat", zip, "/dir/long", "/dir/medium"]);
        assert_eq!(output.status.code(), Some(1));
        let told = stderr(&output);
        assert!(told.contains("dir/") && told.contains(zip.as_str()), "{told}");
    }
    let cut = scratch.path("cut.tar");
    let bytes = fs::read(scratch.path("a.tar")).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    fails(&["ls", &cut], 1, "cut.tar");
    let unknown = scratch.path("unknown");
    fs::write(&unknown, [7; 5000]).unwrap();
    fails(&["ls", &unknown], 1, "unknown");
}
