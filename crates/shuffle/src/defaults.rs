//! Default choices.

/// Knowledge about the order in which samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StoredOrder {
    /// Neighbours may be similar, for example with a directory for each class.
    #[default]
    Unknown,
    /// Stored in random order, or found to be: the [`dispersion`](crate::report::dispersion()) of
    /// batches in stored order is at most [`SHUFFLED_DISPERSION`].
    Shuffled,
}

/// Highest dispersion of a stored order that counts as shuffled.
pub const SHUFFLED_DISPERSION: f64 = 1.25;

/// Kind of storage that blocks are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StorageKind {
    /// A local SSD.
    LocalFlash,
    /// A rotating disk, NFS, Lustre and similar; also the choice if the storage is unknown.
    #[default]
    Disk,
    /// HTTP or an object store.
    Remote,
}

/// Returns the number of stored bytes at which to cut blocks: 256 KiB, 4 MiB or 16 MiB. A block
/// costs one seek or request, so reading it must take longer than that.
pub fn block_bytes(kind: StorageKind) -> u64 {
    match kind {
        StorageKind::LocalFlash => 256 << 10,
        StorageKind::Disk => 4 << 20,
        StorageKind::Remote => 16 << 20,
    }
}

/// Returns the most stored bytes that the window of a lane may have: 1 GiB, or a quarter of the
/// memory if that is less. Two windows are in the page cache, or another cache of the reader, at
/// once.
pub fn window_bytes(memory_bytes: Option<u64>) -> u64 {
    memory_bytes.map_or(1 << 30, |bytes| (bytes / 4).min(1 << 30))
}

/// Recommended size of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChoice {
    /// Value for [`OrderChoices::window_blocks`](crate::OrderChoices::window_blocks).
    pub blocks: u32,
    /// Value without the limit of bytes: more than `blocks` if the limit applied.
    pub wanted: u32,
}

/// Returns the recommended number of blocks in the window of a lane: 64 if data is stored in random
/// order; else at least 256, and 4 for each sample that a batch takes from the lane, so that
/// samples of a batch seldom share a block. It is limited to `window_bytes` stored bytes, at
/// `block_bytes` per block, but is at least 1. `batch_global` and `lanes` are those of
/// [`OrderChoices`](crate::OrderChoices).
///
/// ```
/// use kiln_shuffle::defaults::{StoredOrder, window_blocks};
///
/// assert_eq!(window_blocks(StoredOrder::Unknown, (1024, 8), 4 << 20, 1 << 40).blocks, 512);
/// let choice = window_blocks(StoredOrder::Unknown, (256, 1), 4 << 20, 1 << 30);
/// assert_eq!((choice.blocks, choice.wanted), (256, 1024));
/// ```
pub fn window_blocks(
    order: StoredOrder,
    (batch_global, lanes): (u32, u32),
    block_bytes: u64,
    window_bytes: u64,
) -> WindowChoice {
    let wanted = match order {
        StoredOrder::Shuffled => 64,
        StoredOrder::Unknown => (batch_global / lanes.max(1)).saturating_mul(4).max(256),
    };
    let cap = (window_bytes / block_bytes.max(1)).clamp(1, u64::from(u32::MAX)) as u32;
    WindowChoice { blocks: wanted.min(cap), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_capped_by_bytes_and_never_empty() {
        let unlimited = u64::MAX;
        for (order, batch_global, lanes, block_bytes, window_bytes, blocks, wanted) in [
            (StoredOrder::Unknown, 64, 1, 4 << 20, unlimited, 256, 256),
            (StoredOrder::Unknown, 256, 1, 4 << 20, unlimited, 1024, 1024),
            (StoredOrder::Unknown, 8192, 8, 16 << 20, 1 << 30, 64, 4096),
            (StoredOrder::Shuffled, 8192, 8, 16 << 20, unlimited, 64, 64),
            (StoredOrder::Shuffled, 8192, 8, 16 << 20, 1 << 20, 1, 64),
            (StoredOrder::Unknown, u32::MAX, 0, 0, unlimited, u32::MAX, u32::MAX),
        ] {
            let choice = window_blocks(order, (batch_global, lanes), block_bytes, window_bytes);
            assert_eq!(choice, WindowChoice { blocks, wanted }, "{order:?} {batch_global} {lanes}");
        }
        assert_eq!(window_bytes(None), 1 << 30);
        assert_eq!(window_bytes(Some(2 << 30)), 512 << 20);
        assert_eq!(window_bytes(Some(64 << 30)), 1 << 30);
        assert_eq!(block_bytes(StorageKind::default()), 4 << 20);
    }
}
