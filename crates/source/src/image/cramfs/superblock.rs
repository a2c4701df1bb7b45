//! The superblock.

use super::volume::Order;

pub(super) const MAGIC: u32 = 0x28CD_3D45;
/// What is behind the unused word.
pub(super) const SIGNATURE: &[u8; 16] = b"Compressed ROMFS";
pub(super) const SIGNATURE_AT: usize = 16;
/// Where the CRC is, in bytes.
pub(super) const CRC_AT: usize = 32;
/// Length in bytes.
pub(super) const SUPERBLOCK_LEN: usize = 64;
/// Where it may lie: with room for boot code in front, or without.
pub(super) const SUPERBLOCK_OFFS: [usize; 2] = [0, 512];

/// Size and CRC are those of the image.
const FLAG_VERSION_2: u32 = 0x1;
/// Flags that are read: the one above; sorted directories (0x2), which make no difference; holes (0x100); the root's directory lies
/// anywhere (0x400).
const FLAGS_READ: u32 = 0x503;
/// Blocks that lie anywhere, some of them not compressed.
const FLAG_POINTERS: u32 = 0x800;

/// What is needed of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    /// Where it lies in the image, in bytes.
    pub off: u64,
    pub order: Order,
    /// Length of the image, and CRC, if the image has these.
    pub checked: Option<(u64, u32)>,
}

/// Why a superblock is not read.
#[derive(Debug)]
pub(super) enum Refused {
    Unsupported(String),
    /// Where in the image, in bytes, and what is wrong.
    Malformed(u64, String),
}

/// Where the superblock is that the first bytes of an image have, if they have one.
pub(super) fn find(head: &[u8]) -> Option<(usize, Order)> {
    let has = |at: usize, bytes: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    for off in SUPERBLOCK_OFFS {
        for (order, magic) in [(Order::Little, MAGIC.to_le_bytes()), (Order::Big, MAGIC.to_be_bytes())] {
            // Behind what may be anything, four bytes are not enough.
            if has(off, &magic) && (off == 0 || has(off + SIGNATURE_AT, SIGNATURE)) {
                return Some((off, order));
            }
        }
    }
    None
}

impl Superblock {
    /// From the first bytes of an image.
    ///
    /// # Errors
    /// No superblock, or only a part of one; flags that are not read.
    pub(super) fn decode(head: &[u8]) -> Result<Self, Refused> {
        let Some((at, order)) = find(head) else {
            return Err(Refused::Malformed(0, "no superblock of cramfs here or at byte 512".into()));
        };
        let off = at as u64;
        let Some(bytes) = head.get(at..at + SUPERBLOCK_LEN) else {
            return Err(Refused::Malformed(off, format!("a superblock of {} bytes", head.len() - at)));
        };
        let signature = &bytes[SIGNATURE_AT..][..SIGNATURE.len()];
        if signature != SIGNATURE {
            let reason = format!("the superblock: signature = \"{}\"", signature.escape_ascii());
            return Err(Refused::Malformed(off + SIGNATURE_AT as u64, reason));
        }
        let word = |at: usize| order.words(&bytes[at..]).next().unwrap_or_default();
        let flags = word(8);
        if flags & !FLAGS_READ != 0 {
            let what = if flags & FLAG_POINTERS == 0 { "" } else { " (extended block pointers)" };
            let bits = flags & !FLAGS_READ;
            return Err(Refused::Unsupported(format!(
                "cramfs with flags = {flags:#x}, of which {bits:#x}{what} are not read"
            )));
        }
        let checked = (flags & FLAG_VERSION_2 != 0).then(|| (word(4).into(), word(CRC_AT)));
        Ok(Self { off, order, checked })
    }

    /// Where the root's inode lies, in bytes.
    pub(super) fn root_off(&self) -> u64 {
        self.off + SUPERBLOCK_LEN as u64
    }
}
