//! Encoded extents: from pclusters to plain bytes.
//!
//! [`plan`](super::plan) decides whether an extent comes from the cache, and where it is decoded
//! to; here it is done.

use super::gather::EncodedPart;
use super::plan::{DecodePlan, DecodeTarget, ReadHistory, plan};
use crate::cache::access_pattern::AccessPattern;
use crate::cache::admission::PastAccesses;
use crate::cache::byte_cache::{CachedBytes, SharedBytes};
use crate::cache::state::ImageState;
use crate::cache::workspaces::grow_to;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::encoded_extent::EncodedExtent;
use crate::map::extent::Extent;
use crate::map::extent::Pcluster;
use crate::options::read_policy::Retention;
use kiln_codec::{Decoder, Want};
use kiln_format::{Algorithm, Incompat};
use std::ops::Range;

/// A part of an extent that ends at most this many bytes from its start is decoded, together with
/// the bytes before it, into the reader's buffer; other parts into a workspace first. Readers'
/// buffers are not shared and never shrink, so they must stay short.
const BUFFER_MAX: usize = 256 << 10;

/// The longest block of Zstandard, in bytes of text.
const ZSTD_BLOCK_MAX_LEN: usize = 128 << 10;

/// Result of looking for an encoded extent.
enum CacheLookup {
    Cached {
        bytes: SharedBytes,
        is_hit: bool,
    },
    /// Nowhere: the reader must decode it to this target.
    Absent(DecodeTarget),
}

/// Decoded bytes.
pub(super) enum Encoded<'b> {
    /// A part of a cached extent; whether an earlier read had decoded it.
    Cached { bytes: SharedBytes, range: Range<usize>, is_hit: bool },
    /// In the reader's memory.
    Buffer(&'b [u8]),
}

/// Destination of decoded bytes.
enum Plain<'a> {
    /// The first ones of the extent.
    Front(&'a mut [u8]),
    /// Those from byte `start` on; all up to their end are decoded into a workspace.
    From { start: usize, part: &'a mut [u8] },
    /// The whole extent, into memory of its own.
    New(&'a mut Box<[u8]>),
}

/// The caches and the access history of this process.
impl ReadHistory for &ImageState {
    type Cached = SharedBytes;

    fn fits_cache(&self, encoded: &EncodedExtent) -> bool {
        ImageState::fits_cache(self, encoded)
    }

    fn cached(&self, encoded: &EncodedExtent) -> Option<SharedBytes> {
        self.decoded(encoded)
    }

    fn record(&mut self, encoded: &EncodedExtent, wanted: &Range<u64>) -> Option<PastAccesses> {
        self.access_history.record(encoded, wanted)
    }
}

impl<'a> Reader<'a> {
    /// Returns bytes `wanted` of an encoded extent: where the cache has them, or in the part of
    /// `buf` that is returned. `buf` grows to what that takes.
    pub(super) fn encoded<'b>(
        self,
        encoded: &EncodedExtent,
        wanted: Range<u64>,
        buf: &'b mut Vec<u8>,
        pattern: AccessPattern,
    ) -> Result<Encoded<'b>, ReadError> {
        let (start, end) = (wanted.start as usize, wanted.end as usize);
        match self.find(encoded, &wanted, pattern)? {
            CacheLookup::Cached { bytes, is_hit } => Ok(Encoded::Cached { bytes, range: start..end, is_hit }),
            // The front, or everything up to the last byte wanted: straight into the reader's
            // memory, which has room.
            CacheLookup::Absent(target) if start == 0 || end <= BUFFER_MAX => {
                let prefix = grow_to(buf, end);
                self.decode(encoded, Plain::Front(prefix), target, &[])?;
                Ok(Encoded::Buffer(&prefix[start..]))
            }
            CacheLookup::Absent(target) => {
                let part = grow_to(buf, end - start);
                self.decode(encoded, Plain::From { start, part }, target, &[])?;
                Ok(Encoded::Buffer(part))
            }
        }
    }

    /// Fills `buf` from byte `skip` of an encoded extent on.
    pub(super) fn read_encoded(
        self,
        encoded: &EncodedExtent,
        buf: &mut [u8],
        skip: u64,
        pattern: AccessPattern,
    ) -> Result<(), ReadError> {
        let wanted = skip..skip + buf.len() as u64;
        let part = wanted.start as usize..wanted.end as usize;
        match self.find(encoded, &wanted, pattern)? {
            CacheLookup::Cached { bytes, .. } => buf.copy_from_slice(&bytes[part]),
            CacheLookup::Absent(target) => {
                self.decode(encoded, Plain::part(part.start, buf), target, &[])?;
            }
        }
        Ok(())
    }

    /// Decodes a part of an extent, from the bytes of its pcluster that are at hand.
    pub(super) fn decode_part(self, part: EncodedPart<'_>, at_hand: &[u8]) -> Result<(), ReadError> {
        let EncodedPart { encoded, wanted, target, consumed, nid, dst } = part;
        let decoded = match target {
            DecodeTarget::Cache => self
                .decode_into_cache(&encoded, consumed, at_hand)
                .map(|bytes| self.take_part(&encoded, &bytes, wanted, dst)),
            target => self.decode(&encoded, Plain::part(wanted.start as usize, dst), target, at_hand),
        };
        decoded.map_err(|error| error.at_nid(nid))
    }

    /// Copies bytes `wanted` of a cached extent for its consumer.
    pub(super) fn take_part(self, encoded: &EncodedExtent, bytes: &SharedBytes, wanted: Range<u64>, dst: &mut [u8]) {
        dst.copy_from_slice(&bytes[wanted.start as usize..wanted.end as usize]);
        self.consume(encoded, bytes, dst.len());
    }

    /// Looks for an extent in the cache; decodes it there if that is the plan.
    fn find(
        self,
        encoded: &EncodedExtent,
        wanted: &Range<u64>,
        pattern: AccessPattern,
    ) -> Result<CacheLookup, ReadError> {
        let len = (wanted.end - wanted.start) as usize;
        let (bytes, is_hit) = match plan(&mut self.volume.state(), encoded, wanted, pattern) {
            DecodePlan::Copy(bytes) => {
                self.volume.counters.hit();
                (bytes, true)
            }
            DecodePlan::Decode { target: DecodeTarget::Cache, consumed } => {
                (self.decode_into_cache(encoded, consumed, &[])?, false)
            }
            DecodePlan::Decode { target, .. } => return Ok(CacheLookup::Absent(target)),
        };
        self.consume(encoded, &bytes, len);
        Ok(CacheLookup::Cached { bytes, is_hit })
    }

    /// Notes that the consumer gets `len` bytes of a cached extent. If the consumer is a cache
    /// itself, which keeps them, the extent leaves the cache with its last byte: its memory is
    /// still in the processor's caches when the next extent reuses it.
    pub(super) fn consume(self, encoded: &EncodedExtent, bytes: &SharedBytes, len: usize) {
        if self.volume.policy.retention == Retention::UntilConsumed && bytes.consume(len) {
            self.volume.state().decoded.remove(encoded);
        }
    }

    /// Returns the extent, from the cache or decoded into it, once for all threads that want it.
    /// Its consumer got `consumed` bytes of it before. `at_hand`: as for [`Image::decode`].
    pub(super) fn decode_into_cache(
        self,
        encoded: &EncodedExtent,
        consumed: u64,
        at_hand: &[u8],
    ) -> Result<SharedBytes, ReadError> {
        if let Some(bytes) = self.volume.state().pinned.get(encoded) {
            self.volume.counters.hit();
            return Ok(bytes);
        }
        let mut is_ours = false;
        let bytes = self.volume.state().decoded.get_or_load(encoded, || {
            is_ours = true;
            self.load(encoded, consumed, at_hand)
        })?;
        if !is_ours {
            self.volume.counters.avoided();
        }
        Ok(bytes)
    }

    /// Decodes an extent for the cache.
    pub(super) fn load(self, encoded: &EncodedExtent, consumed: u64, at_hand: &[u8]) -> Result<SharedBytes, ReadError> {
        let mut bytes = Box::default();
        self.decode(encoded, Plain::New(&mut bytes), DecodeTarget::Cache, at_hand)?;
        Ok(CachedBytes::with_consumed(bytes, consumed))
    }

    /// Decodes an encoded extent whole, past the cache, to find out whether that is possible.
    pub(crate) fn verify_encoded(self, extent: &Extent) -> Result<(), ReadError> {
        let encoded = EncodedExtent::of(extent)?;
        self.decode(&encoded, Plain::From { start: encoded.len(), part: &mut [] }, DecodeTarget::Scratch, &[])?;
        self.volume.state().sources.with(|source| {
            let Pcluster { pa, plen, .. } = encoded.pcluster;
            let stream = self.stream(&encoded, self.pcluster(&encoded, source)?)?;
            Decoder::verify(encoded.algorithm, stream, encoded.llen as usize)
                .map_err(|error| ReadError::stream(pa, plen, error))
        })
    }

    /// Decodes the first `dst.len()` bytes of an extent, past the cache.
    pub(super) fn decode_front(
        self,
        encoded: &EncodedExtent,
        dst: &mut [u8],
        target: DecodeTarget,
        at_hand: &[u8],
    ) -> Result<(), ReadError> {
        self.decode(encoded, Plain::Front(dst), target, at_hand)
    }

    /// Decodes an extent as far as `plain` wants it. `at_hand`: the first bytes of its pcluster, if
    /// they were fetched before; the others are fetched if they are needed.
    fn decode(
        self,
        encoded: &EncodedExtent,
        mut plain: Plain<'_>,
        target: DecodeTarget,
        at_hand: &[u8],
    ) -> Result<(), ReadError> {
        let (len, plen) = (plain.end(encoded), encoded.pcluster.plen as usize);
        self.volume.counters.decoded(target, len);
        if at_hand.is_empty() {
            if let Some(bytes) = self.borrow_pcluster(&encoded.pcluster)? {
                return self.decode_from(encoded, bytes, &mut plain);
            }
        } else {
            let decoded = self.decode_from(encoded, at_hand, &mut plain);
            // If the front is not enough, that says nothing about the stream.
            if decoded.is_ok() || at_hand.len() == plen {
                return decoded;
            }
        }
        self.volume.state().sources.with(|source| {
            let mut fetched_len = at_hand.len();
            if fetched_len == 0 {
                fetched_len = self.fetched_len(encoded, len);
                let front = grow_to(source, fetched_len);
                self.read_pcluster(&encoded.pcluster, 0, front)?;
                let decoded = self.decode_from(encoded, front, &mut plain);
                if decoded.is_ok() || fetched_len == plen {
                    return decoded;
                }
            } else {
                grow_to(source, fetched_len).copy_from_slice(at_hand);
            }
            let bytes = grow_to(source, plen);
            self.read_pcluster(&encoded.pcluster, fetched_len as u64, &mut bytes[fetched_len..])?;
            self.decode_from(encoded, bytes, &mut plain)
        })
    }

    /// Returns the bytes from the start of its pcluster on that are fetched for the first `len`
    /// bytes of an extent.
    pub(super) fn fetched_len(self, encoded: &EncodedExtent, len: usize) -> usize {
        match self.is_unpadded(encoded) {
            true => encoded.pcluster.plen as usize,
            false => encoded.fetched_for(len) as usize,
        }
    }

    /// Decodes an extent as far as `plain` wants it from the bytes of its pcluster, or from the
    /// first ones.
    fn decode_from(self, encoded: &EncodedExtent, pcluster: &[u8], plain: &mut Plain<'_>) -> Result<(), ReadError> {
        let Pcluster { pa, plen, .. } = encoded.pcluster;
        let stream = self.stream(encoded, pcluster)?;
        let len = plain.end(encoded);
        let is_whole = len == encoded.len() && !encoded.partial && pcluster.len() == plen as usize;
        let want = if is_whole { Want::Whole } else { Want::Prefix };
        let decode = |decoder: &mut Decoder, dst: &mut [u8]| match self.is_unpadded(encoded) {
            true => decoder.decode_lz4_unpadded(stream, dst),
            false => decoder.decode(encoded.algorithm, stream, dst, want),
        };
        // A block of Zstandard is decoded whole in any case, and costs least without a window
        // between it and its reader.
        let is_short = encoded.algorithm == Algorithm::Zstd && encoded.len() <= ZSTD_BLOCK_MAX_LEN;
        let decodes_all = !is_whole && is_short && !encoded.partial && pcluster.len() == plen as usize;
        let decoder_len = self.volume.limits.memory_for(encoded.algorithm, len);
        let plain_len = match plain {
            _ if decodes_all => encoded.len() as u64,
            Plain::Front(_) => 0,
            Plain::From { .. } | Plain::New(_) => len as u64,
        };
        let decoded = self.volume.state().workspaces.with(decoder_len, plain_len, |workspace| match plain {
            Plain::Front(dst) if decodes_all => {
                let all = grow_to(&mut workspace.scratch, encoded.len());
                match workspace.decoder.decode(encoded.algorithm, stream, all, Want::Whole) {
                    Ok(()) => dst.copy_from_slice(&all[..len]),
                    // The defect may be behind the bytes that are wanted.
                    Err(_) => decode(&mut workspace.decoder, dst)?,
                }
                Ok(())
            }
            Plain::From { start, part } if decodes_all => {
                let all = grow_to(&mut workspace.scratch, encoded.len());
                if workspace.decoder.decode(encoded.algorithm, stream, all, Want::Whole).is_err() {
                    decode(&mut workspace.decoder, &mut all[..len])?;
                }
                part.copy_from_slice(&all[*start..len]);
                Ok(())
            }
            Plain::Front(dst) => decode(&mut workspace.decoder, dst),
            Plain::From { start, part } => {
                let prefix = grow_to(&mut workspace.scratch, len);
                decode(&mut workspace.decoder, prefix)?;
                part.copy_from_slice(&prefix[*start..]);
                Ok(())
            }
            Plain::New(bytes) => {
                **bytes = vec![0; len].into_boxed_slice();
                decode(&mut workspace.decoder, bytes)
            }
        });
        decoded.map_err(|error| ReadError::stream(pa, plen, error))
    }
}

impl<'a> Plain<'a> {
    /// Returns the bytes from byte `start` of an extent on.
    fn part(start: usize, part: &'a mut [u8]) -> Self {
        if start == 0 { Plain::Front(part) } else { Plain::From { start, part } }
    }
}

impl Plain<'_> {
    /// Returns the number of bytes of an extent that are decoded.
    fn end(&self, encoded: &EncodedExtent) -> usize {
        match self {
            Plain::Front(dst) => dst.len(),
            Plain::From { start, part } => start + part.len(),
            Plain::New(_) => encoded.len(),
        }
    }
}

impl<'a> Reader<'a> {
    /// Returns true if the stream starts at the front of its pcluster, as in images from before
    /// Linux 5.4.
    fn is_unpadded(self, encoded: &EncodedExtent) -> bool {
        encoded.algorithm == Algorithm::Lz4 && !self.superblock().incompat.contains(Incompat::LZ4_0PADDING)
    }

    /// Returns the bytes of a pcluster: in its source's memory, or read into `buf`.
    fn pcluster<'b>(&'b self, encoded: &EncodedExtent, buf: &'b mut Vec<u8>) -> Result<&'b [u8], ReadError> {
        if let Some(bytes) = self.borrow_pcluster(&encoded.pcluster)? {
            return Ok(bytes);
        }
        let bytes = grow_to(buf, encoded.pcluster.plen as usize);
        self.read_pcluster(&encoded.pcluster, 0, bytes)?;
        Ok(bytes)
    }

    /// Returns the stream in the bytes of its pcluster.
    fn stream<'b>(self, encoded: &EncodedExtent, pcluster: &'b [u8]) -> Result<&'b [u8], ReadError> {
        if self.is_unpadded(encoded) {
            return Ok(pcluster);
        }
        let Pcluster { pa, plen, .. } = encoded.pcluster;
        let block_bits = self.superblock().block_bits;
        strip_padding(pcluster, block_bits.len() - block_bits.within(pa))
            .ok_or_else(|| ReadError::corrupt("pcluster", pa, "plen", plen.into(), "only zeros in its first block"))
    }
}

/// Returns the stream in a pcluster: the bytes behind the zeros in front, which end within the
/// first `in_block` bytes, its first block.
fn strip_padding(pcluster: &[u8], in_block: u64) -> Option<&[u8]> {
    let start = pcluster.iter().take(in_block as usize).position(|&byte| byte != 0)?;
    Some(&pcluster[start..])
}
