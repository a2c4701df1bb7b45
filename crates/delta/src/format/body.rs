//! The body of a patch: blocks of three streams that describe the new image.
//!
//! The control stream has groups of items, which make the new image front to back. After each group
//! follow the pieces that make the text of its items. The streams of differences and of literals
//! hold the bytes that the control stream counts. Each stream is one zstd frame across all blocks,
//! flushed at the end of each block, so a reader needs only one block of a patch at a time.

use kiln_builder::RefillEnd;

/// Maximum length in bytes of the text of an item that is encoded again: what a build fills at
/// once.
pub(crate) const UNIT_TEXT_MAX_LEN: u64 = (8 << 20) + (128 << 10);
/// Maximum length in bytes of the stored form of such an item.
pub(crate) const UNIT_STORED_MAX_LEN: u64 = UNIT_TEXT_MAX_LEN + (1 << 20);
/// Length in bytes of text after which a block ends, at the end of an item.
pub(super) const BLOCK_TEXT_LEN: u64 = 8 << 20;
/// Maximum compressed length in bytes of one stream of a block, enough for literals of the longest
/// items.
pub(super) const PIECE_MAX_LEN: u32 = 24 << 20;
/// Maximum length in bytes of the text of an item that is not encoded. Longer text becomes several
/// items.
pub(crate) const RAW_MAX_LEN: u64 = 4 << 20;
/// log2 of the windows of the streams in bytes.
pub(super) const WINDOW_LOGS: [u32; STREAMS] = [20, 22, 23];
pub(super) const STREAMS: usize = 3;
/// Length in bytes of the frame lengths that precede a block.
pub(crate) const FRAME_LENS_LEN: usize = 4 * STREAMS;
pub(super) const CONTROL: usize = 0;
pub(super) const DIFFERENCES: usize = 1;
pub(super) const LITERALS: usize = 2;
/// Compression level; higher ones gain little and take several times as long.
pub(super) const LEVEL: i32 = 19;
/// Number of bytes decompressed at once.
pub(super) const DECODED_LEN: usize = 64 << 10;
/// Length in bytes of a block's checksum.
pub(super) const CHECK_LEN: usize = 8;

pub(super) const END: u8 = 0;
pub(super) const OLD: u8 = 1;
pub(super) const RAW: u8 = 2;
pub(super) const UNIT: u8 = 3;
pub(super) const TAIL: u8 = 4;

/// Maximum number of items in a group.
pub(crate) const GROUP_ITEMS_MAX: usize = 1 << 14;

/// Source of the next bytes of the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Bytes of the old image.
    Old { pos: u64, len: u64 },
    /// Text, unencoded.
    Raw { len: u64 },
    /// Text encoded again: the first `stored_len` bytes of the result.
    Unit { encoder: usize, text_len: u64, stored_len: u64, end: RefillEnd },
    /// Text encoded as one pcluster of at most `room` bytes.
    Tail { encoder: usize, text_len: u64, stored_len: u64, room: u64 },
}

impl Item {
    /// Returns the number of bytes of the new image.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Item::Old { len, .. } | Item::Raw { len } => len,
            Item::Unit { stored_len, .. } | Item::Tail { stored_len, .. } => stored_len,
        }
    }

    /// Returns the number of bytes of its text.
    pub(crate) fn text_len(&self) -> u64 {
        match *self {
            Item::Old { .. } => 0,
            Item::Raw { len } => len,
            Item::Unit { text_len, .. } | Item::Tail { text_len, .. } => text_len,
        }
    }
}

/// Source of the next bytes of text. Positions are in the [old space](crate::old_space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchPiece {
    /// Bytes of the literal stream.
    Literal { len: u64 },
    /// Bytes of the old space.
    Copy { pos: u64, len: u64 },
    /// Bytes of the old space, to each of which a byte of the difference stream is added.
    Add { pos: u64, len: u64 },
}

/// Returns the checksum of a block, the first bytes of its BLAKE3 digest, so that damage is found
/// where it is.
pub(super) fn check(lens: &[u8], pieces: &[u8]) -> [u8; CHECK_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(lens).update(pieces);
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK_LEN]);
    check
}

pub(super) fn number_of(end: RefillEnd) -> u64 {
    match end {
        RefillEnd::Padded => 0,
        RefillEnd::Open => 1,
        RefillEnd::Fragments => 2,
        RefillEnd::Inline(room) => 3 + u64::from(room),
    }
}
