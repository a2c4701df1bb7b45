//! Exact snapshots of a tree, with inode numbers, blocks and all times, for which two mounts of one
//! image must be equal.

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// All properties of one path, with error numbers in place of failed answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// `st_mode`.
    pub mode: u32,
    /// Inode number.
    pub ino: u64,
    /// Number of links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Number of blocks of 512 bytes.
    pub blocks: u64,
    /// Length of a block in bytes.
    pub blksize: u32,
    /// Access, modification and change: seconds and nanoseconds.
    pub times: [(i64, u32); 3],
    /// Attributes by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Target of a symbolic link.
    pub link: Option<PathBuf>,
    /// Contents of a regular file.
    pub contents: Option<Vec<u8>>,
    /// Names with inode number and type, as listed.
    pub names: Option<BTreeMap<Vec<u8>, (u64, FileType)>>,
}

/// Entries by path relative to the root, which is the empty path.
pub type Snapshot = BTreeMap<PathBuf, Entry>;

/// Returns everything below `root`, by path relative to it.
///
/// # Panics
/// If a system call fails.
pub fn take(root: &Path) -> Snapshot {
    let mut all = Snapshot::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        // The empty path would leave a trailing slash, which follows symbolic links.
        let full = if path.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&path) };
        let entry = look_at(&full);
        for name in entry.names.iter().flatten().map(|(name, _)| name) {
            if !matches!(&name[..], b"." | b"..") {
                todo.push(path.join(OsString::from_vec(name.clone())));
            }
        }
        all.insert(path, entry);
    }
    all
}

/// Compares two snapshots, and names the first path that differs.
///
/// # Panics
/// If there is one.
pub fn assert_equal(left: &Snapshot, right: &Snapshot) {
    let paths = |snapshot: &Snapshot| snapshot.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(left), paths(right));
    for (path, entry) in left {
        assert!(*entry == right[path], "{}:\n{}\n{}", path.display(), short(entry), short(&right[path]));
    }
}

/// Returns a description without the contents' bytes.
fn short(entry: &Entry) -> String {
    let Entry { contents, .. } = entry;
    let len = contents.as_ref().map(Vec::len);
    let shown = Entry { contents: None, xattrs: entry.xattrs.clone(), link: entry.link.clone(), names: None, ..*entry };
    format!("{shown:?}, {len:?} bytes, names {:?}", entry.names)
}

fn look_at(path: &Path) -> Entry {
    let stat = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file_type = FileType::from_raw_mode(stat.stx_mode.into());
    Entry {
        mode: stat.stx_mode.into(),
        ino: stat.stx_ino,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        blksize: stat.stx_blksize,
        times: [stat.stx_atime, stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec)),
        xattrs: xattrs(path),
        link: (file_type == FileType::Symlink).then(|| fs::read_link(path).unwrap()),
        contents: (file_type == FileType::RegularFile).then(|| fs::read(path).unwrap()),
        names: (file_type == FileType::Directory).then(|| names(path)),
    }
}

fn names(path: &Path) -> BTreeMap<Vec<u8>, (u64, FileType)> {
    let dir = rustix::fs::open(path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY, 0o0.into()).unwrap();
    let entries = rustix::fs::Dir::read_from(dir).unwrap().map(|entry| entry.unwrap());
    let mut names = BTreeMap::new();
    for entry in entries {
        // The mount decides what ".." of the root is.
        let is_above = entry.file_name() == c"..";
        let ino = if is_above { 0 } else { entry.ino() };
        let before = names.insert(entry.file_name().to_bytes().to_vec(), (ino, entry.file_type()));
        assert!(before.is_none(), "{}: {:?} is listed twice", path.display(), entry.file_name());
    }
    names
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 1 << 16];
    let len = len_or_none(rustix::fs::llistxattr(path, &mut list[..]));
    // The announced size must be correct.
    assert_eq!(len_or_none(rustix::fs::llistxattr_query(path)), len);
    list[..len]
        .split_inclusive(|byte| *byte == 0)
        .map(|name| (name[..name.len() - 1].to_vec(), xattr(path, name)))
        .collect()
}

/// Returns a length, which is 0 if the filesystem reports that it does not support attributes.
fn len_or_none(answer: rustix::io::Result<usize>) -> usize {
    match answer {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        answer => answer.unwrap(),
    }
}

fn xattr(path: &Path, name: &[u8]) -> Vec<u8> {
    let name = CStr::from_bytes_with_nul(name).unwrap();
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])
        .unwrap_or_else(|error| panic!("{}: {name:?}: {error}", path.as_os_str().as_bytes().escape_ascii()));
    assert_eq!(rustix::fs::lgetxattr_query(path, name).unwrap(), len);
    value.truncate(len);
    value
}
