//! Archives and images of other formats, read as images.

use crate::common::{Scratch, fails, kiln, run, skip, stderr, stdout, text};
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
        let told = stderr(&run(&["check", &archive]));
        let words = if archive.ends_with(".zip") { "CRC-32" } else { "has no digests" };
        assert!(told.contains("all contents could be read") && told.contains(words), "{archive}: {told}");
        assert!(!told.contains("superblock"), "{archive}: {told}");
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
        // Attributes, which none of these archives has, are asked for once.
        stdout(&["mount", "--quiet", &archive, &dir]);
        let listed = Command::new("ls").args(["-lR", &dir]).output().unwrap();
        assert!(listed.status.success() && listed.stderr.is_empty(), "{archive}: {}", stderr(&listed));
        let told = String::from_utf8(stdout(&["stats", "--json", &dir])).unwrap();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let asked = &told["requests"]["xattr"]["count"];
        assert!(asked.as_u64().is_some_and(|count| count <= 2), "{archive}: {told}");
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
    // A member that is stored uncompressed, and as a mount reads it: in parts.
    let stored = scratch.path("stored.zip");
    let zipped = Command::new("zip").args(["-0qry", &stored, "."]).current_dir(scratch.path("tree")).status();
    if zipped.is_ok_and(|status| status.success()) {
        let mut bytes = fs::read(&stored).unwrap();
        let small = text(700, 700);
        let at = bytes.windows(small.len()).position(|part| part == small).unwrap();
        bytes[at + 600] ^= 1;
        fs::write(&stored, bytes).unwrap();
        fails(&["cat", &stored, "/small"], 1, "CRC-32");
        if has_fuse() {
            let dir = scratch.path("stored");
            fs::create_dir(&dir).unwrap();
            let _place = Place(&dir);
            stdout(&["mount", "--quiet", &stored, &dir]);
            assert_eq!(
                fs::read(format!("{dir}/small")).unwrap_err().raw_os_error(),
                Some(rustix::io::Errno::IO.raw_os_error())
            );
            assert!(fs::read(format!("{dir}/dir/medium")).unwrap() == text(300_000, 300_000));
        }
    }
    if let Some(packed) = archives.iter().find(|path| path.ends_with(".tar.gz")) {
        let output = kiln().args(["ls", packed]).env("TMPDIR", scratch.path("no-such")).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("TMPDIR names another directory"), "{}", stderr(&output));
    }
    let cut = scratch.path("cut.tar");
    let bytes = fs::read(scratch.path("a.tar")).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    fails(&["ls", &cut], 1, "cut.tar");
    let unknown = scratch.path("unknown");
    fs::write(&unknown, [7; 5000]).unwrap();
    fails(&["ls", &unknown], 1, "unknown");
}

#[test]
fn an_index_saves_the_scan_of_an_archive() {
    let scratch = Scratch::new();
    let (tree, index, out) = (scratch.path("tree"), scratch.path("index"), scratch.path("out"));
    for archive in archives(&scratch) {
        if archive.ends_with(".squashfs") {
            fails(&["ls", "--index", &index, &archive], 2, "an index can be kept of");
            assert!(!fs::exists(&index).unwrap());
            continue;
        }
        for _ in 0..2 {
            let output = run(&["ls", "--index", &index, &archive, "/dir"]);
            assert_eq!(
                (stderr(&output), &*output.stdout),
                (String::new(), &b"linked\nlong\nmedium\n"[..]),
                "{archive}"
            );
        }
        stdout(&["extract", "--quiet", "--index", &index, &archive, &out]);
        let same = Command::new("diff").args(["-r", "--no-dereference", &tree, &out]).status().unwrap();
        assert!(same.success(), "{archive}");
        fs::remove_dir_all(&out).unwrap();
        assert!(stdout(&["cat", "--index", &index, &archive, "/small"]) == text(700, 700), "{archive}");
        fs::remove_file(&index).unwrap();
    }
    // The headers of members are not read: nothing shows that they are damaged, except by bytes and times.
    let (tar, times) = (scratch.path("a.tar"), scratch.path("times"));
    stdout(&["ls", "--index", &index, &tar]);
    let set_times = |of: &str, to: &str| {
        let time = fs::metadata(of).unwrap().modified().unwrap();
        fs::File::options().write(true).open(to).unwrap().set_modified(time).unwrap();
    };
    fs::write(&times, "").unwrap();
    set_times(&tar, &times);
    let mut bytes = fs::read(&tar).unwrap();
    let header = (1 << 17..bytes.len() - (1 << 17)).step_by(512).find(|at| bytes[at + 257..].starts_with(b"ustar"));
    bytes[header.expect("a header far from both ends")..][..512].fill(0xA5);
    fs::write(&tar, &bytes).unwrap();
    set_times(&times, &tar);
    fails(&["ls", &tar], 1, "a.tar");
    assert_eq!(stdout(&["ls", "--index", &index, &tar, "/dir"]), b"linked\nlong\nmedium\n");
}

#[test]
fn an_index_that_does_not_fit_is_made_anew_and_other_files_are_left_alone() {
    let scratch = Scratch::new();
    archives(&scratch);
    let (tar, index, other) = (scratch.path("a.tar"), scratch.path("index"), scratch.path("other"));
    stdout(&["ls", "--index", &index, &tar]);
    let good = fs::read(&index).unwrap();
    let is_made_anew = |reason: &str| {
        let output = run(&["cat", "--index", &index, &tar, "/small"]);
        let told = stderr(&output);
        assert!(told.contains(reason) && told.contains("made anew") && told.contains(&index), "{reason}: {told}");
        assert!(output.stdout == text(700, 700) && fs::read(&index).unwrap() == good, "{reason}");
    };
    for at in [100, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&index, bad).unwrap();
        is_made_anew("digest is wrong");
    }
    for len in [good.len() - 1, 60, 9] {
        fs::write(&index, &good[..len]).unwrap();
        is_made_anew("it ");
    }
    let mut newer = good.clone();
    newer[8] = 2;
    fs::write(&index, newer).unwrap();
    is_made_anew("version 2");
    // Another archive: longer by an empty record, with other times.
    let mut bytes = fs::read(&tar).unwrap();
    bytes.extend([0; 10240]);
    fs::write(&tar, bytes).unwrap();
    let output = run(&["ls", "--index", &index, &tar, "/dir"]);
    assert!(stderr(&output).contains("another one now"), "{}", stderr(&output));
    assert_eq!(output.stdout, b"linked\nlong\nmedium\n");
    // Files that are no index.
    for bytes in ["", "short", "a text that is longer than a magic number"] {
        fs::write(&other, bytes).unwrap();
        fails(&["ls", "--index", &other, &tar], 2, "not an index");
        assert_eq!(fs::read(&other).unwrap(), bytes.as_bytes());
    }
    fails(&["ls", "--index", &scratch.path("none/index"), &tar], 1, "none");
    let image = scratch.path("image.erofs");
    stdout(&["pack", "--quiet", &scratch.path("tree"), &image]);
    fails(&["ls", "--index", &index, &image], 2, "--index");
}
