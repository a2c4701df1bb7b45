//! Addresses and their units.

use std::fmt;

/// Length of an inode slot in bytes: the unit of nids.
pub const SLOT_LEN: u64 = 32;

/// Slot number of an inode: 32-byte slots from the start of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nid(pub u64);

/// Bit of a [`Nid`] that selects the metabox instead of the image.
const IN_METABOX: u64 = 1 << 63;

impl Nid {
    /// Returns the nid of the inode at this slot of the metabox.
    pub fn of_metabox(slot: u64) -> Self {
        Self(slot | IN_METABOX)
    }

    /// Returns true if the inode lies in the decoded contents of the metabox inode.
    pub fn in_metabox(self) -> bool {
        self.0 & IN_METABOX != 0
    }

    /// Returns the byte offset of the inode from the start of its metadata space; `None` if it
    /// exceeds 64 bits.
    pub fn byte_off(self) -> Option<u64> {
        (self.0 & !IN_METABOX).checked_mul(SLOT_LEN)
    }

    /// Returns the inode number that Linux shows for this nid in an image without a metabox.
    pub fn st_ino(self) -> u64 {
        self.0
    }

    /// Returns the inode number that Linux shows for this nid in an image with a metabox: the
    /// metabox bit is folded into the low half.
    pub fn st_ino_beside_metabox(self) -> u64 {
        ((self.0 << 1) & 0xFFFF_FFFF_0000_0000) | (self.0 & 0x7FFF_FFFF) | (self.0 >> 63) << 31
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Block number in the flat data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Blkaddr(pub u64);

impl Blkaddr {
    /// Hole in a 32-bit start block: all 32 bits set.
    pub const HOLE32: Blkaddr = Blkaddr(0xFFFF_FFFF);
    /// Hole in a 48-bit start block: all 48 bits set.
    pub const HOLE48: Blkaddr = Blkaddr(0xFFFF_FFFF_FFFF);

    /// Returns the low 32 bits, as most fields hold them.
    pub fn lo(self) -> u32 {
        (self.0 & 0xFFFF_FFFF) as u32
    }

    /// Returns bits 32 to 47, as `i_nb` and `startblk_hi` hold them.
    pub fn hi(self) -> u16 {
        (self.0 >> 32 & 0xFFFF) as u16
    }
}

impl fmt::Display for Blkaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Block size as its log2: 9 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockBits(u8);

impl BlockBits {
    /// 4096-byte blocks, which every kernel with 4 KiB pages mounts.
    pub const DEFAULT: BlockBits = BlockBits(12);
    /// 512-byte blocks, the smallest.
    pub const SECTOR: BlockBits = BlockBits(9);

    /// Returns the block size of `bits`; `None` outside 9 (512 bytes) to 16 (64 KiB, the largest
    /// page size of Linux).
    pub fn new(bits: u8) -> Option<Self> {
        (9..=16).contains(&bits).then_some(Self(bits))
    }

    /// Returns log2 of the block size.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the block size in bytes.
    pub fn len(self) -> u64 {
        1 << self.0
    }

    /// Returns the number of blocks that `len` bytes need.
    pub fn blocks_for(self, len: u64) -> u64 {
        len.div_ceil(self.len())
    }

    /// Returns `off` rounded down to a block boundary.
    pub fn floor(self, off: u64) -> u64 {
        off & !(self.len() - 1)
    }

    /// Returns the offset of byte `off` inside its block.
    pub fn within(self, off: u64) -> u64 {
        off & (self.len() - 1)
    }

    /// Returns the byte offset of a block; `None` if it exceeds 64 bits.
    pub fn byte_off(self, addr: Blkaddr) -> Option<u64> {
        addr.0.checked_mul(self.len())
    }
}

/// Returns `off` rounded up to a multiple of `unit`, a power of two; `None` on overflow.
pub fn align_up(off: u64, unit: u64) -> Option<u64> {
    debug_assert!(unit.is_power_of_two());
    Some(off.checked_add(unit - 1)? & !(unit - 1))
}
