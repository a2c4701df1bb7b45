//! Orders, through the public interface.

mod golden;
mod laws;
mod simulation;

use kiln_shuffle::{Blocks, StoredSample};

/// Returns blocks of `block_len` samples of equal length, stored in this order.
fn blocks(stored_order: impl IntoIterator<Item = u32>, block_len: u64) -> Blocks {
    const SAMPLE_LEN: u64 = 100;
    let places = stored_order.into_iter().enumerate();
    let stored = places.map(|(at, sample)| StoredSample {
        sample,
        device: 0,
        address: at as u64 * SAMPLE_LEN,
        stored_len: SAMPLE_LEN,
    });
    Blocks::cut(stored, block_len * SAMPLE_LEN).unwrap()
}
