//! Reading of the intact parts of damaged contents.

use kiln_read::{ExtentKind, Image, Inode, ReadError};
use std::ops::Range;

/// Unit in bytes in which uncompressed data is retried.
const BLOCK_LEN: u64 = 4096;

/// Fills `buf` with the bytes of `inode` at `off`, and with zeros for those that cannot be read.
/// Calls `lost` for each unreadable range of the file, in order.
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

/// Returns true if the error concerns only a part of the image, so that other parts may still be
/// readable.
pub(crate) fn is_damage(error: &ReadError) -> bool {
    matches!(error, ReadError::Corrupt { .. } | ReadError::Unsupported { .. } | ReadError::Io { .. })
}
