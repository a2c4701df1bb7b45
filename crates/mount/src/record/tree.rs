//! Walks through a mount, which do not leave it: to drop pages, and to find names.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fadvise, openat, openat2, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name in a directory.
struct Entry<'a> {
    dir: BorrowedFd<'a>,
    /// Path of the directory, from the root on; empty for the root.
    dir_path: &'a [u8],
    name: &'a CStr,
    /// Inode number in the directory.
    ino: u64,
    file_type: FileType,
}

impl Entry<'_> {
    fn path(&self) -> Vec<u8> {
        joined(self.dir_path, self.name)
    }
}

fn joined(dir: &[u8], name: &CStr) -> Vec<u8> {
    let separator: &[u8] = if dir.is_empty() { b"" } else { b"/" };
    [dir, separator, name.to_bytes()].concat()
}

/// Drops the cached pages of the files below `root`, until `stop` is set. Pages that programs have
/// mapped stay. Files that this user may not open are skipped.
pub(super) fn drop_pages(root: &impl AsFd, stop: &AtomicBool) -> io::Result<()> {
    walk(root.as_fd(), &mut |entry| {
        if entry.file_type == FileType::RegularFile {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(file) = openat(entry.dir, entry.name, flags, Mode::empty()) {
                // A hint: pages that cannot be dropped stay.
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Returns a path for each of these inodes that has one; any of them if there are several.
pub(super) fn find_names(root: &OwnedFd, inodes: HashSet<u64>) -> io::Result<HashMap<u64, Vec<u8>>> {
    let (mut wanted, mut names) = (inodes, HashMap::new());
    // Directories have numbers that differ from those of stat(2) in images with compressed inodes.
    for numbers in [Numbers::OfDirectories, Numbers::OfStat] {
        if wanted.is_empty() {
            break;
        }
        walk(root.as_fd(), &mut |entry| {
            if entry.file_type == FileType::RegularFile {
                let ino = match numbers {
                    Numbers::OfDirectories => Some(entry.ino),
                    Numbers::OfStat => {
                        statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|found| found.st_ino)
                    }
                };
                if let Some(ino) = ino.filter(|ino| wanted.remove(ino)) {
                    names.insert(ino, entry.path());
                }
            }
            if wanted.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(names)
}

/// Source of inode numbers.
#[derive(Clone, Copy)]
enum Numbers {
    OfDirectories,
    OfStat,
}

/// Passes all names below `root` to `each`, until it breaks. Other mounts, and directories that
/// cannot be listed, are skipped.
///
/// A damaged image may list a directory below itself: each one is listed once.
fn walk(root: BorrowedFd<'_>, each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> io::Result<()> {
    let (mut todo, mut listed) = (vec![Vec::new()], HashSet::new());
    while let Some(dir_path) = todo.pop() {
        let dir = match open_dir(root, &dir_path) {
            Ok(dir) => dir,
            Err(error) if dir_path.is_empty() => return Err(error.into()),
            // A mount whose server has ended.
            Err(error @ Errno::NOTCONN) => return Err(error.into()),
            Err(_) => continue,
        };
        let mut names = Dir::read_from(&dir)?;
        let mut below = Vec::new();
        while let Some(Ok(entry)) = names.read() {
            let (name, mut file_type) = (entry.file_name(), entry.file_type());
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if file_type == FileType::Unknown {
                let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
                file_type = found.map_or(file_type, |found| FileType::from_raw_mode(found.st_mode));
            }
            if file_type == FileType::Directory && listed.insert(entry.ino()) {
                below.push(joined(&dir_path, name));
            }
            let named = Entry { dir: dir.as_fd(), dir_path: &dir_path, name, ino: entry.ino(), file_type };
            if each(&named).is_break() {
                return Ok(());
            }
        }
        // The first directory of a listing is the next one.
        todo.extend(below.into_iter().rev());
    }
    Ok(())
}

fn open_dir(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    openat2(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tests::temp::TempDir;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn inodes_get_one_of_their_names() {
        let dir = TempDir::new("record-tree").unwrap();
        fs::create_dir_all(dir.join("a/b")).unwrap();
        for name in ["a/b/one", "a/two", "three", "unread"] {
            fs::write(dir.join(name), name).unwrap();
        }
        fs::hard_link(dir.join("a/two"), dir.join("a/b/again")).unwrap();
        std::os::unix::fs::symlink("three", dir.join("link")).unwrap();
        let ino = |name: &str| fs::symlink_metadata(dir.join(name)).unwrap().ino();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let missing = ino("link");
        let wanted = ["a/b/one", "a/two", "three"].map(ino);
        let names = find_names(&root, wanted.into_iter().chain([missing, ino("a")]).collect()).unwrap();
        assert_eq!((names.len(), &names[&wanted[0]][..], &names[&wanted[2]][..]), (3, &b"a/b/one"[..], &b"three"[..]));
        assert!([&b"a/two"[..], b"a/b/again"].contains(&&names[&wanted[1]][..]));
        // Pages go, files stay; a walk can be stopped.
        for stop in [false, true] {
            drop_pages(&root, &AtomicBool::new(stop)).unwrap();
        }
        assert_eq!(fs::read(dir.join("three")).unwrap(), b"three");
    }

    #[test]
    fn other_mounts_are_left_out() {
        let root: OwnedFd = File::open("/").unwrap().into();
        let mut names = Vec::new();
        // Limited to some names: everything below /proc is on another mount.
        walk(root.as_fd(), &mut |entry| {
            names.push(entry.path());
            if names.len() > 2000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert!(names.iter().all(|name| !name.starts_with(b"proc/")));
    }
}
