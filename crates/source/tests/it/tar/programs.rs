//! Archives of GNU tar, bsdtar and Python, compared with the packed directory.

use super::records::Archive;
use super::{scan, scan_bytes};
use crate::common::GOING;
use kiln_format::inode::FileType;
use kiln_source::archive::tar::{TarOptions, TarSource};
use kiln_source::{ScanOptions, SourceOptions, open};
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::scan_dir;
use kiln_tests::rng::Rng;
use kiln_tests::skip;
use kiln_tests::snapshot::{Record, Snapshot, assert_same, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tests::without;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Sets owners and times that every format can hold, and only names that v7 can.
fn make_plain(root: &Path) {
    fs::create_dir_all(root.join("dir/inner")).unwrap();
    for len in [0, 1, 511, 512, 513, 100_000_usize] {
        fs::write(root.join(format!("file-{len}")), (0..len).map(|at| (at * at) as u8).collect::<Vec<_>>()).unwrap();
    }
    fs::hard_link(root.join("file-513"), root.join("dir/inner/link")).unwrap();
    fs::hard_link(root.join("file-513"), root.join("a-link")).unwrap();
    symlink("dir/nothing", root.join("symlink")).unwrap();
    let mode = Mode::from_raw_mode(0o4751);
    rustix::fs::chmod(root.join("file-1"), mode).unwrap();
    mknodat(CWD, root.join("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let _ = mknodat(CWD, root.join("device"), rustix::fs::FileType::CharacterDevice, mode, null);
    let _ = chown(root.join("file-511"), Some(1234), Some(99));
    set_times(root, 1_600_000_000);
}

/// Sets the times of `dir` and all files below it, in whole seconds.
fn set_times(dir: &Path, secs: i64) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => set_times(&entry.path(), secs + 1),
            false => set_time(&entry.path(), secs, 0),
        }
    }
    set_time(dir, secs, 0);
}

fn set_time(path: &Path, secs: i64, nsec: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Runs a program in `dir` and returns its standard output. It may complain about sockets.
fn output(dir: &Path, program: &str, args: &[&str]) -> Option<Vec<u8>> {
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
    let command = Command::new(program).args(&args).current_dir(dir).stdin(Stdio::null()).output();
    let output = command.ok()?;
    assert!(output.status.success(), "{program} {args:?}: {}", output.stderr.escape_ascii());
    Some(output.stdout)
}

fn of_dir(root: &Path) -> Snapshot {
    of_tree(&scan_dir(root, 2).unwrap().tree).unwrap()
}

#[test]
fn all_formats_of_gnu_tar_are_read() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make_plain(&root);
    let expected = of_dir(&root);
    for format in ["v7", "ustar", "gnu", "oldgnu", "pax"] {
        let format = format!("--format={format}");
        let mut expected = expected.clone();
        let mut args = vec![&format[..], "-cf", "-"];
        if format.ends_with("v7") {
            // This format has neither.
            args.extend(["--exclude=device", "--exclude=fifo"]);
            expected.retain(|path, _| path != b"device" && path != b"fifo");
        }
        args.push(".");
        let Some(archive) = output(&root, "tar", &args) else { return without("tar") };
        let found = of_tree(&scan_bytes(&archive).unwrap()).unwrap();
        assert_same(&expected, &found, &format);
    }
}

#[test]
fn every_oddity_is_read() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make(&root, 7, Scale::Small).unwrap();
    let mut expected = of_dir(&root);
    expected.retain(|_, record| record.file_type != FileType::Socket);
    // GNU tar writes devices once for each of their names.
    let is_node =
        |record: &Record| matches!(record.file_type, FileType::CharDevice | FileType::BlockDevice | FileType::Fifo);
    for (path, record) in expected.iter_mut().filter(|(_, record)| is_node(record)) {
        (record.nlink, record.first_name) = (1, path.clone());
    }
    let xattrs = ["--format=pax", "--sparse", "--xattrs", "--xattrs-include=*", "-cf", "-", "."];
    let Some(archive) = output(&root, "tar", &xattrs) else { return without("tar") };
    fs::write(dir.join("a.tar"), &archive).unwrap();
    assert_same(&expected, &of_tree(&scan(&dir.join("a.tar")).unwrap()).unwrap(), "pax");
    // A compressed archive is spooled.
    fs::write(dir.join("a.tar.zst"), zstd::encode_all(&archive[..], 1).unwrap()).unwrap();
    assert_same(&expected, &of_tree(&scan(&dir.join("a.tar.zst")).unwrap()).unwrap(), "compressed");
    for format in ["gnu", "oldgnu"] {
        let format = format!("--format={format}");
        let archive = output(&root, "tar", &[&format, "--sparse", "-cf", "-", "."]).unwrap();
        let mut expected = expected.clone();
        for record in expected.values_mut() {
            record.xattrs.clear();
            record.mtime.1 = 0;
        }
        assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), &format);
    }
}

#[test]
fn sparse_files_are_read_in_all_forms() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    let sparse = |name: &str, len: u64, runs: &[(u64, usize)]| {
        let file = File::create(root.join(name)).unwrap();
        file.set_len(len).unwrap();
        runs.iter().for_each(|&(off, len)| file.write_all_at(&vec![name.as_bytes()[0]; len], off).unwrap());
    };
    sparse("all-hole", 1 << 20, &[]);
    sparse("behind", 1 << 20, &[((1 << 20) - 4096, 4096)]);
    sparse("cut", (1 << 20) + 5, &[(1 << 20, 5)]);
    sparse("front", 1 << 20, &[(0, 4096)]);
    sparse("large", 40 << 30, &[(20 << 30, 4096), (30 << 30, 9000)]);
    let many: Vec<_> = (0..200).map(|at| (at * 16384, 4096)).collect();
    sparse("many", 200 * 16384, &many);
    fs::write(root.join("whole"), vec![7; 10_000]).unwrap();
    set_times(&root, 1_600_000_000);
    let expected = of_dir(&root);
    let pax = ["0.0", "0.1", "1.0"].map(|version| vec!["--format=pax".into(), format!("--sparse-version={version}")]);
    let gnu = ["gnu", "oldgnu"].map(|format| vec![format!("--format={format}")]);
    for form in pax.iter().chain(&gnu) {
        let mut args: Vec<_> = form.iter().map(String::as_str).collect();
        args.extend(["--sparse", "-cf", "-", "."]);
        args.push(".");
        let Some(archive) = output(&root, "tar", &args) else { return without("tar") };
        assert!(archive.len() < 2 << 20, "{form:?}: {} bytes", archive.len());
        assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), &form.concat());
    }
}

/// Returns an ACL with a named user and a named group, in the format of the kernel.
const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xFF\xFF\xFF\xFF\x02\0\x07\0\x39\x30\0\0\x04\0\x04\0\xFF\xFF\xFF\xFF\x08\0\x05\0\x3A\x30\0\0\x10\0\x07\0\xFF\xFF\xFF\xFF\x20\0\x04\0\xFF\xFF\xFF\xFF";

#[test]
fn acls_and_attributes_are_read() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "x").unwrap();
    let set = |path: &str, name: &str, value: &[u8]| lsetxattr(root.join(path), name, value, XattrFlags::empty());
    let done = set("d/f", "system.posix_acl_access", ACL).and(set("d", "system.posix_acl_default", ACL));
    let done = done.and(set("d", "user.all", &(0..=255).collect::<Vec<u8>>()));
    if done.and(set("d/f", "user.lines", b"1\n2\0\n30 path=x\n")).is_err() {
        skip!("the directory for temporary files has no attributes");
    }
    let expected = of_dir(&root);
    assert!(expected[&b"d/f"[..]].xattrs.len() == 2 && expected[&b"d/f"[..]].permissions == 0o674);
    let gnu = ["--format=pax", "--acls", "--xattrs", "-cf", "-", "."];
    let Some(archive) = output(&root, "tar", &gnu) else { return without("tar") };
    assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), "GNU tar");
    let Some(archive) = output(&root, "bsdtar", &["--format=pax", "--acls", "--xattrs", "-cf", "-", "."]) else {
        return without("bsdtar");
    };
    assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), "bsdtar");
}

#[test]
fn archives_of_bsdtar_are_read() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make_plain(&root);
    fs::create_dir(root.join("n".repeat(200))).unwrap();
    fs::write(root.join("n".repeat(200)).join("m".repeat(200)), "long").unwrap();
    set_times(&root, -5);
    // For times before 1970 it writes fractions with another meaning.
    set_time(&root.join("file-1"), 5, 250_000_000);
    let expected = of_dir(&root);
    for format in ["pax", "gnutar"] {
        let Some(archive) = output(&root, "bsdtar", &["--format", format, "-cf", "-", "."]) else {
            return without("bsdtar");
        };
        let mut expected = expected.clone();
        if format == "gnutar" {
            // Neither fractions nor times before 1970.
            expected.values_mut().for_each(|record| record.mtime = (0, 0));
        }
        let mut found = of_tree(&scan_bytes(&archive).unwrap()).unwrap();
        if format == "gnutar" {
            found.values_mut().for_each(|record| record.mtime = (0, 0));
        }
        assert_same(&expected, &found, format);
    }
}

#[test]
fn archives_of_python_are_read() {
    const SCRIPT: &str = "import sys, tarfile
tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=getattr(tarfile, sys.argv[1])).add('.')";
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make_plain(&root);
    fs::create_dir(root.join("n".repeat(100))).unwrap();
    fs::write(root.join("n".repeat(100)).join("m".repeat(99)), "long").unwrap();
    set_times(&root, 1_500_000_000);
    set_time(&root.join("file-1"), 1_500_000_000, 500_000_000);
    let expected = of_dir(&root);
    for format in ["USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT"] {
        let mut archive = require_output(&root, &["-c", SCRIPT, format]);
        let mut expected = expected.clone();
        if format != "PAX_FORMAT" {
            expected.values_mut().for_each(|record| record.mtime.1 = 0);
        }
        assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), format);
        // Without an end mark.
        let end = archive.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        archive.truncate(end.next_multiple_of(512));
        assert_same(&expected, &of_tree(&scan_bytes(&archive).unwrap()).unwrap(), "without an end");
    }
}

fn require_output(root: &Path, args: &[&str]) -> Vec<u8> {
    output(root, "python3", args).expect("python3")
}

#[test]
fn concatenated_archives_come_from_pipes() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make_plain(&root);
    let Some(first) = output(&root, "tar", &["-cf", "-", "."]) else { return without("tar") };
    fs::write(root.join("file-1"), "replaced").unwrap();
    set_time(&root.join("file-1"), 5, 0);
    let second = output(&root, "tar", &["-cf", "-", "file-1"]).unwrap();
    let fifo = dir.join("pipe");
    mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let expected = of_dir(&root);
    let all = [first, second].concat();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| File::options().write(true).open(&fifo).unwrap().write_all(&all).unwrap());
        let options = SourceOptions { concatenated: true, ..SourceOptions::default() };
        let scan = open(&fifo, &options).unwrap().scan(&ScanOptions::new(&GOING)).unwrap();
        of_tree(&scan.tree).unwrap()
    });
    assert_same(&expected, &found, "a pipe");
}

#[test]
fn compressed_archives_are_recognised_whatever_their_first_blocks() {
    let mut noise = vec![0; 2 << 20];
    Rng::new(1).fill(&mut noise);
    let archive = Archive::default().member("noise", b'0', &noise).end();
    let expected = of_tree(&scan_bytes(&archive).unwrap()).unwrap();
    let dir = TempDir::new("tar").unwrap();
    let fifo = dir.join("pipe");
    mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::write(dir.join("a.tar"), &archive).unwrap();
    for program in ["gzip", "bzip2", "xz", "zstd", "lz4"] {
        let args = ["-c", "a.tar"];
        let Some(packed) = output(dir.path(), program, &args) else { return without(program) };
        assert_same(&expected, &of_tree(&scan_bytes(&packed).unwrap()).unwrap(), program);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| File::options().write(true).open(&fifo).unwrap().write_all(&packed).unwrap());
            of_tree(&scan(&fifo).unwrap()).unwrap()
        });
        assert_same(&expected, &found, program);
    }
}

#[test]
fn an_index_says_where_data_lie() {
    let dir = TempDir::new("tar").unwrap();
    let root = dir.dir("root");
    make_plain(&root);
    let Some(archive) = output(&root, "tar", &["-cf", "-", "."]) else { return without("tar") };
    fs::write(dir.join("a.tar"), &archive).unwrap();
    let source = TarSource::open(&dir.join("a.tar"), &SourceOptions::default(), TarOptions::default()).unwrap();
    for _ in 0..2 {
        let index = source.index(&ScanOptions::new(&GOING)).unwrap();
        assert_same(&of_dir(&root), &of_tree(&index.scan.tree).unwrap(), "index");
        let mut files = 0;
        for (id, node) in index.scan.tree.nodes() {
            let kiln_tree::Kind::File { len, content, .. } = node.kind else { continue };
            let mut bytes = Vec::new();
            for run in index.files.runs(content) {
                assert_eq!((run.la, run.pa % 512), (bytes.len() as u64, 0));
                bytes.extend_from_slice(&archive[run.pa as usize..][..run.len as usize]);
            }
            let path = String::from_utf8(index.scan.tree.path(id)).unwrap();
            assert!(bytes.len() as u64 == len && bytes == fs::read(root.join(&path)).unwrap(), "{path}");
            files += 1;
        }
        assert_eq!((files, index.archive.len().unwrap()), (6, archive.len() as u64));
    }
}
