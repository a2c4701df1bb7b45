//! Blocks of zlib, which several images have.

use flate2::{Decompress, FlushDecompress, Status};
use std::cell::RefCell;

thread_local! {
    /// A decoder is worth keeping: it takes more to make one than to decode a block.
    static DECODER: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

/// Decode `packed`, a whole stream of zlib (RFC 1950), to the front of `plain`: how many bytes that are. `None`: it is damaged, or longer
/// than `plain`.
pub(super) fn inflate(packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    DECODER.with_borrow_mut(|decoder| {
        decoder.reset(true);
        let status = decoder.decompress(packed, plain, FlushDecompress::Finish).ok()?;
        matches!(status, Status::StreamEnd).then_some(decoder.total_out() as usize)
    })
}
