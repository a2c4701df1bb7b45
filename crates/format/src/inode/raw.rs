//! The two on-disk records of an inode.

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a compact inode in bytes.
pub const COMPACT_LEN: usize = 32;
/// Length of an extended inode in bytes.
pub const EXTENDED_LEN: usize = 64;

/// `struct erofs_inode_compact`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeCompact {
    /// Form, layout, and flag bit 4.
    pub i_format: U16,
    /// Size of the xattr body, encoded.
    pub i_xattr_icount: U16,
    /// Type and permissions.
    pub i_mode: U16,
    /// Link count, or the high bits of the start block with NLINK_1.
    pub i_nb: U16,
    /// Size in bytes.
    pub i_size: U32,
    /// Seconds from the epoch.
    pub i_mtime: U32,

    /// Layout-dependent.
    pub i_u: U32,
    /// Serial number.
    pub i_ino: U32,
    /// Owner.
    pub i_uid: U16,
    /// Group.
    pub i_gid: U16,
    /// Zero.
    pub i_reserved2: U32,
}

/// `struct erofs_inode_extended`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeExtended {
    /// Form, layout, and flag bit 4.
    pub i_format: U16,
    /// Size of the xattr body, encoded.
    pub i_xattr_icount: U16,
    /// Type and permissions.
    pub i_mode: U16,
    /// High bits of the start block.
    pub i_nb: U16,
    /// Size in bytes.
    pub i_size: U64,

    /// Layout-dependent.
    pub i_u: U32,
    /// Serial number.
    pub i_ino: U32,
    /// Owner.
    pub i_uid: U32,
    /// Group.
    pub i_gid: U32,

    /// Seconds since 1970.
    pub i_mtime: I64,
    /// Nanoseconds.
    pub i_mtime_nsec: U32,
    /// Link count.
    pub i_nlink: U32,

    /// Zero.
    pub i_reserved2: [u8; 16],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawInodeCompact>() == COMPACT_LEN);
    assert!(offset_of!(RawInodeCompact, i_format) == 0);
    assert!(offset_of!(RawInodeCompact, i_xattr_icount) == 2);
    assert!(offset_of!(RawInodeCompact, i_mode) == 4);
    assert!(offset_of!(RawInodeCompact, i_nb) == 6);
    assert!(offset_of!(RawInodeCompact, i_size) == 8);
    assert!(offset_of!(RawInodeCompact, i_mtime) == 12);
    assert!(offset_of!(RawInodeCompact, i_u) == 16);
    assert!(offset_of!(RawInodeCompact, i_ino) == 20);
    assert!(offset_of!(RawInodeCompact, i_uid) == 24);
    assert!(offset_of!(RawInodeCompact, i_gid) == 26);
    assert!(offset_of!(RawInodeCompact, i_reserved2) == 28);

    assert!(size_of::<RawInodeExtended>() == EXTENDED_LEN);
    assert!(offset_of!(RawInodeExtended, i_format) == 0);
    assert!(offset_of!(RawInodeExtended, i_xattr_icount) == 2);
    assert!(offset_of!(RawInodeExtended, i_mode) == 4);
    assert!(offset_of!(RawInodeExtended, i_nb) == 6);
    assert!(offset_of!(RawInodeExtended, i_size) == 8);
    assert!(offset_of!(RawInodeExtended, i_u) == 16);
    assert!(offset_of!(RawInodeExtended, i_ino) == 20);
    assert!(offset_of!(RawInodeExtended, i_uid) == 24);
    assert!(offset_of!(RawInodeExtended, i_gid) == 28);
    assert!(offset_of!(RawInodeExtended, i_mtime) == 32);
    assert!(offset_of!(RawInodeExtended, i_mtime_nsec) == 40);
    assert!(offset_of!(RawInodeExtended, i_nlink) == 44);
    assert!(offset_of!(RawInodeExtended, i_reserved2) == 48);
};

/// On-disk form of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 32 bytes.
    Compact,
    /// 64 bytes.
    Extended,
}

impl Form {
    /// Returns the length of the record in bytes.
    pub fn len(self) -> usize {
        match self {
            Form::Compact => COMPACT_LEN,
            Form::Extended => EXTENDED_LEN,
        }
    }

    /// Returns the kernel's name of the record.
    pub(super) fn record(self) -> &'static str {
        match self {
            Form::Compact => "erofs_inode_compact",
            Form::Extended => "erofs_inode_extended",
        }
    }
}
