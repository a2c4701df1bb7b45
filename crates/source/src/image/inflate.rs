//! Decoder of zlib blocks, shared by several formats.

use flate2::{Decompress, FlushDecompress, Status};
use std::cell::RefCell;

thread_local! {
    /// The decoder is reused, since creating one takes longer than decoding a block.
    static DECODER: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

/// Decodes `packed`, a complete zlib stream (RFC 1950), to the front of `plain`. Returns the plain
/// length in bytes, or `None` if the stream is damaged or longer than `plain`.
pub(super) fn inflate(packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    DECODER.with_borrow_mut(|decoder| {
        decoder.reset(true);
        let status = decoder.decompress(packed, plain, FlushDecompress::Finish).ok()?;
        matches!(status, Status::StreamEnd).then_some(decoder.total_out() as usize)
    })
}
