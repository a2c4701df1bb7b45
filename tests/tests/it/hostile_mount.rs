//! Damaged images served by FUSE: system calls return data or an error number, and the server
//! continues.

use kiln_format::inode::FileType;
use kiln_mount::fuse::FuseOptions;
use kiln_read::{Image, Inode};
use kiln_tests::damage::Damager;
use kiln_tests::golden::{Golden, remove_checksum, small_images};
use kiln_tests::mnt::Mount;
use kiln_tests::skip;
use rustix::fs::{Mode, OFlags, lgetxattr, llistxattr, open, readlink, statvfs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Number of damaged images of each kind that are mounted; `KILN_MUTATIONS` overrides both numbers.
const ROUNDS: u64 = 8;
/// The same with `./test.sh --long`.
const LONG_ROUNDS: u64 = 200;
/// Maximum number of names visited in a mount: damaged directories may be endless.
const PATHS_MAX: usize = 300;
/// Number of bytes in a page.
const PAGE_LEN: usize = 4096;
/// Number of panics in any thread: the server catches its own.
static PANICS: AtomicU32 = AtomicU32::new(0);

/// Number of successful calls, and error numbers of the others.
#[derive(Default)]
struct Seen {
    answers: u64,
    errors: BTreeMap<i32, u64>,
}

impl Seen {
    fn count<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.answers += 1;
                Some(value)
            }
            Err(error) => {
                let errno = error.raw_os_error().expect("an error number");
                *self.errors.entry(errno).or_default() += 1;
                None
            }
        }
    }

    /// Checks that errors report damage, not a missing server.
    fn check(&self) {
        // The kernel itself returns ELOOP and EIO for circles. ENOENT and ENODATA are for names
        // that were listed but are not found; ERANGE is for sizes that do not fit.
        let allowed = [
            Errno::IO,
            Errno::UCLEAN,
            Errno::OPNOTSUPP,
            Errno::LOOP,
            Errno::NOENT,
            Errno::NODATA,
            Errno::RANGE,
            Errno::INVAL,
            Errno::NOTDIR,
            Errno::NAMETOOLONG,
        ];
        for errno in self.errors.keys() {
            assert!(allowed.iter().any(|allowed| allowed.raw_os_error() == *errno), "{:?}", self.errors);
        }
    }
}

/// Makes the requests of ordinary programs for everything below `root`.
fn look_at_all(root: &Path) -> Seen {
    let mut seen = Seen::default();
    let mut todo = vec![root.to_path_buf()];
    let mut visited = 0;
    while let Some(path) = todo.pop().filter(|_| visited < PATHS_MAX) {
        visited += 1;
        let Some(stat) = seen.count(fs::symlink_metadata(&path)) else { continue };
        look_at_xattrs(&path, &mut seen);
        if stat.is_dir() {
            let Some(listing) = seen.count(fs::read_dir(&path)) else { continue };
            let entries = listing.take(PATHS_MAX).map_while(|entry| seen.count(entry));
            todo.extend(entries.map(|entry| entry.path()));
        } else if stat.is_symlink() {
            seen.count(readlink(&path, Vec::new()).map_err(io::Error::from));
        } else if stat.is_file() {
            read(&path, stat.len(), &mut seen);
        }
    }
    seen
}

fn look_at_xattrs(path: &Path, seen: &mut Seen) {
    let mut names = vec![0; 64 << 10];
    let Some(len) = seen.count(llistxattr(path, &mut names[..]).map_err(io::Error::from)) else { return };
    let mut value = vec![0; 64 << 10];
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).take(20) {
        seen.count(lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).map_err(io::Error::from));
    }
}

fn read(path: &Path, size: u64, seen: &mut Seen) {
    // A size may be anything.
    let Some(file) = seen.count(File::open(path)) else { return };
    let mut buf = vec![0; 64 << 10];
    for off in [0, size / 2, size.saturating_sub(1)] {
        let off = off.min(i64::MAX as u64 - buf.len() as u64);
        seen.count(file.read_at(&mut buf, off));
    }
}

/// Returns a file that the library can read page by page, and its contents. Extents are decoded whole for
/// that, whereas a read of the whole file may succeed if its neighbours in a pcluster are damaged.
/// In a mount that enforces modes, Linux opens no file below a directory whose ACL it cannot read,
/// nor a file with such an ACL, so neither may have one.
fn sound_file(image: &Image) -> Option<(PathBuf, Vec<u8>)> {
    let has_no_acl = |inode: &Inode| matches!(image.get_xattr(inode, b"system.posix_acl_access"), Ok(None));
    let root = image.inode(image.root_nid()).ok().filter(has_no_acl)?;
    let whole = |inode: &Inode| {
        let (mut contents, mut buf) = (Vec::new(), Vec::new());
        for off in (0..inode.meta.size).step_by(PAGE_LEN) {
            contents.extend_from_slice(&image.view(inode, off, PAGE_LEN, &mut buf).ok()?);
        }
        Some(contents)
    };
    let is_small = |inode: &Inode| inode.meta.file_type == FileType::Regular && inode.meta.size < 1 << 20;
    let found = |name: &[u8]| {
        let inode = image.lookup(&root, name).ok()?.and_then(|entry| image.inode(entry.nid).ok())?;
        let contents = (is_small(&inode) && has_no_acl(&inode)).then(|| whole(&inode)).flatten()?;
        Some((OsStr::from_bytes(name).into(), contents))
    };
    [&b"text"[..], b"long", b"mixed", b"one", b"empty"].into_iter().find_map(found)
}

/// Serves one damaged image. Returns true if it could be opened and its root read.
fn serve(golden: &Golden, mut bytes: Vec<u8>, what: &str) -> Result<Option<Seen>, String> {
    // Mounts verify checksums. The library gets the same bytes, because contents of a damaged file
    // may be those of the superblock.
    remove_checksum(&mut bytes);
    let Ok(image) = golden.open_as(bytes.clone()) else { return Ok(None) };
    let sound = sound_file(&image);
    let mount =
        Mount::by_fuse_with(golden.sources_of(bytes), FuseOptions { cache_bytes: 4 << 20, ..FuseOptions::default() })?;
    let seen = look_at_all(mount.path());
    seen.check();
    // The server is still there.
    statvfs(mount.path()).unwrap_or_else(|error| panic!("{what}: statvfs: {error}"));
    open(mount.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    if let Some((name, contents)) = sound {
        let read = fs::read(mount.path().join(&name));
        let read = read.unwrap_or_else(|error| panic!("{what}: {}: {error}", name.display()));
        assert!(read == contents, "{what}: {} differs", name.display());
    }
    Ok(Some(seen))
}

#[test]
fn damaged_images_are_served() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Threads of other tests have names with a path; threads of a server do not.
        let is_test = thread::current().name().is_some_and(|name| name.contains("::"));
        PANICS.fetch_add(u32::from(!is_test), Ordering::Relaxed);
        default_hook(info);
    }));
    let rounds = kiln_tests::rounds("KILN_MUTATIONS", ROUNDS, LONG_ROUNDS);
    let images = small_images().unwrap();
    let (mut mounts, mut errors) = (0, BTreeMap::<i32, u64>::new());
    for (nth, golden) in images.iter().enumerate() {
        let mut damager = Damager::new(nth as u64, golden.metadata().unwrap(), 512);
        let other = &images[(nth + 5) % images.len()].bytes;
        for round in 0..rounds {
            let mut bytes = golden.bytes.clone();
            let what = match round {
                0 => "nothing".to_owned(),
                _ => damager.damage(&mut bytes, other),
            };
            let what = format!("{}, round {round}: {what}", golden.name);
            match serve(golden, bytes, &what) {
                Err(reason) => skip!("{reason}"),
                Ok(None) => assert!(round > 0, "{what}: cannot be opened"),
                Ok(Some(seen)) => {
                    assert!(round > 0 || (seen.errors.is_empty() && seen.answers > 100), "{what}: {:?}", seen.errors);
                    mounts += 1;
                    seen.errors.into_iter().for_each(|(errno, count)| *errors.entry(errno).or_default() += count);
                }
            }
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{what}");
        }
    }
    println!("{mounts} mounts; errors by number: {errors:?}");
    assert!(mounts > images.len() && errors.contains_key(&Errno::UCLEAN.raw_os_error()));
}
