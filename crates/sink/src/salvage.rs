//! Parts that can be read of contents that cannot be read as a whole.

use kiln_read::{ExtentKind, Image, Inode, ReadError};
use std::ops::Range;

/// Unit in which data is tried that is stored as it is, in bytes.
const BLOCK_LEN: u64 = 4096;

/// Fill `buf` with the bytes of `inode` from `off` on: those that can be read, and zeros for the others. `lost` learns where these are in the file, and
/// why, in order.
pub(crate) fn salvage(
    image: &Image,
    inode: &Inode,
    off: u64,
    buf: &mut [u8],
    lost: &mut dyn FnMut(Range<u64>, ReadError),
) {
    buf.fill(0);
    let end = off + buf.len() as u64;
    let mut at = off;
    while at < end {
        let part_end = match image.extent_at(inode, at) {
            Ok(extent) => match extent.kind {
                ExtentKind::Hole | ExtentKind::Encoded { .. } | ExtentKind::Fragment { .. } => extent.end(),
                _ => extent.end().min((at / BLOCK_LEN + 1) * BLOCK_LEN),
            },
            Err(error) => return lost(at..end, error),
        };
        let part_end = part_end.max(at + 1).min(end);
        let part = &mut buf[(at - off) as usize..(part_end - off) as usize];
        if let Err(error) = image.read_at(inode, part, at) {
            part.fill(0);
            lost(at..part_end, error);
        }
        at = part_end;
    }
}

/// Tells if an error is about a part of the image, so that other parts can be read nevertheless.
pub(crate) fn is_damage(error: &ReadError) -> bool {
    matches!(error, ReadError::Corrupt { .. } | ReadError::Unsupported { .. } | ReadError::Io { .. })
}
