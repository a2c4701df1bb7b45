//! The decode planner: whether a part of an encoded extent comes from the cache or is decoded, and
//! how.
//!
//! There are four ways to get a part of an encoded extent:
//!
//! 1. The extent is in the cache, or [pinned](crate::Image::pin): the part is copied.
//! 2. The whole extent is wanted: it is decoded into the destination, and the cache is left to
//!    other extents.
//! 3. A small part of its front is wanted, or another part by a reader that seems to read at
//!    random, as this is the first access to the extent, or by a reader whose stride leaves the
//!    extent: it is decoded up to the last byte wanted. Streams decode front to back, so on average
//!    that is half of the extent.
//! 4. Else, where its front is wanted or another part was wanted before, or where the file's
//!    [access pattern](crate::cache::access_pattern) is random, more will be wanted soon: the
//!    extent is admitted to the cache and decoded whole, once for all threads that want it
//!    meanwhile. An extent too long for the cache is decoded as in 3. At random, 4 KiB at a time,
//!    admission halves what is decoded: the library's CPU seconds are 0.60 (zstd) and 0.89 (lz4,
//!    where a page fault of the cache costs as much as decoding a page) of those without.
//!
//! The plan depends on the request and on [`ReadHistory`] alone. [`Image`](crate::image::Image)
//! reads with the real history, and explains a cold read with a model of one.

use crate::cache::access_pattern::AccessPattern;
use crate::cache::admission::{Access, PastAccesses};
use crate::map::encoded_extent::EncodedExtent;
use std::ops::Range;

/// A front of at most one part in this many of an extent is decoded alone.
const SMALL_FRONT: u64 = 8;

/// Destination of decoded bytes, which decides how many are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeTarget {
    /// The front of the extent, straight into the destination.
    Destination,
    /// The whole extent, into the cache.
    Cache,
    /// All up to the last byte wanted, into scratch memory.
    Scratch,
}

/// State that a plan depends on beside the request: the extents that are decoded, and the accesses
/// before this one.
pub(crate) trait ReadHistory {
    /// An extent in the cache, or a pinned one.
    type Cached;

    /// Returns true if an extent of this length may enter the cache.
    fn fits_cache(&self, encoded: &EncodedExtent) -> bool;

    /// Returns the extent, if it is pinned or in the cache.
    fn cached(&self, encoded: &EncodedExtent) -> Option<Self::Cached>;

    /// Remembers an access to bytes `wanted` of an extent that is not in the cache. Returns what is
    /// remembered of those before.
    fn record(&mut self, encoded: &EncodedExtent, wanted: &Range<u64>) -> Option<PastAccesses>;
}

/// Plan for a part of an encoded extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodePlan<C> {
    /// Copy it: the extent is in the cache.
    Copy(C),
    /// Decode it.
    Decode {
        /// Destination.
        target: DecodeTarget,
        /// Bytes of the extent that earlier accesses got without the cache.
        consumed: u64,
    },
}

impl DecodeTarget {
    /// Returns the bytes that are decoded for bytes up to `end` of an extent.
    pub(crate) fn decoded_len(self, encoded: &EncodedExtent, end: u64) -> u64 {
        match self {
            DecodeTarget::Destination | DecodeTarget::Scratch => end,
            DecodeTarget::Cache => encoded.llen.into(),
        }
    }

    /// Returns the target for bytes `wanted` of an extent that is not in the cache.
    fn of(encoded: &EncodedExtent, fits_cache: bool, wanted: &Range<u64>, access: Access) -> Self {
        let llen = u64::from(encoded.llen);
        let is_whole = wanted.end == llen;
        let is_small_front = wanted.end * SMALL_FRONT <= llen;
        match (wanted.start, access) {
            (0, _) if is_whole => DecodeTarget::Destination,
            (0, Access::First) if is_small_front => DecodeTarget::Destination,
            _ if !fits_cache => DecodeTarget::Scratch,
            (0, _) | (_, Access::Repeated | Access::Random) => DecodeTarget::Cache,
            (_, Access::First | Access::StridePast) => DecodeTarget::Scratch,
        }
    }
}

/// Plans a read of bytes `wanted` of an encoded extent, and remember it in the history.
pub(crate) fn plan<H: ReadHistory>(
    history: &mut H,
    encoded: &EncodedExtent,
    wanted: &Range<u64>,
    pattern: AccessPattern,
) -> DecodePlan<H::Cached> {
    let decode = |target, consumed| DecodePlan::Decode { target, consumed };
    if let Some(cached) = history.cached(encoded) {
        return DecodePlan::Copy(cached);
    }
    if !history.fits_cache(encoded) {
        return decode(DecodeTarget::of(encoded, false, wanted, Access::First), 0);
    }
    let is_whole = wanted.start == 0 && wanted.end == u64::from(encoded.llen);
    let past = if is_whole { None } else { history.record(encoded, wanted) };
    let access = match pattern {
        AccessPattern::Sequential => Access::after(past.map(|past| past.end), wanted, encoded.llen.into()),
        AccessPattern::Random => Access::Random,
    };
    decode(DecodeTarget::of(encoded, true, wanted, access), past.map_or(0, |past| past.len.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::extent::Pcluster;
    use kiln_format::Algorithm;

    const LLEN: u32 = 1000;

    /// Remembers one extent, and caches what is planned so.
    #[derive(Default)]
    struct OneExtent {
        is_cached: bool,
        is_too_long: bool,
        past: Option<PastAccesses>,
    }

    impl ReadHistory for OneExtent {
        type Cached = ();

        fn fits_cache(&self, _: &EncodedExtent) -> bool {
            !self.is_too_long
        }

        fn cached(&self, _: &EncodedExtent) -> Option<()> {
            self.is_cached.then_some(())
        }

        fn record(&mut self, _: &EncodedExtent, wanted: &Range<u64>) -> Option<PastAccesses> {
            let len = self.past.map_or(0, |past| past.len) + (wanted.end - wanted.start) as u32;
            self.past.replace(PastAccesses { end: wanted.end, len })
        }
    }

    /// Returns the targets of these reads, one after the other; `None` for a copy from the cache.
    fn targets(mut history: OneExtent, reads: &[Range<u64>], pattern: AccessPattern) -> Vec<Option<DecodeTarget>> {
        let pcluster = Pcluster { device: 0, inline: None, pa: 0, plen: 500 };
        let encoded = EncodedExtent { pcluster, algorithm: Algorithm::Zstd, partial: false, llen: LLEN };
        let target = |wanted| match plan(&mut history, &encoded, wanted, pattern) {
            DecodePlan::Copy(()) => None,
            DecodePlan::Decode { target, consumed } => {
                history.is_cached |= target == DecodeTarget::Cache;
                assert!(consumed < u64::from(LLEN), "{consumed}");
                Some(target)
            }
        };
        reads.iter().map(target).collect()
    }

    #[test]
    fn extents_are_admitted_at_the_second_access() {
        use DecodeTarget::{Cache, Destination, Scratch};
        let planned = |reads: &[_]| targets(OneExtent::default(), reads, AccessPattern::Sequential);
        let whole = 0..LLEN.into();
        assert_eq!(planned(&[whole.clone(), whole.clone()]), [Some(Destination); 2]);
        assert_eq!(planned(&[0..100, 100..200, 200..300]), [Some(Destination), Some(Cache), None]);
        assert_eq!(planned(&[0..500, 500..1000]), [Some(Cache), None]);
        assert_eq!(planned(&[300..400, 400..500, 0..100]), [Some(Scratch), Some(Cache), None]);
        // A stride that leaves the extent with its next step.
        assert_eq!(planned(&[100..110, 700..710]), [Some(Scratch); 2]);
    }

    #[test]
    fn random_files_admit_at_once_and_long_extents_never() {
        use DecodeTarget::{Cache, Destination, Scratch};
        let reads = [300..400, 600..700, 0..1000];
        assert_eq!(targets(OneExtent::default(), &reads, AccessPattern::Random), [Some(Cache), None, None]);
        for pattern in [AccessPattern::Sequential, AccessPattern::Random] {
            let history = OneExtent { is_too_long: true, ..OneExtent::default() };
            assert_eq!(targets(history, &reads, pattern), [Some(Scratch), Some(Scratch), Some(Destination)]);
        }
    }
}
