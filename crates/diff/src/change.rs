//! What a difference can be, and those that metadata tells.

use kiln_format::inode::{FileType, Rdev};
use kiln_tree::{ContentError, Kind, Metadata, Node, Xattr};
use std::cmp::Ordering;
use std::sync::Arc;

/// One of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

/// What may be left out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Contents of files; their lengths are compared all the same.
    Contents,
    /// Permissions.
    Permissions,
    /// Owner and group.
    Owners,
    /// Time of last modification.
    Mtime,
    /// Extended attributes.
    Xattrs,
    /// Which names are hard links of each other.
    Links,
}

/// What happened to a path on the way from the first tree to the second.
#[derive(Clone, Debug)]
pub struct Change {
    /// Without leading slash; the root is empty.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
}

/// Kinds of changes.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added(FileType),
    /// Only the first tree has it.
    Removed(FileType),
    /// Both have it, with these differences: at least one.
    Changed(Vec<Difference>),
    /// Both have it, but its contents could not be compared to the first difference. Comes before the [`ChangeKind::Changed`]
    /// of the same path, if there is one.
    Unreadable {
        /// Where the error is.
        side: Side,
        /// What it is.
        error: Arc<ContentError>,
    },
}

/// A difference of two files of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `a` and `b` are the values in the first and the second tree
pub enum Difference {
    /// Types.
    Type { a: FileType, b: FileType },
    /// Lengths of regular files, in bytes.
    Size { a: u64, b: u64 },
    /// Contents of regular files of one length: the first different byte.
    Contents { off: u64 },
    /// Targets of symbolic links.
    Target { a: Box<[u8]>, b: Box<[u8]> },
    /// Numbers of devices.
    Rdev { a: Rdev, b: Rdev },
    /// Low 12 bits of `st_mode`.
    Permissions { a: u16, b: u16 },
    /// Owners.
    Owner { a: u32, b: u32 },
    /// Groups.
    Group { a: u32, b: u32 },
    /// Times of last modification: seconds since 1970, nanoseconds.
    Mtime { a: (i64, u32), b: (i64, u32) },
    /// An extended attribute, by its full name.
    Xattr { name: Box<[u8]>, change: XattrChange },
    /// Other hard links. Their numbers may be equal.
    Links { a: u32, b: u32 },
}

/// What happened to an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrChange {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Removed,
    /// It has another value.
    Changed,
}

/// All that is different between two nodes, but for contents and links. Times later than `latest_mtime` count as this.
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

/// Trees have attributes sorted by name.
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
