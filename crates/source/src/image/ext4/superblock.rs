//! Parser of the superblock: geometry and features.

use std::io;

use super::fields::{Fields, invalid};

/// Offset of the superblock in bytes.
pub(super) const SUPERBLOCK_OFF: u64 = 1024;
/// Length of the superblock in bytes.
pub(super) const SUPERBLOCK_LEN: usize = 1024;
/// Offset of the magic number in the image, in bytes.
pub(super) const MAGIC_OFF: usize = 0x438;
pub(super) const MAGIC: u16 = 0xEF53;

const BLOCK_BITS_MAX: u32 = 16;
/// Length in bytes of inodes before the superblock had a field for it.
const GOOD_OLD_INODE_LEN: u16 = 128;
const GOOD_OLD_DESCRIPTOR_LEN: u16 = 32;
const DESCRIPTOR_MAX_LEN: u16 = 1024;

const INCOMPAT_FILETYPE: u32 = 0x2;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_LARGEDIR: u32 = 0x4000;
/// All supported features: those above, extents (0x40), mmp (0x100), flex_bg (0x200), ea_inode
/// (0x400), csum_seed (0x2000), inline_data (0x8000), encrypt (0x10000) and casefold (0x20000).
const INCOMPAT_READ: u32 = 0x3_E7D2;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;

/// Supported fields of a superblock.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub block_bits: u32,
    pub blocks_per_group: u32,
    pub inodes_count: u32,
    pub inodes_per_group: u32,
    pub inode_len: u16,
    pub descriptor_len: u16,
    /// Offset of the group descriptors in bytes.
    pub descriptors_off: u64,
    /// True if directory entries have file types.
    pub has_file_types: bool,
    /// True if directories may be longer than 4 GiB.
    pub has_large_dirs: bool,
    first_data_block: u32,
    /// First block of descriptors that is stored in its own groups.
    first_meta_bg: Option<u32>,
    backups: Backups,
}

/// Groups besides the first that begin with a copy of the superblock.
#[derive(Clone, Debug)]
enum Backups {
    All,
    /// Group 1, and powers of 3, 5 and 7.
    Sparse,
    These([u32; 2]),
}

/// Reason why a superblock is refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// The image is damaged.
    Malformed(io::Error),
    /// The image has an unsupported feature.
    Unsupported(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Malformed(error)
    }
}

impl Superblock {
    /// Parses a superblock.
    ///
    /// # Errors
    /// Invalid values; unsupported features.
    pub(super) fn decode(bytes: &[u8; SUPERBLOCK_LEN]) -> Result<Self, Refused> {
        let fields = Fields(bytes);
        let wrong = |name: &str, value: u32| Refused::from(invalid(format!("s_{name} = {value}")));
        if fields.u16(0x38)? != MAGIC {
            return Err(wrong("magic", fields.u16(0x38)?.into()));
        }
        // Revision 0 has no feature fields.
        let is_dynamic = fields.u32(0x4C)? > 0;
        let feature = |at| if is_dynamic { fields.u32(at) } else { Ok(0) };
        let (compat, incompat, ro_compat) = (feature(0x5C)?, feature(0x60)?, feature(0x64)?);
        refuse_features(incompat)?;
        let log_block_size = fields.u32(0x18)?;
        let block_bits = log_block_size.saturating_add(10);
        if block_bits > BLOCK_BITS_MAX {
            return Err(wrong("log_block_size", log_block_size));
        }
        let block_len = 1_u32 << block_bits;
        let inode_len = if is_dynamic { fields.u16(0x58)? } else { GOOD_OLD_INODE_LEN };
        if !inode_len.is_power_of_two() || inode_len < GOOD_OLD_INODE_LEN || u32::from(inode_len) > block_len {
            return Err(wrong("inode_size", inode_len.into()));
        }
        let descriptor_len = if incompat & INCOMPAT_64BIT == 0 { GOOD_OLD_DESCRIPTOR_LEN } else { fields.u16(0xFE)? };
        if !descriptor_len.is_power_of_two()
            || !(GOOD_OLD_DESCRIPTOR_LEN..=DESCRIPTOR_MAX_LEN).contains(&descriptor_len)
        {
            return Err(wrong("desc_size", descriptor_len.into()));
        }
        let (blocks_per_group, inodes_per_group) = (fields.u32(0x20)?, fields.u32(0x28)?);
        if blocks_per_group == 0 || inodes_per_group == 0 {
            return Err(wrong("blocks_per_group or s_inodes_per_group", 0));
        }
        let backups = match (compat & COMPAT_SPARSE_SUPER2 != 0, ro_compat & RO_COMPAT_SPARSE_SUPER != 0) {
            (true, _) => Backups::These([fields.u32(0x24C)?, fields.u32(0x250)?]),
            (false, true) => Backups::Sparse,
            (false, false) => Backups::All,
        };
        Ok(Self {
            block_bits,
            blocks_per_group,
            inodes_count: fields.u32(0)?,
            inodes_per_group,
            inode_len,
            descriptor_len,
            // The descriptors start in the block after the superblock.
            descriptors_off: (SUPERBLOCK_OFF / u64::from(block_len) + 1) << block_bits,
            has_file_types: incompat & INCOMPAT_FILETYPE != 0,
            has_large_dirs: incompat & INCOMPAT_LARGEDIR != 0,
            first_data_block: fields.u32(0x14)?,
            first_meta_bg: (incompat & INCOMPAT_META_BG != 0).then_some(fields.u32(0x104)?),
            backups,
        })
    }

    /// Returns the length of a block in bytes.
    pub(super) fn block_len(&self) -> u64 {
        1 << self.block_bits
    }

    /// Returns the offset of the descriptor of `group` in bytes.
    pub(super) fn descriptor_off(&self, group: u32) -> u64 {
        let per_block = 1 << (self.block_bits - self.descriptor_len.trailing_zeros());
        let meta_group = group / per_block;
        match self.first_meta_bg {
            Some(first) if meta_group >= first => {
                let home = u64::from(meta_group) * u64::from(per_block);
                let first_block = u64::from(self.first_data_block) + home * u64::from(self.blocks_per_group);
                let block = first_block + u64::from(self.has_backup(home as u32));
                // With blocks larger than 1 KiB, the superblock shares the first block with the
                // bytes before it.
                (block << self.block_bits) + u64::from(group % per_block) * u64::from(self.descriptor_len)
            }
            _ => self.descriptors_off + u64::from(group) * u64::from(self.descriptor_len),
        }
    }

    fn has_backup(&self, group: u32) -> bool {
        let is_power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        match self.backups {
            _ if group == 0 => true,
            Backups::All => true,
            Backups::Sparse => group == 1 || [3, 5, 7].into_iter().any(is_power_of),
            Backups::These(groups) => groups.contains(&group),
        }
    }
}

fn refuse_features(incompat: u32) -> Result<(), Refused> {
    let refuse = |reason: &str| Err(Refused::Unsupported(reason.into()));
    if incompat & INCOMPAT_JOURNAL_DEV != 0 {
        return refuse("this is the external journal of an ext4 filesystem and has no files");
    }
    if incompat & INCOMPAT_RECOVER != 0 {
        return refuse(
            "its journal has changes that are not in place yet (feature needs_recovery); run e2fsck -p on a copy of it, or mount and \
             unmount it",
        );
    }
    match incompat & !INCOMPAT_READ {
        0 => Ok(()),
        unknown => {
            Err(Refused::Unsupported(format!("s_feature_incompat = {incompat:#x}: {unknown:#x} is not supported")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_meta_groups_lie_in_their_groups() {
        let mut bytes = [0; SUPERBLOCK_LEN];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(0x14, 1);
        put(0x20, 8192);
        put(0x28, 2048);
        put(0x38, MAGIC.into());
        put(0x4C, 1);
        put(0x58, 256);
        put(0x60, INCOMPAT_META_BG | INCOMPAT_FILETYPE);
        put(0x64, RO_COMPAT_SPARSE_SUPER);
        put(0x104, 1);
        let superblock = Superblock::decode(&bytes).unwrap();
        assert_eq!(superblock.descriptor_off(0), 2048);
        assert_eq!(superblock.descriptor_off(31), 2048 + 31 * 32);
        assert_eq!(
            superblock.descriptor_off(33),
            ((1 + 32 * 8192) << 10) + 32,
            "group 32 has no copy of the superblock"
        );
        let backups: Vec<u32> = (0..90).filter(|group| superblock.has_backup(*group)).collect();
        assert_eq!(backups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
    }

    #[test]
    fn features_that_are_not_read_are_refused_by_their_bits() {
        let refusal = |incompat| match refuse_features(incompat) {
            Err(Refused::Unsupported(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(refusal(0x46).contains("e2fsck -p"));
        assert_eq!(refusal(0x1041), "s_feature_incompat = 0x1041: 0x1001 is not supported");
        assert!(refuse_features(0x3_E7D2).is_ok());
    }
}
