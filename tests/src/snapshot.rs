//! All that is visible of a tree, on disk, mounted, or in an image, so that trees can be compared.

use kiln_build::tree::{Kind, NodeId};
use kiln_build::{BuildError, Tree};
use kiln_format::Nid;
use kiln_format::inode::{FileType, Rdev};
use kiln_read::{Image, ReadError, SeekWhat};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Statx, StatxFlags, lgetxattr, llistxattr, openat, readlinkat, seek,
    statx,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3Default;

/// A name and what it leads to. Sizes of directories are left out: they are the filesystem's own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Type.
    pub file_type: FileType,
    /// Low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub nlink: u32,
    /// Last modification, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Bytes of regular files and symbolic links, else 0.
    pub size: u64,
    /// Major and minor number of devices, else 0.
    pub rdev: (u32, u32),
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Attributes by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// XXH3-128 of a regular file's contents: of each block that is not all zeros, with its place. So it does not depend on
    /// where holes are.
    pub contents: u128,
    /// The first path that leads to the same inode.
    pub first_name: Vec<u8>,
}

/// By path, without leading slash; the root is the empty path.
pub type Snapshot = BTreeMap<Vec<u8>, Record>;

/// Files above this are read where they have data only.
const SEEK_MIN_LEN: u64 = 64 << 20;
const BLOCK_LEN: u64 = 4096;
const ZEROS: [u8; BLOCK_LEN as usize] = [0; BLOCK_LEN as usize];
/// Bytes read at a time, a multiple of [`BLOCK_LEN`].
const STEP: u64 = 1 << 20;

/// Hashes contents, read by `read` front to back in steps; `next_data` says where to go on in large files.
fn hash<E>(
    size: u64,
    mut next_data: impl FnMut(u64) -> Result<Option<u64>, E>,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), E>,
) -> Result<u128, E> {
    let (mut hash, mut buf) = (Xxh3Default::new(), vec![0; STEP as usize]);
    let mut off = 0;
    while off < size {
        if size > SEEK_MIN_LEN {
            match next_data(off)? {
                Some(data) => off = data / BLOCK_LEN * BLOCK_LEN,
                None => break,
            }
        }
        let step = STEP.min(size - off);
        let buf = &mut buf[..step as usize];
        read(buf, off)?;
        for (idx, block) in buf.chunks(BLOCK_LEN as usize).enumerate() {
            if block != &ZEROS[..block.len()] {
                hash.update(&(off + idx as u64 * BLOCK_LEN).to_le_bytes());
                hash.update(block);
            }
        }
        off += step;
    }
    Ok(hash.digest128())
}

/// Snapshot of the directory `root` and all below it, whatever the length of its paths.
///
/// # Errors
/// Errors of the system, with the path.
pub fn of_dir(root: &Path) -> io::Result<Snapshot> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, root, flags, Mode::empty())?;
    let mut walk = DirWalk::default();
    walk.record(dir.as_fd(), b"", Vec::new())?;
    walk.below(dir.as_fd(), b"")?;
    Ok(walk.snapshot)
}

#[derive(Default)]
struct DirWalk {
    snapshot: Snapshot,
    first_names: HashMap<(u32, u32, u64), Vec<u8>>,
}

impl DirWalk {
    fn below(&mut self, dir: BorrowedFd<'_>, dir_path: &[u8]) -> io::Result<()> {
        for name in names(dir)? {
            let path = joined(dir_path, &name);
            let named = |error| at_path(error, &path);
            if self.record(dir, &name, path.clone()).map_err(named)? {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = openat(dir, &name, flags, Mode::empty()).map_err(|error| named(error.into()))?;
                self.below(child.as_fd(), &path)?;
            }
        }
        Ok(())
    }

    /// Record one entry; an empty name is the directory itself. Whether it is a directory.
    fn record(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: Vec<u8>) -> io::Result<bool> {
        let stat = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let file_type = FileType::from_mode(stat.stx_mode).ok_or_else(|| io::Error::other("no known type"))?;
        let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let first_name = self.first_names.entry(identity).or_insert_with(|| path.clone()).clone();
        // A further name of an inode need not be read again.
        let record = match self.snapshot.get(&first_name) {
            Some(record) if file_type != FileType::Directory => record.clone(),
            _ => record(dir, name, file_type, &stat, first_name)?,
        };
        self.snapshot.insert(path, record);
        Ok(file_type == FileType::Directory)
    }
}

fn record(
    dir: BorrowedFd<'_>,
    name: &[u8],
    file_type: FileType,
    stat: &Statx,
    first_name: Vec<u8>,
) -> io::Result<Record> {
    let has_size = matches!(file_type, FileType::Regular | FileType::Symlink);
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    Ok(Record {
        file_type,
        permissions: stat.stx_mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        size: if has_size { stat.stx_size } else { 0 },
        rdev: if is_device { (stat.stx_rdev_major, stat.stx_rdev_minor) } else { (0, 0) },
        target: match file_type {
            FileType::Symlink => readlinkat(dir, name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        },
        xattrs: xattrs(dir, name)?,
        contents: match file_type {
            FileType::Regular => hash_file(dir, name, stat.stx_size)?,
            _ => 0,
        },
        first_name,
    })
}

fn hash_file(dir: BorrowedFd<'_>, name: &[u8], size: u64) -> io::Result<u128> {
    let file = File::from(openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
    let next_data = |off| match seek(&file, SeekFrom::Data(off)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    };
    hash(size, next_data, |buf, off| file.read_exact_at(buf, off))
}

/// Names in a directory in the order of their bytes, without dot entries, which must be there all the same.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        names.push(entry?.file_name().to_bytes().to_vec());
    }
    names.sort_unstable();
    for dot in [&b"."[..], b".."] {
        let at = names.binary_search_by(|name| (**name).cmp(dot));
        names.remove(at.map_err(|_| io::Error::other("a dot entry is missing"))?);
    }
    Ok(names)
}

/// Attributes of an entry; an empty name is the directory itself.
pub(crate) fn xattrs(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let path = [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat();
    let mut buf = vec![0; 64 << 10];
    let len = match llistxattr(&path, &mut buf) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    let names: Vec<Vec<u8>> = buf[..len].split(|&b| b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    let value = |name: Vec<u8>| {
        let len = lgetxattr(&path, &*name, &mut buf)?;
        Ok((name, buf[..len].to_vec()))
    };
    names.into_iter().map(value).collect()
}

pub(crate) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn at_path(error: io::Error, path: &[u8]) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
}

/// Snapshot of an image.
///
/// # Errors
/// The first error of the reader, with the path.
pub fn of_image(image: &Image) -> Result<Snapshot, ReadError> {
    let root = image.inode(image.root_nid())?;
    let mut snapshot = Snapshot::new();
    let mut first_names: HashMap<Nid, Vec<u8>> = HashMap::new();
    let mut entries = image.walk(&root, b"").collect::<Result<Vec<_>, _>>()?;
    for entry in &mut entries {
        // The walk joins by slashes, and the root's path is empty.
        let path = entry.path.strip_prefix(b"/").unwrap_or(&entry.path).to_vec();
        entry.path = path;
    }
    // In the order in which directories are walked here: a name before those below it, names by their bytes.
    for entry in entries {
        let inode = entry.inode;
        let first_name = first_names.entry(inode.nid).or_insert_with(|| entry.path.clone()).clone();
        if let Some(record) = snapshot.get(&first_name) {
            let record: &Record = record;
            snapshot.insert(entry.path, record.clone());
            continue;
        }
        let meta = &inode.meta;
        let named = |error: ReadError| error.at_path(&entry.path);
        let has_size = matches!(meta.file_type, FileType::Regular | FileType::Symlink);
        let xattrs = image.list_xattrs(&inode).map_err(named)?;
        let record = Record {
            file_type: meta.file_type,
            permissions: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            nlink: meta.nlink,
            mtime: (meta.mtime, meta.mtime_nsec),
            size: if has_size { meta.size } else { 0 },
            rdev: (meta.rdev().major, meta.rdev().minor),
            target: match meta.file_type {
                FileType::Symlink => image.read_link(&inode).map_err(named)?,
                _ => Vec::new(),
            },
            xattrs: xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect(),
            contents: match meta.file_type {
                FileType::Regular => {
                    let next_data = |off| image.seek(&inode, off, SeekWhat::Data);
                    let read = |buf: &mut [u8], off| image.read_at(&inode, buf, off).map(drop);
                    hash(meta.size, next_data, read).map_err(named)?
                }
                _ => 0,
            },
            first_name,
        };
        snapshot.insert(entry.path, record);
    }
    Ok(snapshot)
}

/// What is different, in words, a line for each; empty if nothing is.
pub fn diff(expected: &Snapshot, actual: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, record) in expected {
        match actual.get(path) {
            None => lines.push(format!("{}: missing", path.escape_ascii())),
            Some(other) => lines.extend(differences(path, record, other)),
        }
    }
    let surplus = actual.keys().filter(|path| !expected.contains_key(*path));
    lines.extend(surplus.map(|path| format!("{}: surplus", path.escape_ascii())));
    lines
}

fn differences(path: &[u8], a: &Record, b: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    let mut field = |name: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        let (a, b) = (format!("{a:?}"), format!("{b:?}"));
        if a != b {
            lines.push(format!("{}: {name} is {b:.300}, not {a:.300}", path.escape_ascii()));
        }
    };
    field("type", &a.file_type, &b.file_type);
    field("mode", &format_args!("{:04o}", a.permissions), &format_args!("{:04o}", b.permissions));
    field("owner", &(a.uid, a.gid), &(b.uid, b.gid));
    field("nlink", &a.nlink, &b.nlink);
    field("mtime", &a.mtime, &b.mtime);
    field("size", &a.size, &b.size);
    field("rdev", &a.rdev, &b.rdev);
    field("target", &a.target.escape_ascii().to_string(), &b.target.escape_ascii().to_string());
    field("xattrs", &a.xattrs, &b.xattrs);
    field("contents", &a.contents, &b.contents);
    let name = |record: &Record| record.first_name.escape_ascii().to_string();
    field("first name", &name(a), &name(b));
    lines
}

/// # Panics
/// If the trees are different, with the first differences.
pub fn assert_same(expected: &Snapshot, actual: &Snapshot, what: &str) {
    let lines = diff(expected, actual);
    assert!(lines.is_empty(), "{what}: {} differences:\n{}", lines.len(), lines[..lines.len().min(20)].join("\n"));
}

/// Snapshot that the image of `tree` must have.
///
/// # Errors
/// Contents that cannot be read.
pub fn of_tree(tree: &Tree) -> Result<Snapshot, BuildError> {
    let mut snapshot = Snapshot::new();
    let mut first_names = HashMap::new();
    let mut stack = vec![(Vec::new(), NodeId::ROOT)];
    while let Some((path, id)) = stack.pop() {
        let first_name: &mut Vec<u8> = first_names.entry(id).or_insert_with(|| path.clone());
        if *first_name != path {
            let record = snapshot[first_name].clone();
            snapshot.insert(path, record);
            continue;
        }
        let record = record_of(tree, id, path.clone())?;
        let below = tree.entries(id).iter().rev().map(|entry| (joined(&path, &entry.name), entry.node));
        stack.extend(below);
        snapshot.insert(path, record);
    }
    Ok(snapshot)
}

fn record_of(tree: &Tree, id: NodeId, path: Vec<u8>) -> Result<Record, BuildError> {
    let node = tree.node(id);
    let is_dir = |id| matches!(tree.node(id).kind, Kind::Directory(_));
    let (file_type, size, target, rdev) = match &node.kind {
        Kind::Directory(_) => (FileType::Directory, 0, &b""[..], Rdev::default()),
        Kind::File { len, .. } => (FileType::Regular, *len, &b""[..], Rdev::default()),
        Kind::Symlink(target) => (FileType::Symlink, target.len() as u64, &**target, Rdev::default()),
        Kind::CharDevice(rdev) => (FileType::CharDevice, 0, &b""[..], *rdev),
        Kind::BlockDevice(rdev) => (FileType::BlockDevice, 0, &b""[..], *rdev),
        Kind::Fifo => (FileType::Fifo, 0, &b""[..], Rdev::default()),
        Kind::Socket => (FileType::Socket, 0, &b""[..], Rdev::default()),
    };
    let contents = match file_type {
        FileType::Regular => {
            let failed = |source| BuildError::Read { path: path.clone(), source };
            let mut content = tree.open(id)?;
            hash(size, |off| Ok(Some(off)), |buf, off| content.read_exact_at(buf, off)).map_err(failed)?
        }
        _ => 0,
    };
    Ok(Record {
        file_type,
        permissions: node.meta.permissions,
        uid: node.meta.uid,
        gid: node.meta.gid,
        nlink: match file_type {
            FileType::Directory => 2 + tree.entries(id).iter().filter(|entry| is_dir(entry.node)).count() as u32,
            _ => tree.names_of(id),
        },
        mtime: (node.meta.mtime, node.meta.mtime_nsec),
        size,
        rdev: (rdev.major, rdev.minor),
        target: target.to_vec(),
        xattrs: node.xattrs.iter().map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect(),
        contents,
        first_name: path,
    })
}
