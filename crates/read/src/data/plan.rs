//! How a part of an encoded extent is decoded.

use crate::cache::admission::Access;
use crate::map::pcluster::EncodedExtent;
use std::ops::Range;

/// A front of at most one part in this many of an extent is decoded alone.
const SMALL_FRONT: u64 = 8;

/// Where decoded bytes go, and how many are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeMode {
    /// The front of the extent, straight into the destination.
    IntoDestination,
    /// The whole extent, into the cache.
    IntoCache,
    /// All up to the last byte wanted, into scratch memory.
    IntoScratch,
}

impl DecodeMode {
    /// The mode for bytes `wanted` of an extent that is not in the cache. `fits_cache`: whether the cache takes extents of its length.
    pub(crate) fn of(encoded: &EncodedExtent, fits_cache: bool, wanted: &Range<u64>, access: Access) -> Self {
        let llen = u64::from(encoded.llen);
        let is_whole = wanted.end == llen;
        let is_small_front = wanted.end * SMALL_FRONT <= llen;
        match (wanted.start, access) {
            (0, _) if is_whole => DecodeMode::IntoDestination,
            (0, Access::First) if is_small_front => DecodeMode::IntoDestination,
            _ if !fits_cache => DecodeMode::IntoScratch,
            (0, _) | (_, Access::Repeated | Access::Random) => DecodeMode::IntoCache,
            (_, Access::First | Access::StridePast) => DecodeMode::IntoScratch,
        }
    }

    /// Bytes that are decoded for bytes up to `end` of an extent.
    pub(crate) fn decoded_len(self, encoded: &EncodedExtent, end: u64) -> u64 {
        match self {
            DecodeMode::IntoDestination | DecodeMode::IntoScratch => end,
            DecodeMode::IntoCache => encoded.llen.into(),
        }
    }
}
