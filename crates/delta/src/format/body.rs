//! The body of a patch: what makes the new image, in blocks of three streams each.
//!
//! The control stream has groups of items, which make bytes of the new image front to back, and behind each group how the text of its items is made.
//! The streams of differences and of literals have what the control stream counts. Each stream is one zstd frame over all blocks, flushed at
//! the end of each: so a reader needs no more of a patch than one block at a time.

use kiln_builder::RefillEnd;

/// Text of one item that is encoded again, at most, in bytes: what a build fills front to back.
pub(crate) const UNIT_TEXT_MAX_LEN: u64 = (8 << 20) + (128 << 10);
/// Stored bytes of one such item, at most.
pub(crate) const UNIT_STORED_MAX_LEN: u64 = UNIT_TEXT_MAX_LEN + (1 << 20);
/// A block ends behind the item with which its text reaches this length, in bytes.
pub(super) const BLOCK_TEXT_LEN: u64 = 8 << 20;
/// One compressed piece of a block, at most, in bytes: what literals of the longest items may take.
pub(super) const PIECE_MAX_LEN: u32 = 24 << 20;
/// Text of an item that is not encoded, at most, in bytes. Longer text is several items.
pub(crate) const RAW_MAX_LEN: u64 = 4 << 20;
/// log2 of the windows of the streams in bytes.
pub(super) const WINDOW_LOGS: [u32; STREAMS] = [20, 22, 23];
pub(super) const STREAMS: usize = 3;
/// Bytes of the lengths in front of a block.
pub(crate) const FRAME_LENS_LEN: usize = 4 * STREAMS;
pub(super) const CONTROL: usize = 0;
pub(super) const DIFFERENCES: usize = 1;
pub(super) const LITERALS: usize = 2;
/// Level of compression: more gains little and takes several times as long.
pub(super) const LEVEL: i32 = 19;
/// Bytes that are decompressed at once.
pub(super) const DECODED_LEN: usize = 64 << 10;
/// Bytes of a block's checksum.
pub(super) const CHECK_LEN: usize = 8;

pub(super) const END: u8 = 0;
pub(super) const OLD: u8 = 1;
pub(super) const RAW: u8 = 2;
pub(super) const UNIT: u8 = 3;
pub(super) const TAIL: u8 = 4;

/// Items of a group, at most.
pub(crate) const GROUP_ITEMS_MAX: usize = 1 << 14;

/// What makes the next bytes of the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Bytes of the old image.
    Old { pos: u64, len: u64 },
    /// Text as it is.
    Raw { len: u64 },
    /// Text encoded again: the first `stored_len` bytes of what that gives.
    Unit { encoder: usize, text_len: u64, stored_len: u64, end: RefillEnd },
    /// Text encoded as one pcluster, which `room` bytes are left for.
    Tail { encoder: usize, text_len: u64, stored_len: u64, room: u64 },
}

impl Item {
    /// Bytes of the new image.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Item::Old { len, .. } | Item::Raw { len } => len,
            Item::Unit { stored_len, .. } | Item::Tail { stored_len, .. } => stored_len,
        }
    }

    /// Bytes of its text.
    pub(crate) fn text_len(&self) -> u64 {
        match *self {
            Item::Old { .. } => 0,
            Item::Raw { len } => len,
            Item::Unit { text_len, .. } | Item::Tail { text_len, .. } => text_len,
        }
    }
}

/// What makes the next bytes of text. Positions are in the [old space](crate::old_space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes of the patch.
    Literal { len: u64 },
    /// Bytes of the old space.
    Copy { pos: u64, len: u64 },
    /// Bytes of the old space, to each of which one of the patch is added.
    Add { pos: u64, len: u64 },
}

/// The first bytes of BLAKE3 of a block: damage shows where it is.
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
