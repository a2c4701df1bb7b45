//! Counters of a FUSE mount, and work that is done before any request.
#![allow(missing_docs)]

crate::common::scenes! {
    a_mount_has_counters
    others_have_no_counters
    counters_are_kept_in_a_file
    attributes_of_no_file_are_missing
    holes_of_no_file_are_asked_for_once
    preloaded_files_are_in_memory
    read_ahead_is_set
}

use crate::common::{Served, TempDir};
use kiln_mount::fuse::FuseOptions;
use kiln_mount::{MountError, Preload, preload};
use kiln_read::hotlist::HotList;
use kiln_tests::mnt::settled_stats as stats;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Returns the value of a sample.
fn sample(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

fn serve(temp: &TempDir, name: &str, options: FuseOptions) -> Result<Served, MountError> {
    let path = crate::common::golden(name);
    Served::start(
        crate::common::sources(&path, &[]),
        &temp.dir("fuse"),
        FuseOptions { allow_other: true, prefetch: crate::common::prefetch(), ..options },
    )
}

/// File of the golden images with enough contents.
const TEXT: &str = "big/text";
const SPARSE: &str = "sparse";

fn a_mount_has_counters() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "lz4.erofs", FuseOptions::default()).unwrap();
    let before = stats(&served.dir).unwrap();
    let len = fs::read(served.dir.join(TEXT)).unwrap().len() as u64;
    let after = stats(&served.dir).unwrap();
    let grown = |name: &str| sample(&after, name) - sample(&before, name);
    assert_eq!(grown("kiln_read_size_bytes_sum"), len);
    assert!(grown("kiln_read_size_bytes_count") > 0 && grown("kiln_fetch_size_bytes_sum") > 0);
    assert_eq!(grown("kiln_request_duration_seconds_count{request=\"read\"}"), grown("kiln_read_size_bytes_count"));
    assert_eq!(grown("kiln_request_duration_seconds_bucket{request=\"lookup\",le=\"+Inf\"}"), 2);
    assert!(grown("kiln_decoded_bytes_total") > 0);
    assert_eq!(sample(&after, "kiln_errors_total"), 0);

    // The second time, the kernel has it cached.
    fs::read(served.dir.join(TEXT)).unwrap();
    assert_eq!(
        sample(&stats(&served.dir).unwrap(), "kiln_read_size_bytes_sum"),
        sample(&after, "kiln_read_size_bytes_sum")
    );
}

fn others_have_no_counters() {
    let temp = TempDir::new("mount").unwrap();
    for path in [temp.path(), Path::new("/proc"), Path::new("/dev/null")] {
        let error = stats(path).unwrap_err();
        assert!(matches!(error, MountError::NoStats { .. }), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
    let error = stats(&temp.path().join("nothing")).unwrap_err();
    assert!(matches!(error, MountError::Stats { .. }), "{error}");
}

fn counters_are_kept_in_a_file() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let metrics = temp.path().join("kiln.prom");
    // A symbolic link to the file stays.
    let link = temp.path().join("link");
    std::os::unix::fs::symlink("kiln.prom", &link).unwrap();
    let options = FuseOptions { metrics: Some(link.clone()), ..FuseOptions::default() };
    let served = serve(&temp, "zstd.erofs", options).unwrap();
    let sum = format!("kiln_read_size_bytes_sum{{image=\"kiln\",mount=\"{}\"}}", served.dir.display());
    assert_eq!(sample(&fs::read_to_string(&metrics).unwrap(), &sum), 0);
    let len = fs::read(served.dir.join(TEXT)).unwrap().len() as u64;
    served.stop().unwrap();
    assert_eq!(sample(&fs::read_to_string(&metrics).unwrap(), &sum), len);
    let left: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());

    // A device is not replaced by a file.
    for nowhere in ["/nonexistent/kiln.prom", "/dev/null"] {
        let nowhere = FuseOptions { metrics: Some(PathBuf::from(nowhere)), ..FuseOptions::default() };
        let temp = TempDir::new("mount").unwrap();
        let Err(error) = serve(&temp, "zstd.erofs", nowhere) else { panic!("written nowhere") };
        assert!(matches!(error, MountError::Metrics { .. }), "{error}");
        assert!(!crate::common::is_mounted(&temp.path().join("fuse")));
    }
}

/// The kernel's driver for EROFS also answers ENODATA.
fn attributes_of_no_file_are_missing() {
    if !crate::common::has_fuse() {
        return;
    }
    let missing = |path: &Path| rustix::fs::lgetxattr(path, "user.missing", &mut [0u8; 8][..]).unwrap_err();
    let asked = |served: &Served| {
        sample(&stats(&served.dir).unwrap(), "kiln_request_duration_seconds_count{request=\"xattr\"}")
    };
    for image in ["lz4.erofs", "xattrs.erofs"] {
        let temp = TempDir::new("mount").unwrap();
        let served = serve(&temp, image, FuseOptions::default()).unwrap();
        for count in 1..=40 {
            assert_eq!(missing(&served.dir), Errno::NODATA, "{image}");
            assert_eq!(asked(&served), count, "{image}");
        }
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "lz4.erofs", FuseOptions::default()).unwrap();
    for path in [&served.dir, &served.dir.join(TEXT)] {
        for _ in 0..20 {
            assert_eq!(rustix::fs::llistxattr(path, &mut [0u8; 8][..]), Ok(0), "{}", path.display());
        }
    }
}

fn holes_of_no_file_are_asked_for_once() {
    if !crate::common::has_fuse() {
        return;
    }
    let asked = |served: &Served| {
        sample(&stats(&served.dir).unwrap(), "kiln_request_duration_seconds_count{request=\"lseek\"}")
    };
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "lz4.erofs", FuseOptions::default()).unwrap();
    let file = fs::File::open(served.dir.join(TEXT)).unwrap();
    let len = file.metadata().unwrap().len();
    let seek = |from| rustix::fs::seek(&file, from);
    let shown = || [seek(SeekFrom::Data(7)), seek(SeekFrom::Hole(7)), seek(SeekFrom::Hole(len))];
    let expected = [Ok(7), Ok(len), Err(Errno::NXIO)];
    // The server answers until the image is searched, always the same.
    crate::common::wait_until(|| {
        let before = asked(&served);
        assert_eq!(shown(), expected);
        asked(&served) == before
    });
    drop((file, served));

    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "chunk-4k.erofs", FuseOptions::default()).unwrap();
    let file = fs::File::open(served.dir.join(SPARSE)).unwrap();
    for count in 1..=40 {
        assert!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap() < file.metadata().unwrap().len());
        assert_eq!(asked(&served), count);
    }
}

fn preloaded_files_are_in_memory() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "lz4.erofs", FuseOptions::default()).unwrap();
    let list = HotList::of_files(["/big/text", "missing", "big", "../../big/text"].map(|path| path.into()));
    let read = |dir: &Path, list: &HotList, bytes_max, stop| {
        preload(dir, list, Preload::Read, bytes_max, &AtomicBool::new(stop))
    };
    let done = read(&served.dir, &list, u64::MAX, false).unwrap();
    assert_eq!(done.failed.iter().map(|(path, _)| path).collect::<Vec<_>>(), [Path::new("missing"), Path::new("big")]);
    let before = stats(&served.dir).unwrap();
    let len = fs::read(served.dir.join(TEXT)).unwrap().len() as u64;
    assert_eq!(sample(&before, "kiln_read_size_bytes_sum"), len);
    assert_eq!(sample(&stats(&served.dir).unwrap(), "kiln_read_size_bytes_sum"), len);
    assert_eq!((done.inodes, done.bytes, done.left_out), (0, 2 * len, 0));
    assert!(read(&served.dir, &list, u64::MAX, true).unwrap().failed.is_empty());
    assert!(read(&temp.path().join("nothing"), &list, u64::MAX, false).is_err());
    // Inodes, directories and ranges; a range that ends after the end of its file; no more than the
    // limit.
    let list = b"#kiln-hotlist 1\n0+0\t0\t.\n0+0\t1\tbig\n0+0\t1\tbig/text\n4096+100\t2\tbig/text\n4096+9223372036854771711\t3\tbig/text\n\
        9223372036854775806+1\t4\tbig/text\n0+0\t5\tgone\n0+1\t5\tgone\n";
    let list = HotList::parse(list, "list").unwrap();
    for how in [Preload::Read, Preload::Exactly, Preload::Advise] {
        let done = preload(&served.dir, &list, how, 8192, &AtomicBool::new(false)).unwrap();
        assert_eq!((done.inodes, done.bytes, done.left_out), (3, 8192, len - 4096 - 8092), "{how:?}");
        assert_eq!(done.failed.iter().map(|(path, _)| path).collect::<Vec<_>>(), [Path::new("gone")]);
    }
}

fn read_ahead_is_set() {
    if !crate::common::has_fuse() {
        return;
    }
    for (given, expected) in [(Some(256 << 10), "256"), (None, "1024")] {
        let temp = TempDir::new("mount").unwrap();
        let options = FuseOptions { read_ahead: given, ..FuseOptions::default() };
        let served = serve(&temp, "lz4.erofs", options).unwrap();
        let device = fs::metadata(&served.dir).map(|meta| std::os::unix::fs::MetadataExt::dev(&meta)).unwrap();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let set = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
        assert_eq!(set.trim(), expected);
        served.stop().unwrap();
    }
}
