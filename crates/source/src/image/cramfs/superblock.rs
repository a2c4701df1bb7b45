//! Superblock of an image.

use super::volume::Order;

pub(super) const MAGIC: u32 = 0x28CD_3D45;
/// Signature after the unused word.
pub(super) const SIGNATURE: &[u8; 16] = b"Compressed ROMFS";
pub(super) const SIGNATURE_AT: usize = 16;
/// Offset of the CRC in the superblock, in bytes.
pub(super) const CRC_AT: usize = 32;
/// Length of the superblock in bytes.
pub(super) const SUPERBLOCK_LEN: usize = 64;
/// Offsets at which a superblock may be, in bytes: with space for boot code before it, or without.
pub(super) const SUPERBLOCK_OFFS: [usize; 2] = [0, 512];

/// Flag: size and CRC are valid.
const FLAG_VERSION_2: u32 = 0x1;
/// Supported flags: the one above; sorted directories (0x2), which make no difference; holes
/// (0x100); a root directory at any offset (0x400).
const FLAGS_READ: u32 = 0x503;
/// Flag: blocks at any offset, some of them uncompressed.
const FLAG_POINTERS: u32 = 0x800;

/// Supported fields of a superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    /// Offset in the image, in bytes.
    pub off: u64,
    pub order: Order,
    /// Length in bytes and CRC of the image, if they are stored.
    pub checked: Option<(u64, u32)>,
}

/// Reason why a superblock is refused.
#[derive(Debug)]
pub(super) enum Refused {
    Unsupported(String),
    /// Offset in the image in bytes, and the problem.
    Malformed(u64, String),
}

/// Returns the offset and byte order of the superblock in the first bytes of an image, if there is
/// one.
pub(super) fn find(head: &[u8]) -> Option<(usize, Order)> {
    let has = |at: usize, bytes: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    for off in SUPERBLOCK_OFFS {
        for (order, magic) in [(Order::Little, MAGIC.to_le_bytes()), (Order::Big, MAGIC.to_be_bytes())] {
            // After arbitrary boot code, a magic number of four bytes is not sufficient.
            if has(off, &magic) && (off == 0 || has(off + SIGNATURE_AT, SIGNATURE)) {
                return Some((off, order));
            }
        }
    }
    None
}

impl Superblock {
    /// Parses the superblock in the first bytes of an image.
    ///
    /// # Errors
    /// A missing or incomplete superblock; unsupported flags.
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
                "cramfs with flags = {flags:#x}, of which {bits:#x}{what} are not supported"
            )));
        }
        let checked = (flags & FLAG_VERSION_2 != 0).then(|| (word(4).into(), word(CRC_AT)));
        Ok(Self { off, order, checked })
    }

    /// Returns the offset of the root inode in bytes.
    pub(super) fn root_off(&self) -> u64 {
        self.off + SUPERBLOCK_LEN as u64
    }
}
