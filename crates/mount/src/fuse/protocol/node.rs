//! FUSE node ids and attributes of inodes.

use fuser::{FileAttr, FileType, INodeNo};
use kiln_read::{Image, Inode, Nid};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Node id of nid 0, as node id 0 is a negative dentry. No image is so large that this is a nid.
const NID_0: u64 = 1 << 62;
/// Node id of nid 1, as node id 1 is the root.
const NID_1: u64 = NID_0 + 1;

/// Validity of data that does not change. Ten years, as kernels count time in ticks and not in 64
/// bits of seconds.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Returns the node id of an inode.
pub(in crate::fuse) fn node_id(image: &Image, nid: Nid) -> INodeNo {
    match nid {
        nid if nid == image.root_nid() => INodeNo::ROOT,
        Nid(0) => INodeNo(NID_0),
        Nid(1) => INodeNo(NID_1),
        Nid(other) => INodeNo(other),
    }
}

/// Returns the slot of a node in a hash table of 2^`bits` slots.
pub(in crate::fuse) fn slot(node: u64, bits: u32) -> usize {
    // 2^64 divided by the golden ratio; the highest bits of the product are a hash.
    (node.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}

/// Returns the inode of a node id.
pub(in crate::fuse) fn nid(image: &Image, node: INodeNo) -> Nid {
    match node.0 {
        NID_0 => Nid(0),
        NID_1 => Nid(1),
        _ if node == INodeNo::ROOT => image.root_nid(),
        other => Nid(other),
    }
}

/// Returns the number of an inode, as stat(2) shows it: that of Linux's EROFS, except for 0, as
/// readdir(3) of C libraries skips such entries, and 1, which is the node id of the root. `kiln
/// pack` creates no such inodes; images of other builders may have their root there.
pub(in crate::fuse) fn inode_number(image: &Image, nid: Nid) -> INodeNo {
    INodeNo(match image.st_ino(nid) {
        0 => NID_0,
        1 => NID_1,
        other => other,
    })
}

/// Returns true if [`inode_number`] is the node id of each inode that a directory can name. In a
/// metabox it is not.
pub(in crate::fuse) fn are_inode_numbers(image: &Image) -> bool {
    image.superblock().metabox_nid.is_none()
}

/// Validity of dentries.
pub(in crate::fuse) const ENTRY_TTL: Duration = FOREVER;

/// Returns the validity of attributes that come with a name. There, fuser sends the node id as
/// `st_ino`; if that is wrong, the kernel must ask again before it shows them.
pub(in crate::fuse) fn named_attr_ttl(image: &Image, nid: Nid) -> Duration {
    match node_id(image, nid) == inode_number(image, nid) {
        true => FOREVER,
        false => Duration::ZERO,
    }
}

/// Validity of attributes in an answer to GETATTR.
pub(in crate::fuse) const ATTR_TTL: Duration = FOREVER;

/// Returns attributes as Linux's EROFS shows them, with `ino` as the inode's number.
pub(in crate::fuse) fn attr(image: &Image, inode: &Inode, ino: INodeNo) -> FileAttr {
    let meta = &inode.meta;
    let block = image.superblock().block_bits.len();
    let blocks = meta.compressed_blocks().map_or(meta.size.div_ceil(block), u64::from);
    let time = time(meta.mtime, meta.mtime_nsec);
    FileAttr {
        ino,
        size: meta.size,
        blocks: blocks.saturating_mul(block / 512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: kind(meta.file_type.dirent_number()).unwrap_or(FileType::RegularFile),
        perm: meta.permissions,
        nlink: meta.nlink,
        uid: meta.uid,
        gid: meta.gid,
        // FUSE encodes device numbers as the image does.
        rdev: meta.rdev().encode().unwrap_or_default(),
        blksize: block as u32,
        flags: 0,
    }
}

/// Returns attributes of an inode of which only the type is known.
pub(in crate::fuse) fn bare_attr(ino: INodeNo, kind: FileType) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

/// Returns the file type of a number in a dirent.
pub(in crate::fuse) fn kind(dirent_number: u8) -> Option<FileType> {
    Some(match dirent_number {
        1 => FileType::RegularFile,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::NamedPipe,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// Returns a time; 1970 if it is out of range.
fn time(secs: i64, nsec: u32) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let time = if secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    time.and_then(|time| time.checked_add(Duration::from_nanos(nsec.into()))).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_at_the_ends() {
        assert_eq!(time(-1, 999_999_999), UNIX_EPOCH - Duration::from_nanos(1));
        assert_eq!(time(0, 0), UNIX_EPOCH);
        for secs in [i64::MIN, i64::MIN + 1, i64::MAX] {
            assert_ne!(time(secs, 1), UNIX_EPOCH);
        }
    }
}
