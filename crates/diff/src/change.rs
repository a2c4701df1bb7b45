//! Changes, and differences of metadata.

use kiln_format::inode::{FileType, Rdev};
use kiln_tree::{ContentError, Kind, Metadata, Node, Xattr};
use std::cmp::Ordering;
use std::sync::Arc;

/// One of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first tree.
    A,
    /// The second tree.
    B,
}

/// An aspect that a comparison may ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Contents of files; their lengths are compared nevertheless.
    Contents,
    /// Permissions.
    Permissions,
    /// Owner and group.
    Owners,
    /// Time of last modification.
    Mtime,
    /// Extended attributes.
    Xattrs,
    /// Hard links between names.
    Links,
}

/// A change of a path from the first tree to the second.
#[derive(Clone, Debug)]
pub struct Change {
    /// Path without leading slash; empty for the root.
    pub path: Vec<u8>,
    /// Kind of the change.
    pub kind: ChangeKind,
}

/// Kinds of changes.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// The path exists only in the second tree.
    Added(FileType),
    /// The path exists only in the first tree.
    Removed(FileType),
    /// The path exists in both trees, with at least one difference.
    Changed(Vec<Difference>),
    /// The path exists in both trees, but its contents could not be compared up to a first
    /// difference. Precedes the [`ChangeKind::Changed`] of the same path, if there is one.
    Unreadable {
        /// Tree in which the error occurred.
        side: Side,
        /// The error.
        error: Arc<ContentError>,
    },
}

/// A difference between two files at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `a` and `b` are the values in the first and the second tree
pub enum Difference {
    /// File types.
    Type { a: FileType, b: FileType },
    /// Lengths of regular files, in bytes.
    Size { a: u64, b: u64 },
    /// Contents of regular files of equal length; `off` is the first different byte.
    Contents { off: u64 },
    /// Targets of symbolic links.
    Target { a: Box<[u8]>, b: Box<[u8]> },
    /// Device numbers.
    Rdev { a: Rdev, b: Rdev },
    /// Low 12 bits of `st_mode`.
    Permissions { a: u16, b: u16 },
    /// Owners.
    Owner { a: u32, b: u32 },
    /// Groups.
    Group { a: u32, b: u32 },
    /// Times of last modification: seconds since 1970, and nanoseconds.
    Mtime { a: (i64, u32), b: (i64, u32) },
    /// An extended attribute, by its full name.
    Xattr { name: Box<[u8]>, change: XattrChange },
    /// Sets of hard links. The counts may be equal.
    Links { a: u32, b: u32 },
}

/// Change of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrChange {
    /// Only the second tree has the attribute.
    Added,
    /// Only the first tree has the attribute.
    Removed,
    /// The values differ.
    Changed,
}

/// Returns all differences between two nodes except contents and links. Times later than
/// `latest_mtime` count as `latest_mtime`.
pub(crate) fn differences(a: &Node, b: &Node, ignore: &[Aspect], latest_mtime: Option<i64>) -> Vec<Difference> {
    let mut list = Vec::from_iter(of_kind(&a.kind, &b.kind));
    let shown = |meta: &Metadata| match latest_mtime {
        Some(latest) if meta.mtime >= latest => Metadata { mtime: latest, mtime_nsec: 0, ..*meta },
        _ => *meta,
    };
    of_metadata(&shown(&a.meta), &shown(&b.meta), ignore, &mut list);
    if !ignore.contains(&Aspect::Xattrs) {
        of_xattrs(&a.xattrs, &b.xattrs, &mut list);
    }
    list
}

fn of_kind(a: &Kind, b: &Kind) -> Option<Difference> {
    match (a, b) {
        (Kind::File { len: a, .. }, Kind::File { len: b, .. }) => (a != b).then_some(Difference::Size { a: *a, b: *b }),
        (Kind::Symlink(a), Kind::Symlink(b)) => {
            (a != b).then(|| Difference::Target { a: (**a).into(), b: (**b).into() })
        }
        (Kind::CharDevice(a), Kind::CharDevice(b)) | (Kind::BlockDevice(a), Kind::BlockDevice(b)) => {
            (a != b).then_some(Difference::Rdev { a: *a, b: *b })
        }
        _ => {
            let (a, b) = (a.file_type(), b.file_type());
            (a != b).then_some(Difference::Type { a, b })
        }
    }
}

fn of_metadata(a: &Metadata, b: &Metadata, ignore: &[Aspect], list: &mut Vec<Difference>) {
    let matters = |aspect| !ignore.contains(&aspect);
    if a.permissions != b.permissions && matters(Aspect::Permissions) {
        list.push(Difference::Permissions { a: a.permissions, b: b.permissions });
    }
    if a.uid != b.uid && matters(Aspect::Owners) {
        list.push(Difference::Owner { a: a.uid, b: b.uid });
    }
    if a.gid != b.gid && matters(Aspect::Owners) {
        list.push(Difference::Group { a: a.gid, b: b.gid });
    }
    let (a, b) = ((a.mtime, a.mtime_nsec), (b.mtime, b.mtime_nsec));
    if a != b && matters(Aspect::Mtime) {
        list.push(Difference::Mtime { a, b });
    }
}

/// Compares extended attributes, which trees sort by name.
fn of_xattrs(mut a: &[Xattr], mut b: &[Xattr], list: &mut Vec<Difference>) {
    loop {
        let order = match (a.first(), b.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.name.cmp(&b.name),
        };
        let x = if order.is_le() { a.split_off_first() } else { None };
        let y = if order.is_ge() { b.split_off_first() } else { None };
        let (xattr, change) = match (x, y) {
            (Some(x), Some(y)) if x.value != y.value => (x, XattrChange::Changed),
            (Some(x), None) => (x, XattrChange::Removed),
            (None, Some(y)) => (y, XattrChange::Added),
            _ => continue,
        };
        list.push(Difference::Xattr { name: xattr.name.clone(), change });
    }
}
