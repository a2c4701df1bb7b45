//! Access to bytes, blocks and inodes of an image.

use kiln_read::ReadAt;
use std::cell::Cell;
use std::io;
use std::sync::Arc;

use super::fields::{Fields, invalid};
use super::inode::Inode;
use super::superblock::Superblock;

/// Number of blocks of metadata that may be read in addition to the blocks of the image.
const SPARE_VISITS: u64 = 1024;

/// An open image.
pub(super) struct Volume {
    bytes: Arc<dyn ReadAt>,
    pub len: u64,
    pub superblock: Superblock,
    /// Number of blocks of maps and directories that may still be read. Each such block belongs to
    /// one file, so a valid image needs no more than it has. The limit ends the scan of damaged
    /// maps that lead to one block many times.
    visits: Cell<u64>,
}

impl Volume {
    /// Opens the image `bytes`.
    ///
    /// # Errors
    /// A source whose length cannot be determined.
    pub(super) fn new(bytes: Arc<dyn ReadAt>, superblock: Superblock) -> io::Result<Self> {
        let len = bytes.len()?;
        let visits = Cell::new((len >> superblock.block_bits) + SPARE_VISITS);
        Ok(Self { bytes, len, superblock, visits })
    }

    /// Reads `len` bytes at `off`.
    ///
    /// # Errors
    /// Bytes beyond the end of the image; read errors.
    pub(super) fn read(&self, off: u64, len: usize) -> io::Result<Vec<u8>> {
        self.check_range(off, len as u64)?;
        let mut buf = vec![0; len];
        self.bytes.read_exact_at(&mut buf, off)?;
        Ok(buf)
    }

    /// Returns the offset of block `block` in bytes.
    ///
    /// # Errors
    /// A block beyond the end of the image.
    pub(super) fn block_off(&self, block: u64) -> io::Result<u64> {
        let off = block.saturating_mul(self.superblock.block_len());
        self.check_range(off, self.superblock.block_len()).map(|()| off)
    }

    /// Reads block `block` without counting it: a block of attributes, which several inodes may
    /// share.
    ///
    /// # Errors
    /// Those of [`Volume::read`].
    pub(super) fn block(&self, block: u64) -> io::Result<Vec<u8>> {
        self.read(self.block_off(block)?, self.superblock.block_len() as usize)
    }

    /// Reads block `block` of a map or a directory, which belongs to one file only.
    ///
    /// # Errors
    /// Those of [`Volume::read`]; more such blocks than the image has.
    pub(super) fn visit(&self, block: u64) -> io::Result<Vec<u8>> {
        let left = self.visits.get().checked_sub(1);
        self.visits.set(left.ok_or_else(|| invalid("maps lead to more blocks than the image has"))?);
        self.block(block)
    }

    /// Checks that `len` bytes at `off` are within the image.
    ///
    /// # Errors
    /// A range that is not.
    pub(super) fn check_range(&self, off: u64, len: u64) -> io::Result<()> {
        match off.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(invalid(format!("{len} bytes at byte {off} of an image of {} bytes", self.len))),
        }
    }

    /// Reads inode number `ino`.
    ///
    /// # Errors
    /// A number out of range; an invalid inode.
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
