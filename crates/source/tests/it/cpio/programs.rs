//! Archives of GNU cpio and bsdtar, compared with the packed directory.

use super::{scan, scan_bytes};
use kiln_tests::image::scan_dir;
use kiln_tests::skip;
use kiln_tests::snapshot::{assert_same, of_tree};
use kiln_tests::temp::TempDir;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mknodat, utimensat};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn make(root: &Path) {
    let long = "long-".repeat(40);
    fs::create_dir_all(root.join("dir").join(&long).join(&long)).unwrap();
    for len in [0, 1, 2, 3, 4, 511, 100_001_usize] {
        fs::write(root.join(format!("file-{len}")), (0..len).map(|at| (at * at) as u8).collect::<Vec<_>>()).unwrap();
    }
    fs::write(root.join("dir").join(&long).join(&long).join("deep"), "deep").unwrap();
    for name in ["a-link", "dir/link", "z-link"] {
        fs::hard_link(root.join("file-511"), root.join(name)).unwrap();
    }
    fs::hard_link(root.join("file-0"), root.join("empty-link")).unwrap();
    symlink("dir/nothing", root.join("symlink")).unwrap();
    symlink(&long, root.join("long-symlink")).unwrap();
    let mode = Mode::from_raw_mode(0o4751);
    rustix::fs::chmod(root.join("file-1"), mode).unwrap();
    let node = |name: &str, file_type, rdev| mknodat(CWD, root.join(name), file_type, mode, rdev);
    node("fifo", rustix::fs::FileType::Fifo, 0).unwrap();
    if rustix::process::getuid().is_root() {
        node("null", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3)).unwrap();
        node("loop", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(7, 200)).unwrap();
        chown(root.join("file-4"), Some(1234), Some(99)).unwrap();
    }
    set_times(root);
}

/// Sets the times of `dir` and all files below it in whole seconds, as cpio stores them.
fn set_times(dir: &Path) {
    let set = |path: &Path, secs| {
        let time = Timespec { tv_sec: secs, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    for (at, entry) in (0..).zip(fs::read_dir(dir).unwrap().map(Result::unwrap)) {
        match entry.file_type().unwrap().is_dir() {
            true => set_times(&entry.path()),
            false => set(&entry.path(), 1_600_000_000 + at),
        }
    }
    set(dir, 1_500_000_000);
}

/// Runs a program in `dir` that reads `input`, and returns its standard output.
fn output(dir: &Path, program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let command =
        Command::new(program).args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = command.ok()?;
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?}");
    Some(output.stdout)
}

fn names(root: &Path) -> Vec<u8> {
    output(root, "find", &[".", "-depth", "-print0"], b"").unwrap()
}

#[test]
fn all_formats_of_gnu_cpio_are_read() {
    let dir = TempDir::new("cpio").unwrap();
    let root = dir.dir("root");
    make(&root);
    let expected = of_tree(&scan_dir(&root, 2).unwrap().tree).unwrap();
    for format in ["newc", "crc", "odc"] {
        let args = ["-o", "-0", "--quiet", "-H", format];
        let Some(archive) = output(&root, "cpio", &args, &names(&root)) else { skip!("no program cpio") };
        let found = of_tree(&scan_bytes(&archive).unwrap()).unwrap();
        assert_same(&expected, &found, format);
        // Through a pipe, and compressed.
        let packed = zstd::encode_all(&archive[..], 1).unwrap();
        for (name, bytes) in [("pipe", archive), ("packed-pipe", packed)] {
            let pipe = dir.join(&format!("{name}-{format}"));
            mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let tree = std::thread::scope(|threads| {
                threads.spawn(|| fs::write(&pipe, &bytes).unwrap());
                scan(&pipe).unwrap()
            });
            assert_same(&expected, &of_tree(&tree).unwrap(), name);
        }
    }
}

#[test]
fn the_binary_format_is_refused_by_name() {
    let dir = TempDir::new("cpio").unwrap();
    let root = dir.dir("root");
    fs::write(root.join("a"), "a").unwrap();
    let Some(archive) = output(&root, "cpio", &["-o", "-0", "--quiet", "-H", "bin"], &names(&root)) else {
        skip!("no program cpio")
    };
    let swapped: Vec<u8> = archive.chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect();
    for bytes in [archive, swapped] {
        let error = scan_bytes(&bytes).map(drop).unwrap_err();
        assert!(matches!(error, kiln_source::SourceError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("old binary format"), "{error}");
    }
}

#[test]
fn both_formats_of_bsdtar_are_read() {
    let dir = TempDir::new("cpio").unwrap();
    let root = dir.dir("root");
    make(&root);
    let expected = of_tree(&scan_dir(&root, 2).unwrap().tree).unwrap();
    for format in ["newc", "odc"] {
        let args = ["--format", format, "-cf", "-", "."];
        let Some(archive) = output(&root, "bsdtar", &args, b"") else { skip!("no program bsdtar") };
        let found = of_tree(&scan_bytes(&archive).unwrap()).unwrap();
        assert_same(&expected, &found, format);
    }
}
