//! Minimal records of the format, for images that tests make by hand.

use kiln_format::inode::{FileType, Form, Inode, InodeData};
use kiln_format::superblock::{BASE_LEN, ComprInfo, Superblock};
use kiln_format::{Blkaddr, BlockBits, Compat, Incompat, Nid};

/// Returns a superblock without features, extra devices and special inodes, whose root is nid 0.
pub fn plain_superblock(block_bits: BlockBits) -> Superblock {
    Superblock {
        block_bits,
        checksum: 0,
        compat: Compat::empty(),
        incompat: Incompat::empty(),
        root_nid: Nid(0),
        inos: 0,
        epoch: 0,
        fixed_nsec: 0,
        blocks: 0,
        meta_blkaddr: Blkaddr(0),
        xattr_blkaddr: Blkaddr(0),
        uuid: [0; 16],
        volume_name: [0; 16],
        compr_info: ComprInfo::Lz4MaxDistance(0),
        extra_devices: 0,
        devt_off: 0,
        xattr_prefix_count: 0,
        xattr_prefix_off: 0,
        xattr_filter_reserved: 0,
        ishare_xattr_prefix_id: 0,
        packed_nid: None,
        build_time: 0,
        metabox_nid: None,
        record_len: BASE_LEN as u64,
    }
}

/// Returns an extended inode of root from 1970, without attributes, with mode 0755 and two links.
pub fn plain_inode(file_type: FileType, data: InodeData, size: u64) -> Inode {
    Inode {
        form: Form::Extended,
        data,
        omits_dot: false,
        implies_nlink: false,
        xattr_icount: 0,
        file_type,
        permissions: 0o755,
        size,
        ino: 0,
        uid: 0,
        gid: 0,
        mtime: 0,
        mtime_nsec: 0,
        nlink: 2,
    }
}
