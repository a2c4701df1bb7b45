//! An image and its superblock: bytes, blocks, inodes.

use kiln_read::ReadAt;
use std::cell::Cell;
use std::io;
use std::sync::Arc;

use super::fields::{Fields, invalid};
use super::inode::Inode;
use super::superblock::Superblock;

/// Blocks of metadata that may be read beyond those that an image has.
const SPARE_VISITS: u64 = 1024;

/// An open image.
pub(super) struct Volume {
    bytes: Arc<dyn ReadAt>,
    pub len: u64,
    pub superblock: Superblock,
    /// How many more blocks of maps and directories may be read. Each block is one file's, so honest images need no more than
    /// there are; where damaged maps lead to one block many times, the scan ends.
    visits: Cell<u64>,
}

impl Volume {
    /// The image `bytes`.
    ///
    /// # Errors
    /// Its length cannot be told.
    pub(super) fn new(bytes: Arc<dyn ReadAt>, superblock: Superblock) -> io::Result<Self> {
        let len = bytes.len()?;
        let visits = Cell::new((len >> superblock.block_bits) + SPARE_VISITS);
        Ok(Self { bytes, len, superblock, visits })
    }

    /// `len` bytes at `off`.
    ///
    /// # Errors
    /// Bytes behind the end; errors of the system.
    pub(super) fn read(&self, off: u64, len: usize) -> io::Result<Vec<u8>> {
        self.check_range(off, len as u64)?;
        let mut buf = vec![0; len];
        self.bytes.read_exact_at(&mut buf, off)?;
        Ok(buf)
    }

    /// Byte of block `block`, which lies in the image.
    ///
    /// # Errors
    /// Blocks behind the end.
    pub(super) fn block_off(&self, block: u64) -> io::Result<u64> {
        let off = block.saturating_mul(self.superblock.block_len());
        self.check_range(off, self.superblock.block_len()).map(|()| off)
    }

    /// Block `block`, read for its own sake: of attributes, which several inodes may share.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub(super) fn block(&self, block: u64) -> io::Result<Vec<u8>> {
        self.read(self.block_off(block)?, self.superblock.block_len() as usize)
    }

    /// Block `block` of a map or a directory, which no other file has.
    ///
    /// # Errors
    /// As [`Volume::read`]; more such blocks than the image has.
    pub(super) fn visit(&self, block: u64) -> io::Result<Vec<u8>> {
        let left = self.visits.get().checked_sub(1);
        self.visits.set(left.ok_or_else(|| invalid("maps lead to more blocks than the image has"))?);
        self.block(block)
    }

    /// That `len` bytes at `off` lie in the image.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn check_range(&self, off: u64, len: u64) -> io::Result<()> {
        match off.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(invalid(format!("{len} bytes at byte {off} of an image of {}", self.len))),
        }
    }

    /// Inode number `ino`.
    ///
    /// # Errors
    /// No such number; an inode that is none.
    pub(super) fn inode(&self, ino: u32) -> io::Result<Inode> {
        let superblock = &self.superblock;
        if ino == 0 || ino > superblock.inodes_count {
            return Err(invalid(format!("inode {ino} of {}", superblock.inodes_count)));
        }
        let (group, idx) = ((ino - 1) / superblock.inodes_per_group, (ino - 1) % superblock.inodes_per_group);
        let descriptor = self.read(superblock.descriptor_off(group), superblock.descriptor_len.into())?;
        let fields = Fields(&descriptor);
        let table = if descriptor.len() >= 64 { fields.u64_of(8, 0x28)? } else { fields.u32(8)?.into() };
        let off = self.block_off(table)? + u64::from(idx) * u64::from(superblock.inode_len);
        let bytes = self.read(off, superblock.inode_len.into())?;
        let decoded = Inode::decode(bytes, off, superblock.has_large_dirs);
        decoded.map_err(|error| invalid(format!("inode {ino} at byte {off}: {error}")))
    }
}
