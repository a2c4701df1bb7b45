//! Parser of the superblock, the first 96 bytes of an image.

use super::codec::Compressor;

/// First bytes of a little-endian image.
pub(super) const MAGIC_LITTLE: &[u8; 4] = b"hsqs";
/// First bytes of a big-endian image. Version 4 has no such images.
pub(super) const MAGIC_BIG: &[u8; 4] = b"sqsh";
/// Length of a superblock in bytes.
pub(super) const LEN: usize = 96;
/// Offset of a table that does not exist.
pub(super) const NO_TABLE: u64 = u64::MAX;

const HAS_COMPRESSOR_OPTIONS: u16 = 0x400;
const BLOCK_LOGS: std::ops::RangeInclusive<u16> = 12..=20;

/// A checked superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    /// Length of the image without padding, in bytes.
    pub bytes_used: u64,
    /// Plain length in bytes of data blocks and maximum plain length of fragment blocks; a power of
    /// two.
    pub block_len: u32,
    pub compressor: Compressor,
    pub has_compressor_options: bool,
    pub fragment_count: u32,
    pub id_count: u16,
    /// Reference to the root inode, see [`Ref`](super::metadata::Ref).
    pub root: u64,
    pub id_table_off: u64,
    pub xattr_table_off: u64,
    pub inode_table_off: u64,
    pub directory_table_off: u64,
    pub fragment_table_off: u64,
}

/// Reason why a superblock is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another version, byte order or compressor, with advice.
    Unsupported(String),
    /// Offset of an invalid field in bytes, and the problem.
    Malformed(u64, String),
}

impl Superblock {
    /// Parses the superblock of an image of `len` bytes.
    ///
    /// # Errors
    /// Fields that are inconsistent with each other or with the length of the image.
    pub(super) fn new(head: &[u8], len: u64) -> Result<Self, Refusal> {
        let Some(bytes) = head.first_chunk::<LEN>() else {
            return Err(Refusal::Malformed(0, format!("a superblock of {} bytes instead of {LEN}", head.len())));
        };
        check_version(bytes)?;
        let (u16_at, u32_at, u64_at) = (|at| u16_le(bytes, at), |at| u32_le(bytes, at), |at| u64_le(bytes, at));
        let malformed = |at: usize, reason: String| Err(Refusal::Malformed(at as u64, reason));
        let (block_len, block_log) = (u32_at(12), u16_at(22));
        if !BLOCK_LOGS.contains(&block_log) || block_len != 1 << block_log {
            return malformed(12, format!("block_size = {block_len} and block_log = {block_log}"));
        }
        let number = u16_at(20);
        let Some(compressor) = Compressor::of(number) else {
            return Err(Refusal::Unsupported(format!(
                "SquashFS with compressor {number}: only 1 (gzip) to 6 (zstd) are supported"
            )));
        };
        let superblock = Self {
            bytes_used: u64_at(40),
            block_len,
            compressor,
            has_compressor_options: u16_at(24) & HAS_COMPRESSOR_OPTIONS != 0,
            fragment_count: u32_at(16),
            id_count: u16_at(26),
            root: u64_at(32),
            id_table_off: u64_at(48),
            xattr_table_off: u64_at(56),
            inode_table_off: u64_at(64),
            directory_table_off: u64_at(72),
            fragment_table_off: u64_at(80),
        };
        if superblock.bytes_used < LEN as u64 || superblock.bytes_used > len {
            return malformed(40, format!("bytes_used = {}, but the image has {len} bytes", superblock.bytes_used));
        }
        let tables = [
            (48, "id_table_start", superblock.id_table_off, false),
            (56, "xattr_id_table_start", superblock.xattr_table_off, true),
            (64, "inode_table_start", superblock.inode_table_off, false),
            (72, "directory_table_start", superblock.directory_table_off, false),
            (80, "fragment_table_start", superblock.fragment_table_off, true),
        ];
        for (at, field, off, may_be_none) in tables {
            let is_inside = (LEN as u64..superblock.bytes_used).contains(&off);
            if !(is_inside || may_be_none && off == NO_TABLE) {
                return malformed(at, format!("{field} = {off}, but bytes_used = {}", superblock.bytes_used));
            }
        }
        Ok(superblock)
    }
}

/// Checks the version, which is at the same offset in all versions.
fn check_version(bytes: &[u8; LEN]) -> Result<(), Refusal> {
    let (endian, word): (_, fn([u8; 2]) -> u16) = match bytes.first_chunk::<4>() {
        Some(MAGIC_LITTLE) => ("little", u16::from_le_bytes),
        Some(MAGIC_BIG) => ("big", u16::from_be_bytes),
        _ => return Err(Refusal::Malformed(0, format!("magic = {}: not hsqs", bytes[..4].escape_ascii()))),
    };
    let (major, minor) = (word([bytes[28], bytes[29]]), word([bytes[30], bytes[31]]));
    match (endian, major, minor) {
        ("little", 4, 0) => Ok(()),
        _ => Err(Refusal::Unsupported(format!(
            "SquashFS version {major}.{minor}, {endian} endian: only version 4.0, little endian, is supported; unpack it first, for example with unsquashfs"
        ))),
    }
}

pub(super) fn u16_le(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_le(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_le(bytes, at)) | u32::from(u16_le(bytes, at + 2)) << 16
}

pub(super) fn u64_le(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_le(bytes, at)) | u64::from(u32_le(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut [u8; LEN])) -> Refusal {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(MAGIC_LITTLE);
        bytes[12..16].copy_from_slice(&0x2_0000_u32.to_le_bytes());
        (bytes[20], bytes[22], bytes[28]) = (1, 17, 4);
        bytes[40..48].copy_from_slice(&4096_u64.to_le_bytes());
        [48, 64, 72].iter().for_each(|at| bytes[*at] = 200);
        [56, 80].iter().for_each(|at| bytes[*at..at + 8].fill(0xFF));
        assert!(Superblock::new(&bytes, 4096).is_ok());
        change(&mut bytes);
        Superblock::new(&bytes, 4096).unwrap_err()
    }

    #[test]
    fn contradictions_are_refused() {
        type Change = fn(&mut [u8; LEN]);
        let changes: [(u64, Change); 7] = [
            (0, |bytes| bytes[0] = b'H'),
            (12, |bytes| bytes[22] = 16),
            (12, |bytes| (bytes[14], bytes[22]) = (0x20, 21)),
            (40, |bytes| bytes[41] = 0x11),
            (48, |bytes| bytes[48] = 95),
            (64, |bytes| bytes[64..72].fill(0xFF)),
            (56, |bytes| bytes[56] = 0xFE),
        ];
        for (at, change) in changes {
            assert!(matches!(refusal(change), Refusal::Malformed(found, _) if found == at), "byte {at}");
        }
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        let reason = |change: fn(&mut [u8; LEN])| match refusal(change) {
            Refusal::Unsupported(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(|bytes| (bytes[28], bytes[30]) = (3, 1)).contains("version 3.1, little endian"));
        let old = reason(|bytes| {
            bytes[..4].copy_from_slice(MAGIC_BIG);
            (bytes[28], bytes[29], bytes[31]) = (0, 2, 1);
        });
        assert!(old.contains("version 2.1, big endian") && old.contains("unsquashfs"), "{old}");
        assert!(reason(|bytes| bytes[20] = 7).contains("compressor 7"));
    }
}
