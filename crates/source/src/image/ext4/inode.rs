//! Parser of inodes.

use kiln_format::inode::{FileType, Rdev};
use kiln_tree::Metadata;
use std::io;
use std::ops::Range;

use super::fields::{Fields, invalid};

/// Position of the block map of 60 bytes.
const I_BLOCK: Range<usize> = 0x28..0x64;
/// Length in bytes of the part that every inode has.
const GOOD_OLD_LEN: usize = 128;
/// Length in bytes of the shortest target of a symbolic link that does not fit in place of the
/// block map.
const FAST_SYMLINK_MAX_LEN: u64 = 60;

const FLAG_ENCRYPT: u32 = 0x800;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;

/// An inode.
pub(super) struct Inode {
    /// Offset in the image, in bytes.
    pub off: u64,
    pub file_type: FileType,
    pub meta: Metadata,
    pub links_count: u16,
    /// Length of the contents in bytes.
    pub len: u64,
    /// Block of attributes, or 0 for none.
    pub xattr_block: u64,
    flags: u32,
    bytes: Vec<u8>,
}

/// Kind of an inode's block map.
pub(super) enum Map<'a> {
    /// The contents themselves; the part that does not fit is in an attribute.
    Inline,
    /// Root of an extent tree.
    Extents(&'a [u8]),
    /// Direct and indirect block addresses.
    Blocks(&'a [u8]),
}

impl Inode {
    /// Parses the inode in `bytes`, which are at `off` of the image.
    ///
    /// # Errors
    /// An unknown file type; an inode that is shorter than its extra fields.
    pub(super) fn decode(bytes: Vec<u8>, off: u64, has_large_dirs: bool) -> io::Result<Self> {
        let fields = Fields(&bytes);
        let mode = fields.u16(0)?;
        let file_type = FileType::from_mode(mode).ok_or_else(|| invalid(format!("i_mode = {mode:#o}")))?;
        // In old directories, the upper half of the length is the block of an ACL.
        let has_high_len = file_type == FileType::Regular || file_type == FileType::Directory && has_large_dirs;
        let len = fields.u64_of(4, 0x6C)? & if has_high_len { u64::MAX } else { u32::MAX.into() };
        let extra_len = if bytes.len() > GOOD_OLD_LEN { usize::from(fields.u16(0x80)?) } else { 0 };
        if GOOD_OLD_LEN + extra_len > bytes.len() {
            return Err(invalid(format!("i_extra_isize = {extra_len} in an inode of {} bytes", bytes.len())));
        }
        let mtime_extra = if extra_len >= 0x8C - GOOD_OLD_LEN { fields.u32(0x88)? } else { 0 };
        let meta = Metadata {
            permissions: mode & 0o7777,
            uid: u32::from(fields.u16(0x78)?) << 16 | u32::from(fields.u16(2)?),
            gid: u32::from(fields.u16(0x7A)?) << 16 | u32::from(fields.u16(0x18)?),
            // The lowest two bits extend the seconds beyond 32 bits; the others are nanoseconds.
            mtime: i64::from(fields.u32(0x10)? as i32) + (i64::from(mtime_extra & 3) << 32),
            mtime_nsec: (mtime_extra >> 2).min(999_999_999),
        };
        let xattr_block = u64::from(fields.u16(0x76)?) << 32 | u64::from(fields.u32(0x68)?);
        let (flags, links_count) = (fields.u32(0x20)?, fields.u16(0x1A)?);
        Ok(Self { off, file_type, meta, links_count, len, xattr_block, flags, bytes })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.flags & FLAG_ENCRYPT != 0
    }

    /// Returns true if the contents are the value of an attribute.
    pub(super) fn is_xattr_value(&self) -> bool {
        self.flags & FLAG_EA_INODE != 0
    }

    /// Returns the kind of block map.
    pub(super) fn map(&self) -> Map<'_> {
        match self.flags {
            flags if flags & FLAG_INLINE_DATA != 0 => Map::Inline,
            flags if flags & FLAG_EXTENTS != 0 => Map::Extents(self.i_block()),
            _ => Map::Blocks(self.i_block()),
        }
    }

    /// Returns the raw block map.
    pub(super) fn i_block(&self) -> &[u8] {
        &self.bytes[I_BLOCK]
    }

    /// Returns the offset of the block map in the image, in bytes.
    pub(super) fn i_block_off(&self) -> u64 {
        self.off + I_BLOCK.start as u64
    }

    /// Returns the bytes after the fields, which may hold attributes, with their offset in the
    /// image.
    pub(super) fn room(&self) -> (&[u8], u64) {
        let fields_len = match self.bytes.get(GOOD_OLD_LEN..GOOD_OLD_LEN + 2) {
            Some(extra_len) => GOOD_OLD_LEN + usize::from(u16::from_le_bytes([extra_len[0], extra_len[1]])),
            None => GOOD_OLD_LEN,
        };
        (self.bytes.get(fields_len..).unwrap_or_default(), self.off + fields_len as u64)
    }

    /// Returns the target of a symbolic link if it is stored in the inode.
    pub(super) fn fast_target(&self) -> Option<&[u8]> {
        match self.map() {
            Map::Blocks(bytes) if self.len < FAST_SYMLINK_MAX_LEN => bytes.get(..self.len as usize),
            _ => None,
        }
    }

    /// Returns the device number: the old format of 16 bits, or else the one that resembles a
    /// `dev_t`.
    pub(super) fn rdev(&self) -> io::Result<Rdev> {
        let fields = Fields(self.i_block());
        Ok(match fields.u32(0)? {
            0 => Rdev::decode(fields.u32(4)?),
            old => Rdev { major: old >> 8 & 0xFF, minor: old & 0xFF },
        })
    }
}
