//! Parser of inodes: 7 basic types, and 7 extended ones with more fields.

use kiln_format::inode::Rdev;

use super::metadata::{Cursor, Ref};
use super::problem::{Problem, corrupt};
use super::superblock::{u16_le, u32_le, u64_le};

/// Index value for "none".
const NONE: u32 = u32::MAX;
/// Maximum length in bytes of the target of a symbolic link in Linux.
const TARGET_MAX_LEN: u32 = 4095;

/// An inode. Of the variable part that follows, only targets of links are read.
#[derive(Debug)]
pub(super) struct Inode {
    /// Low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Index of the owner in the table of ids.
    pub uid_idx: u16,
    /// Index of the group in the table of ids.
    pub gid_idx: u16,
    /// Modification time in seconds since 1970.
    pub mtime: u32,
    /// Index in the table of attributes.
    pub xattr_idx: Option<u32>,
    pub kind: InodeKind,
}

/// Data of each inode type.
#[derive(Debug)]
pub(super) enum InodeKind {
    Directory(Listing),
    /// Regular file. The stored lengths of its blocks follow, see [`FileData::block_count`].
    File(FileData),
    Symlink(Vec<u8>),
    BlockDevice(Rdev),
    CharDevice(Rdev),
    Fifo,
    Socket,
}

/// Position of a directory's listing in the table of directories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing {
    pub at: Ref,
    /// Length in bytes.
    pub len: u32,
}

/// Position of a file's blocks and fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileData {
    /// Offset of the first block in the image, in bytes.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Index of the fragment block with the end of the file, and the offset in its plain text.
    pub fragment: Option<(u32, u32)>,
}

impl FileData {
    /// Returns the number of data blocks, given the block size of the image in bytes.
    pub(super) fn block_count(&self, block_len: u32) -> u64 {
        match self.fragment {
            Some(_) => self.len / u64::from(block_len),
            None => self.len.div_ceil(u64::from(block_len)),
        }
    }
}

impl Inode {
    /// Reads the inode at the cursor.
    ///
    /// # Errors
    /// An unknown type; a damaged or truncated stream.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Problem> {
        let header: [u8; 16] = cursor.array()?;
        let mut xattr_idx = None;
        let kind = match u16_le(&header, 0) {
            1 => InodeKind::Directory(directory(&cursor.array()?)),
            2 => InodeKind::File(file(&cursor.array()?)),
            3 => InodeKind::Symlink(target(cursor)?),
            4 => InodeKind::BlockDevice(device(&cursor.array()?)),
            5 => InodeKind::CharDevice(device(&cursor.array()?)),
            6 => nothing(InodeKind::Fifo, &cursor.array()?),
            7 => nothing(InodeKind::Socket, &cursor.array()?),
            8 => {
                let record = cursor.array()?;
                xattr_idx = idx(&record, 20);
                InodeKind::Directory(extended_directory(&record))
            }
            9 => {
                let record = cursor.array()?;
                xattr_idx = idx(&record, 36);
                InodeKind::File(extended_file(&record))
            }
            10 => {
                let target = target(cursor)?;
                xattr_idx = idx(&cursor.array::<4>()?, 0);
                InodeKind::Symlink(target)
            }
            number @ (11 | 12) => {
                let rdev = device(&cursor.array()?);
                xattr_idx = idx(&cursor.array::<4>()?, 0);
                if number == 11 { InodeKind::BlockDevice(rdev) } else { InodeKind::CharDevice(rdev) }
            }
            number @ (13 | 14) => {
                xattr_idx = idx(&cursor.array::<8>()?, 4);
                if number == 13 { InodeKind::Fifo } else { InodeKind::Socket }
            }
            number => return Err(corrupt(cursor.offset(), format!("inode_type = {number}"))),
        };
        Ok(Self {
            permissions: u16_le(&header, 2) & 0o7777,
            uid_idx: u16_le(&header, 4),
            gid_idx: u16_le(&header, 6),
            mtime: u32_le(&header, 8),
            xattr_idx,
            kind,
        })
    }
}

fn idx(record: &[u8], at: usize) -> Option<u32> {
    Some(u32_le(record, at)).filter(|idx| *idx != NONE)
}

/// Returns the position of a listing. The stored length is 3 bytes larger than the listing.
fn listing(block_off: u32, byte: u16, file_size: u32) -> Listing {
    Listing { at: Ref::new(block_off, byte), len: file_size.saturating_sub(3) }
}

fn directory(record: &[u8; 16]) -> Listing {
    listing(u32_le(record, 0), u16_le(record, 10), u16_le(record, 8).into())
}

fn extended_directory(record: &[u8; 24]) -> Listing {
    listing(u32_le(record, 8), u16_le(record, 18), u32_le(record, 4))
}

fn file(record: &[u8; 16]) -> FileData {
    let fragment = idx(record, 4).map(|idx| (idx, u32_le(record, 8)));
    FileData { start: u32_le(record, 0).into(), len: u32_le(record, 12).into(), fragment }
}

fn extended_file(record: &[u8; 40]) -> FileData {
    let fragment = idx(record, 28).map(|idx| (idx, u32_le(record, 32)));
    FileData { start: u64_le(record, 0), len: u64_le(record, 8), fragment }
}

/// Reads a device number, which follows the number of links.
fn device(record: &[u8; 8]) -> Rdev {
    Rdev::decode(u32_le(record, 4))
}

/// Ignores the number of links, which the tree counts itself.
fn nothing(kind: InodeKind, _links: &[u8; 4]) -> InodeKind {
    kind
}

fn target(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Problem> {
    let len = u32_le(&cursor.array::<8>()?, 4);
    if len == 0 || len > TARGET_MAX_LEN {
        return Err(corrupt(cursor.offset(), format!("a symbolic link with a target of {len} bytes")));
    }
    cursor.vec(len as usize)
}
