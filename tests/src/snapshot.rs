//! Snapshots: all visible properties of a tree on disk, mounted, or in an image, for comparison.

mod disk;
pub mod exact;
mod image;
mod tree;

pub use disk::of_dir;
pub(crate) use disk::{names, xattrs};
pub use image::of_image;
pub use tree::of_tree;

use kiln_format::inode::FileType;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3Default;

/// Properties of a name. Sizes of directories are left out because they depend on the filesystem.
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
    /// XXH3-128 of the offset and contents of each block of a regular file that is not all zeros,
    /// so that it does not depend on holes.
    pub contents: u128,
    /// First path that leads to the same inode.
    pub first_name: Vec<u8>,
}

/// Records by path, without leading slash; the root is the empty path.
pub type Snapshot = BTreeMap<Vec<u8>, Record>;

/// Length in bytes above which only the data of files is read.
const SEEK_MIN_LEN: u64 = 64 << 20;
const BLOCK_LEN: u64 = 4096;
const ZEROS: [u8; BLOCK_LEN as usize] = [0; BLOCK_LEN as usize];
/// Number of bytes read at once, a multiple of [`BLOCK_LEN`].
const STEP: u64 = 1 << 20;

/// Hashes contents, which `read` reads front to back; in large files, `next_data` skips holes.
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

fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Returns a line for each difference; empty if there is none.
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

/// Compares two trees.
///
/// # Panics
/// If the trees differ, with the first differences.
pub fn assert_same(expected: &Snapshot, actual: &Snapshot, what: &str) {
    let lines = diff(expected, actual);
    assert!(lines.is_empty(), "{what}: {} differences:\n{}", lines.len(), lines[..lines.len().min(20)].join("\n"));
}
