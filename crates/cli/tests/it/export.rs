//! `kiln export`

use crate::common::{Scratch, fails, golden, json, kiln, names, run, stderr, stdout};
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

/// Returns the image of another builder that all of the tests export: 3 directories with files, links and devices.
fn image() -> String {
    golden("zstd.erofs")
}

#[test]
fn the_name_tells_the_format() {
    let scratch = Scratch::new();
    let heads: [(&str, &[u8]); 10] = [
        ("a.tar", b"./\0"),
        ("a.tar.gz", b"\x1f\x8b\x08"),
        ("a.tgz", b"\x1f\x8b\x08"),
        ("a.tar.zst", b"\x28\xb5\x2f\xfd"),
        ("a.cpio.xz", b"\xfd7zXZ\0"),
        ("a.tar.bz2", b"BZh"),
        ("a.cpio", b"070701"),
        ("a.mtree", b"#mtree\n"),
        ("a.pseudo", b"/ D "),
        ("a.mtree.lz4", b"\x04\x22\x4d\x18"),
    ];
    for (name, head) in heads {
        let out = scratch.path(name);
        let output = run(&["export", &image(), &out]);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{name}: {}", stderr(&output));
        assert!(fs::read(&out).unwrap().starts_with(head), "{name}");
    }
    fails(&["export", &image(), &scratch.path("a.rar")], 2, "name one with --to");
    fails(&["export", &image(), &scratch.path("a.zip.gz")], 2, "name one with --to");
    assert!(!scratch.names().iter().any(|name| name.ends_with("rar")));
}

#[test]
fn an_option_tells_it_too() {
    let scratch = Scratch::new();
    let out = scratch.path("a.tar");
    let output = run(&["export", "--to", "cpio.gz", &image(), &out, "--level", "1"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", stderr(&output));
    assert!(fs::read(&out).unwrap().starts_with(b"\x1f\x8b"));
    fails(&["export", "--to", "rar", &image(), &out], 2, "use tar, zip, cpio");
    fails(&["export", "--level", "12", "--force", &image(), &scratch.path("a.tgz")], 2, "gzip has levels from 0 to 9");
    fails(&["export", "--level", "1", &image(), &scratch.path("b.tar")], 2, "nothing is compressed");
}

#[test]
fn what_exists_stays() {
    let scratch = Scratch::new();
    let out = scratch.path("a.tar");
    fs::write(&out, "old").unwrap();
    fails(&["export", &image(), &out], 1, "exists already: use --force");
    fails(&["export", "--force", &image(), "no such file", &out], 1, "nothing in the image matches");
    assert_eq!(fs::read(&out).unwrap(), b"old", "an archive that is not whole replaces nothing");
    let output = run(&["export", "--force", &image(), &out]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", stderr(&output));
    assert!(fs::read(&out).unwrap().len() > 10_000);
    assert_eq!(scratch.names(), ["a.tar"]);
}

#[test]
fn standard_output_gets_a_tar_archive() {
    let scratch = Scratch::new();
    let out = scratch.path("a.tar");
    let file = run(&["export", &image(), "big", &out]);
    let stream = run(&["export", &image(), "big", "-"]);
    assert_eq!(file.status.code(), stream.status.code());
    assert!(stream.stdout == fs::read(&out).unwrap());
    fails(&["export", "--json", &image(), "-"], 2, "--json");
    // A reader that stops early ends the command, which prints the reason.
    let mut child =
        kiln().args(["export", &image(), "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("standard output: cannot write"), "{}", stderr(&output));
}

#[test]
fn a_fifo_gets_it_as_it_comes() {
    let scratch = Scratch::new();
    let fifo = scratch.path("a.tar");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child = kiln().args(["export", "-q", &image(), "big", &fifo]).spawn().unwrap();
    let mut bytes = Vec::new();
    fs::File::open(&fifo).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 3)));
    assert!(bytes == run(&["export", "-q", &image(), "big", "-"]).stdout);
}

#[test]
fn a_directory_is_an_extraction() {
    let scratch = Scratch::new();
    let [exported, extracted] = ["exported", "extracted"].map(|name| scratch.path(name));
    stdout(&["export", "--to", "dir", &image(), "big", &exported]);
    stdout(&["extract", &image(), &extracted, "big"]);
    assert_eq!(names(format!("{exported}/big")), names(format!("{extracted}/big")));
    let [left, right] = [&exported, &extracted].map(|dir| format!("{dir}/big"));
    assert_eq!(run(&["diff", &left, &right]).status.code(), Some(0));
    fails(&["export", "--to", "dir", &image(), &exported], 1, "not empty");
}

#[test]
fn what_is_lost_is_told() {
    let scratch = Scratch::new();
    let root = scratch.path("root");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/a"), "text").unwrap();
    fs::hard_link(format!("{root}/a"), format!("{root}/b")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(format!("{root}/socket")).unwrap());
    let packed = scratch.path("image");
    stdout(&["pack", "--mtime", "5", "-q", &root, &packed]);
    let output = run(&["export", "--json", &packed, &scratch.path("a.zip")]);
    assert_eq!(output.status.code(), Some(3));
    for words in ["1 sockets left out, socket first", "1 hard links stored as separate files, b first"] {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let report = json(&output.stdout);
    assert_eq!((&report["files"], &report["losses"][0]["loss"]), (&2.into(), &"sockets".into()));
    assert_eq!((&report["losses"][1]["count"], &report["losses"][1]["first"]["path"]), (&1.into(), &"b".into()));
    let output = run(&["export", "--json", &packed, &scratch.path("a.cpio")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(json(&output.stdout)["hard_links"], 1);
}

/// Python uses the last of several names in a header.
#[test]
fn a_long_name_of_a_file_with_holes_is_its_own() {
    let scratch = Scratch::new();
    let (root, image, tar) = (scratch.path("root"), scratch.path("image"), scratch.path("a.tar"));
    fs::create_dir(&root).unwrap();
    let name = "long-".repeat(30);
    let file = fs::File::create(format!("{root}/{name}")).unwrap();
    file.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"text", 500_000).unwrap();
    stdout(&["pack", "-q", "--preset", "plain", &root, &image]);
    stdout(&["export", "-q", &image, &tar]);
    assert!(fs::metadata(&tar).unwrap().len() < 100_000, "the archive has the holes");
    stdout(&["diff", "--ignore", "mtime", &tar, &root]);
    let script = "import sys, tarfile
t = tarfile.open(sys.argv[1])
m = [m for m in t.getmembers() if m.isfile()]
print(m[0].name, m[0].size, t.extractfile(m[0]).read() == bytes(500000) + b'text' + bytes((1 << 20) - 500004))";
    match Command::new("python3").args(["-c", script, &tar]).output() {
        Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout), format!("./{name} 1048576 True\n"), "{said:?}"),
        Err(_) => crate::common::skip("no python3"),
    }
}
