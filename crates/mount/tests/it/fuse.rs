//! Promises of a FUSE mount besides showing the right tree.
#![allow(missing_docs)]

crate::common::scenes! {
    the_mount_table_shows_source_and_type
    ready_is_called_once_and_not_too_early
    stopped_before_it_began
    statfs_equals_that_of_the_kernel
    holes_of_chunks_can_be_found
    many_threads_read_the_same
    names_that_are_not_there
    another_process_unmounts
    open_files_outlive_the_mount
    another_mount_at_the_same_path_stays
    a_damaged_extent_costs_only_its_file
    a_panic_costs_only_its_request
    access_control_lists_are_enforced
    trusted_attributes_are_for_root
    places_where_nothing_can_be_mounted
}

use crate::common::{KernelMount, Served, TempDir};
use kiln_mount::MountError;
use kiln_mount::fuse::ImageSources;
use kiln_read::{ExtentKind, MemorySource, RangeMut, ReadAt};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Serves the golden image `name` in a new directory.
fn serve(temp: &TempDir, name: &str) -> Served {
    let (path, devices) = crate::common::golden_with_devices(name);
    Served::start(crate::common::sources(&path, &devices), &temp.dir("fuse"), crate::common::options(&path)).unwrap()
}

/// Serves an image that was changed; clears its checksum feature.
fn serve_bytes(temp: &TempDir, mut bytes: Vec<u8>) -> Served {
    bytes[1032] &= !1;
    let sources = ImageSources::new(Arc::new(MemorySource::new(bytes)));
    Served::start(sources, &temp.dir("fuse"), crate::common::options(Path::new("memory"))).unwrap()
}

/// Returns every regular file below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

fn the_mount_table_shows_source_and_type() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let path = crate::common::golden("inline.erofs");
    let mut options = crate::common::options(&path);
    options.fsname = "a name, with a comma\\".into();
    let served = Served::start(crate::common::sources(&path, &[]), &temp.dir("fuse"), options).unwrap();
    let line = crate::common::mount_table_line(&served.dir).unwrap();
    assert_eq!(line[0], "a\\040name,\\040with\\040a\\040comma\\134");
    assert_eq!(line[2], "fuse.kiln");
    let flags: Vec<_> = line[3].split(',').collect();
    for flag in ["ro", "nosuid", "nodev", "default_permissions", "allow_other"] {
        assert!(flags.contains(&flag), "{flag} is not in {flags:?}");
    }
    assert_eq!(errno(&File::create(served.dir.join("new")).unwrap_err()), Errno::ROFS);
}

fn ready_is_called_once_and_not_too_early() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let path = crate::common::golden("inline.erofs");
    let dir = temp.dir("fuse");
    let (stopped, stop) = io::pipe().unwrap();
    let mut stop = Some(stop);
    let calls = AtomicU32::new(0);
    let sources = crate::common::sources(&path, &[]);
    kiln_mount::fuse::serve(sources, &dir, &crate::common::options(&path), stopped.as_fd(), &mut || {
        calls.fetch_add(1, Ordering::Relaxed);
        assert!(crate::common::is_mounted(&dir));
        assert!(fs::read_dir(&dir).unwrap().count() > 0);
        drop(stop.take());
    })
    .unwrap();
    assert_eq!(calls.into_inner(), 1);
    assert!(!crate::common::is_mounted(&dir));
}

fn stopped_before_it_began() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let path = crate::common::golden("inline.erofs");
    let dir = temp.dir("fuse");
    let (stopped, _) = io::pipe().unwrap();
    kiln_mount::fuse::serve(
        crate::common::sources(&path, &[]),
        &dir,
        &crate::common::options(&path),
        stopped.as_fd(),
        &mut || {},
    )
    .unwrap();
    assert!(!crate::common::is_mounted(&dir));
}

fn statfs_equals_that_of_the_kernel() {
    if !crate::common::has_fuse() {
        return;
    }
    for name in ["inline", "b512", "blobdev"] {
        let temp = TempDir::new("mount").unwrap();
        let served = serve(&temp, name);
        let (path, devices) = crate::common::golden_with_devices(name);
        let kernel = KernelMount::new(&path, 0, &devices, &temp.dir("kernel")).unwrap();
        let numbers = |dir: &Path| {
            let s = rustix::fs::statvfs(dir).unwrap();
            (s.f_blocks, s.f_bfree, s.f_bavail, s.f_bsize, s.f_namemax)
        };
        assert_eq!(numbers(&served.dir), numbers(&kernel.0), "{name}");
        let found = rustix::fs::statvfs(&served.dir).unwrap();
        assert_eq!((found.f_files, found.f_ffree), (crate::common::open(&path, &devices).superblock().inos, 0));
    }
}

/// Returns alternating offsets of data and holes, until ENXIO.
fn seek_all(path: &Path) -> Vec<Result<u64, Errno>> {
    let file = File::open(path).unwrap();
    let mut found = vec![seek(&file, SeekFrom::Hole(0)), seek(&file, SeekFrom::Data(1))];
    let mut off = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(off)) {
        let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
        found.extend([Ok(data), Ok(hole)]);
        assert!(hole > off, "{}: no progress at {off}", path.display());
        off = hole;
    }
    let size = file.metadata().unwrap().size();
    found.extend([seek(&file, SeekFrom::Data(size)), seek(&file, SeekFrom::Hole(size))]);
    found
}

fn holes_of_chunks_can_be_found() {
    if !crate::common::has_fuse() {
        return;
    }
    for name in ["chunk-4k", "chunk-map-64k", "chunk-index-16k"] {
        let temp = TempDir::new("mount").unwrap();
        let served = serve(&temp, name);
        let kernel =
            KernelMount::new(&crate::common::golden(&format!("{name}.erofs")), 0, &[], &temp.dir("kernel")).unwrap();
        let mut with_holes = 0;
        for path in files(&served.dir) {
            let found = seek_all(&path);
            let same = kernel.0.join(path.strip_prefix(&served.dir).unwrap());
            assert_eq!(found, seek_all(&same), "{name}: {}", path.display());
            with_holes += u32::from(found[0].is_ok_and(|hole| hole < fs::metadata(&path).unwrap().size()));
        }
        assert!(with_holes > 0, "{name} has no holes");
    }
}

fn many_threads_read_the_same() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "zstd-1m-frag");
    let expected: Vec<_> = files(&served.dir).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    served.stop().unwrap();

    // Again, without anything cached.
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "zstd-1m-frag");
    thread::scope(|scope| {
        for thread in 0..16 {
            let (expected, root, old) = (&expected, &served.dir, temp.path());
            scope.spawn(move || {
                for i in 0..expected.len() {
                    let (bytes, path) = &expected[(i * 7 + thread * 3) % expected.len()];
                    let name = path.components().skip(old.components().count() + 1).collect::<PathBuf>();
                    let file = File::open(root.join(name)).unwrap();
                    // Each thread starts at another offset.
                    let from = bytes.len() / 16 * thread;
                    let mut tail = vec![0; bytes.len() - from];
                    file.read_exact_at(&mut tail, from as u64).unwrap();
                    assert!(tail == bytes[from..], "{}", path.display());
                }
            });
        }
    });
    served.stop().unwrap();
}

fn names_that_are_not_there() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "inline");
    for _ in 0..2 {
        assert_eq!(errno(&fs::metadata(served.dir.join("no such name")).unwrap_err()), Errno::NOENT);
        let long = served.dir.join("n".repeat(256));
        assert_eq!(errno(&fs::metadata(long).unwrap_err()), Errno::NAMETOOLONG);
    }
}

fn another_process_unmounts() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "inline");
    kiln_mount::unmount(&served.dir).unwrap();
    served.wait().unwrap();
}

fn open_files_outlive_the_mount() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "lz4");
    let path = files(&served.dir).into_iter().max_by_key(|path| fs::metadata(path).unwrap().size()).unwrap();
    let expected = fs::read(&path).unwrap();
    let mut file = File::open(&path).unwrap();
    // Drop it from the page cache, so that the session has to answer.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(matches!(kiln_mount::unmount(&served.dir), Err(MountError::Busy { .. })));
    let dir = served.dir.clone();
    served.stop().unwrap();
    assert!(!crate::common::is_mounted(&dir));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes == expected);
}

fn another_mount_at_the_same_path_stays() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "inline");
    let _held = File::open(&served.dir).unwrap();
    rustix::mount::unmount(&served.dir, rustix::mount::UnmountFlags::DETACH).unwrap();
    let other = KernelMount::new(&crate::common::golden("inline.erofs"), 0, &[], &served.dir).unwrap();
    served.stop().unwrap();
    assert!(crate::common::is_mounted(&other.0));
}

/// Returns the bytes of a golden image, and the first extent of one of its files that `wanted`
/// accepts.
fn find_extent(name: &str, wanted: impl Fn(&ExtentKind) -> Option<(u64, u64)>) -> (Vec<u8>, PathBuf, u64, u64) {
    let path = crate::common::golden(name);
    let image = crate::common::open(&path, &[]);
    let root = image.inode(image.root_nid()).unwrap();
    for entry in image.walk(&root, b"").map(Result::unwrap) {
        if entry.inode.meta.file_type.letter() != '-' || entry.inode.meta.size == 0 {
            continue;
        }
        if let Some((pa, len)) = wanted(&image.extent_at(&entry.inode, 0).unwrap().kind) {
            let name = String::from_utf8(entry.path).unwrap();
            return (fs::read(&path).unwrap(), name.trim_start_matches('/').into(), pa, len);
        }
    }
    panic!("no such extent in {name}");
}

fn encoded(kind: &ExtentKind) -> Option<(u64, u64)> {
    match kind {
        ExtentKind::Encoded { pa, plen, .. } => Some((*pa, u64::from(*plen))),
        _ => None,
    }
}

fn a_damaged_extent_costs_only_its_file() {
    if !crate::common::has_fuse() {
        return;
    }
    let (mut bytes, name, pa, plen) = find_extent("zstd.erofs", encoded);
    bytes[pa as usize..(pa + plen) as usize].fill(0xFF);
    let temp = TempDir::new("mount").unwrap();
    let served = serve_bytes(&temp, bytes);
    let (mut sound, mut damaged) = (0, 0);
    for path in files(&served.dir) {
        match fs::read(&path) {
            Ok(_) => sound += 1,
            Err(error) => {
                assert!(matches!(errno(&error), Errno::UCLEAN | Errno::IO), "{}: {error}", path.display());
                damaged += 1;
            }
        }
    }
    assert!(fs::read(served.dir.join(&name)).is_err());
    assert!(damaged >= 1 && sound > damaged, "{sound} sound, {damaged} damaged");
    served.stop().unwrap();
}

/// Source with a bug.
struct Panics {
    inner: MemorySource,
    range: std::ops::Range<u64>,
}

impl Panics {
    fn look(&self, off: u64, len: usize) {
        assert!(off >= self.range.end || off + len as u64 <= self.range.start, "a panic on purpose");
    }
}

impl ReadAt for Panics {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.look(off, buf.len());
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter().for_each(|range| self.look(range.off, range.buf.len()));
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _: u64, _: u64) {}
}

fn a_panic_costs_only_its_request() {
    if !crate::common::has_fuse() {
        return;
    }
    let (bytes, name, pa, plen) = find_extent("zstd.erofs", encoded);
    let source = Panics { inner: MemorySource::new(bytes), range: pa..pa + plen };
    let temp = TempDir::new("mount").unwrap();
    let served = Served::start(
        ImageSources::new(Arc::new(source)),
        &temp.dir("fuse"),
        crate::common::options(Path::new("panics")),
    )
    .unwrap();
    // More often than there are threads.
    for _ in 0..10 {
        assert_eq!(errno(&fs::read(served.dir.join(&name)).unwrap_err()), Errno::IO);
    }
    let sound = files(&served.dir).iter().filter(|path| fs::read(path).is_ok()).count();
    assert!(sound > 0);
    served.stop().unwrap();
}

/// Returns true if the user `id` may read `path`.
fn may_read(id: u32, path: &Path) -> bool {
    Command::new("cat").arg(path).uid(id).gid(id).output().unwrap().status.success()
}

fn access_control_lists_are_enforced() {
    if !crate::common::has_fuse() {
        return;
    }
    let mut bytes = fs::read(crate::common::golden("xattrs.erofs")).unwrap();
    // The entry "user 1000: r" of /x/f00, from which r is removed. Other users keep it.
    let entry = [2, 0, 4, 0, 0xE8, 3, 0, 0];
    let found: Vec<_> = bytes.windows(8).enumerate().filter(|(_, window)| *window == entry).map(|(at, _)| at).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| bytes[at + 2] = 0);
    let temp = TempDir::new("mount").unwrap();
    let served = serve_bytes(&temp, bytes);
    let file = served.dir.join("x/f00");
    assert!(may_read(1001, &file));
    assert!(!may_read(1000, &file));
    assert!(may_read(1000, &served.dir.join("x/f01")));
}

fn trusted_attributes_are_for_root() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, "xattrs");
    let file = served.dir.join("x/f00");
    let list = |path: &Path| {
        let mut names = vec![0; 4096];
        let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
        String::from_utf8(names[..len].to_vec()).unwrap()
    };
    assert!(list(&file).contains("trusted.overlay.redirect"));
    let mut buf = [0; 4];
    let get = |name: &str, buf: &mut [u8]| rustix::fs::lgetxattr(&file, name, buf);
    assert_eq!(get("user.common", &mut buf), Err(Errno::RANGE));
    assert_eq!(get("user.none", &mut buf), Err(Errno::NODATA));
    let as_user = Command::new("getfattr").args(["-m", "-", "-d"]).arg(&file).uid(1000).gid(1000).output();
    match as_user {
        Ok(output) => {
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains("user.common") && !shown.contains("trusted."), "{shown}");
        }
        Err(_) => crate::common::skip("no getfattr"),
    }
}

fn places_where_nothing_can_be_mounted() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let path = crate::common::golden("inline.erofs");
    let file = temp.copy(&path);
    for dir in [temp.path().join("missing"), file] {
        match Served::start(crate::common::sources(&path, &[]), &dir, crate::common::options(&path)) {
            Err(error @ MountError::MountPoint { .. }) => {
                assert!(error.to_string().starts_with(&dir.display().to_string()), "{error}");
                assert!(!error.falls_back_to_fuse());
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("mounted at {}", dir.display()),
        }
    }
}
