//! Encoded extents: from pclusters to plain bytes.
//!
//! There are four ways to get a part of an encoded extent:
//!
//! 1. it is in the cache of decoded extents: copy;
//! 2. it is wanted whole: decode into the destination, and leave the cache to those who need it;
//! 3. a small part of its front is wanted, or another part by somebody who seems to read here and there, as nobody has looked
//!    at this extent lately, or by somebody whose strides leave it: decode up to the last byte wanted. Streams decode front to
//!    back, so on average that is half of it;
//! 4. else, where its front is wanted or another part was wanted before, or where its file is read at random
//!    ([`access_pattern`](crate::cache::access_pattern)), more will be wanted soon: decode it whole into the cache, once for all who ask meanwhile. An
//!    extent too long for the cache takes way 3. At random, 4 KiB at a time, that halves what is decoded: the library's CPU
//!    seconds are 0.60 (zstd) and 0.89 (lz4, where a page fault of the cache costs as much as decoding a page) of those without.

use crate::cache::access_pattern::Course;
use crate::cache::admission::Touch;
use crate::cache::byte_cache::{Bytes, Text};
use crate::cache::state::Memory;
use crate::cache::workspaces::sized;
use crate::error::ReadError;
use crate::image::{Core, Image};
use crate::map::extent::Extent;
use crate::map::pcluster::{Pcluster, Stored};
use crate::options::Reader;
use crate::stats::Decoded;
use kiln_codec::{Decoder, Want};
use kiln_format::{Algorithm, Incompat};
use std::ops::Range;

/// A front of at most one part in this many of an extent is decoded alone.
const SMALL_FRONT: u64 = 8;
/// A part of an extent that ends this far from its start at most is decoded with what is before it into the reader's buffer; else
/// into a workspace first, for buffers of readers are not shared, and stay as long as they once were.
const BUFFER_MAX: usize = 256 << 10;

/// How part of an encoded extent is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The front, into the destination.
    Direct,
    /// The whole extent, into the cache.
    Cache,
    /// All up to the last byte wanted, into scratch memory.
    Scratch,
}

impl Way {
    /// Bytes that are decoded for bytes up to `end` of an extent.
    pub fn decoded(self, stored: &Stored, end: u64) -> u64 {
        match self {
            Way::Direct | Way::Scratch => end,
            Way::Cache => stored.llen.into(),
        }
    }

    fn decoded_how(self) -> Decoded {
        match self {
            Way::Direct => Decoded::Direct,
            Way::Cache => Decoded::Kept,
            Way::Scratch => Decoded::Scratch,
        }
    }
}

/// Where an encoded extent is.
enum Found {
    Cached {
        bytes: Bytes,
        is_hit: bool,
    },
    /// It must be decoded, in this way, by who wants it.
    Nowhere(Decoded),
}

/// Decoded bytes.
pub(crate) enum Encoded<'b> {
    /// This part of them; whether they were decoded before.
    Cached { bytes: Bytes, range: Range<usize>, is_hit: bool },
    /// In the reader's memory.
    Buffer(&'b [u8]),
}

/// Where decoded bytes go.
enum Plain<'a> {
    /// The first ones of the extent.
    Front(&'a mut [u8]),
    /// Those from byte `start` on; what is before them is decoded into a workspace.
    From { start: usize, part: &'a mut [u8] },
    /// The whole extent, into memory of its own.
    New(&'a mut Box<[u8]>),
}

impl Image {
    /// Bytes `wanted` of an encoded extent: where the cache has them, or in the part of `buf` that is returned. `buf` grows to
    /// what that takes.
    pub(crate) fn encoded<'b>(
        &self,
        stored: &Stored,
        wanted: Range<u64>,
        buf: &'b mut Vec<u8>,
        course: Course,
    ) -> Result<Encoded<'b>, ReadError> {
        let (start, end) = (wanted.start as usize, wanted.end as usize);
        match self.find(stored, &wanted, course)? {
            Found::Cached { bytes, is_hit } => Ok(Encoded::Cached { bytes, range: start..end, is_hit }),
            // The front, or everything up to the last byte wanted: straight into the reader's memory, which has room.
            Found::Nowhere(how) if start == 0 || end <= BUFFER_MAX => {
                let prefix = sized(buf, end);
                self.decode_front(stored, prefix, how)?;
                Ok(Encoded::Buffer(&prefix[start..]))
            }
            Found::Nowhere(how) => {
                let part = sized(buf, end - start);
                self.decode(stored, Plain::From { start, part }, how)?;
                Ok(Encoded::Buffer(part))
            }
        }
    }

    /// Fill `buf` from byte `skip` of an encoded extent on.
    pub(crate) fn read_encoded(
        &self,
        stored: &Stored,
        buf: &mut [u8],
        skip: u64,
        course: Course,
    ) -> Result<(), ReadError> {
        let wanted = skip..skip + buf.len() as u64;
        let part = wanted.start as usize..wanted.end as usize;
        match self.find(stored, &wanted, course)? {
            Found::Cached { bytes, .. } => buf.copy_from_slice(&bytes[part]),
            Found::Nowhere(Decoded::Direct) => self.decode_front(stored, buf, Decoded::Direct)?,
            Found::Nowhere(how) => self.decode(stored, Plain::From { start: part.start, part: buf }, how)?,
        }
        Ok(())
    }

    /// Look for an extent in the cache, or decode it there if that is its way.
    fn find(&self, stored: &Stored, wanted: &Range<u64>, course: Course) -> Result<Found, ReadError> {
        let Memory { decoded: cache, touched, .. } = self.core.memory();
        if !self.fits_cache(stored) {
            return Ok(Found::Nowhere(self.way(stored, wanted, Touch::First).decoded_how()));
        }
        let len = (wanted.end - wanted.start) as usize;
        if let Some(bytes) = cache.get(stored) {
            self.core.counters.hit();
            self.count_handed_out(stored, &bytes, len);
            return Ok(Found::Cached { bytes, is_hit: true });
        }
        let whole = wanted.start == 0 && wanted.end == u64::from(stored.llen);
        let before = if whole { None } else { touched.touch(stored, wanted) };
        let touch = match course {
            Course::Ahead => Touch::after(before.map(|before| before.end), wanted, stored.llen.into()),
            Course::AtRandom => Touch::AtRandom,
        };
        match self.way(stored, wanted, touch) {
            Way::Cache => {
                let handed_out = before.map_or(0, |before| before.len.into());
                let bytes = self.kept(stored, handed_out)?;
                self.count_handed_out(stored, &bytes, len);
                Ok(Found::Cached { bytes, is_hit: false })
            }
            way => Ok(Found::Nowhere(way.decoded_how())),
        }
    }

    /// Note that `len` bytes of an extent in the cache are handed out. It leaves the cache with the last of them, if who reads keeps
    /// what he gets: its memory is warm, and used again for the next.
    pub(crate) fn count_handed_out(&self, stored: &Stored, bytes: &Bytes, len: usize) {
        if self.core.reader == Reader::Kernel && bytes.hand_out(len) {
            self.core.memory().decoded.remove(stored);
        }
    }

    /// The extent, from the cache or decoded into it, unless it is too long for that.
    pub(crate) fn shared(&self, stored: &Stored) -> Result<Option<Bytes>, ReadError> {
        self.fits_cache(stored).then(|| self.kept(stored, 0)).transpose()
    }

    /// The extent, from the cache or decoded into it, by one for all who ask. So many bytes of it were handed out before.
    fn kept(&self, stored: &Stored, handed_out: u64) -> Result<Bytes, ReadError> {
        let mut is_ours = false;
        let bytes = self.core.memory().decoded.get_or_load(stored, || {
            is_ours = true;
            let mut bytes = Box::default();
            self.decode(stored, Plain::New(&mut bytes), Decoded::Kept)?;
            Ok(Text::handed_out(bytes, handed_out))
        })?;
        if !is_ours {
            self.core.counters.avoided();
        }
        Ok(bytes)
    }

    /// The way to bytes `wanted` of an extent that is not in the cache.
    pub(crate) fn way(&self, stored: &Stored, wanted: &Range<u64>, touch: Touch) -> Way {
        let llen = u64::from(stored.llen);
        let is_whole = wanted.end == llen;
        let is_small_front = wanted.end * SMALL_FRONT <= llen;
        match (wanted.start, touch) {
            (0, _) if is_whole => Way::Direct,
            (0, Touch::First) if is_small_front => Way::Direct,
            _ if !self.fits_cache(stored) => Way::Scratch,
            (0, _) | (_, Touch::Again | Touch::AtRandom) => Way::Cache,
            (_, Touch::First | Touch::Leaving) => Way::Scratch,
        }
    }

    fn fits_cache(&self, stored: &Stored) -> bool {
        u64::from(stored.llen) <= self.core.memory().decoded.largest()
    }

    /// Decode an encoded extent whole, past the cache, to find out whether that is possible.
    pub(crate) fn verify_encoded(&self, extent: &Extent) -> Result<(), ReadError> {
        let stored = Stored::of(extent)?;
        self.decode(&stored, Plain::From { start: stored.len(), part: &mut [] }, Decoded::Scratch)?;
        self.core.memory().sources.with(|source| {
            let Pcluster { pa, plen, .. } = stored.pcluster;
            let stream = self.stream(&stored, self.pcluster(&stored, source)?)?;
            Decoder::verify(stored.algorithm, stream, stored.llen as usize)
                .map_err(|error| ReadError::stream(pa, plen, error))
        })
    }

    /// Decode the first `dst.len()` bytes of an extent, past the cache.
    pub(crate) fn decode_front(&self, stored: &Stored, dst: &mut [u8], how: Decoded) -> Result<(), ReadError> {
        self.decode(stored, Plain::Front(dst), how)
    }

    /// Decode an extent as far as `plain` wants it.
    fn decode(&self, stored: &Stored, mut plain: Plain<'_>, how: Decoded) -> Result<(), ReadError> {
        let len = plain.end(stored);
        self.core.counters.decoded(how, len);
        if let Some(bytes) = self.borrow_pcluster(&stored.pcluster)? {
            return self.decode_from(stored, bytes, &mut plain);
        }
        self.core.memory().sources.with(|source| {
            let front_len = if self.is_unpadded(stored) { 0 } else { stored.front_len(len) };
            if front_len > 0 {
                let front = sized(source, front_len);
                self.read_pcluster(&stored.pcluster, 0, front)?;
                // If they are not enough, that says nothing about the stream.
                if self.decode_from(stored, front, &mut plain).is_ok() {
                    return Ok(());
                }
            }
            let bytes = sized(source, stored.pcluster.plen as usize);
            self.read_pcluster(&stored.pcluster, front_len as u64, &mut bytes[front_len..])?;
            self.decode_from(stored, bytes, &mut plain)
        })
    }

    /// Decode an extent as far as `plain` wants it from the bytes of its pcluster, or from the first ones.
    fn decode_from(&self, stored: &Stored, pcluster: &[u8], plain: &mut Plain<'_>) -> Result<(), ReadError> {
        let Pcluster { pa, plen, .. } = stored.pcluster;
        let Core { limits, .. } = &*self.core;
        let stream = self.stream(stored, pcluster)?;
        let len = plain.end(stored);
        let is_whole = len == stored.len() && !stored.partial && pcluster.len() == plen as usize;
        let want = if is_whole { Want::Whole } else { Want::Prefix };
        let decode = |decoder: &mut Decoder, dst: &mut [u8]| match self.is_unpadded(stored) {
            true => decoder.decode_lz4_unpadded(stream, dst),
            false => decoder.decode(stored.algorithm, stream, dst, want),
        };
        let decoder_len = limits.memory_for(stored.algorithm, len);
        let plain_len = if let Plain::Front(_) = plain { 0 } else { len as u64 };
        let decoded = self.core.memory().workspaces.with(decoder_len, plain_len, |workspace| match plain {
            Plain::Front(dst) => decode(&mut workspace.decoder, dst),
            Plain::From { start, part } => {
                let prefix = sized(&mut workspace.scratch, len);
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

impl Plain<'_> {
    /// How many bytes of an extent are decoded.
    fn end(&self, stored: &Stored) -> usize {
        match self {
            Plain::Front(dst) => dst.len(),
            Plain::From { start, part } => start + part.len(),
            Plain::New(_) => stored.len(),
        }
    }
}

impl Image {
    /// Whether the stream starts at the front of its pcluster, as in images from before Linux 5.4.
    fn is_unpadded(&self, stored: &Stored) -> bool {
        stored.algorithm == Algorithm::Lz4 && !self.superblock().incompat.contains(Incompat::LZ4_0PADDING)
    }

    /// The bytes of a pcluster: in its source's memory, or read into `buf`.
    fn pcluster<'b>(&'b self, stored: &Stored, buf: &'b mut Vec<u8>) -> Result<&'b [u8], ReadError> {
        if let Some(bytes) = self.borrow_pcluster(&stored.pcluster)? {
            return Ok(bytes);
        }
        let bytes = sized(buf, stored.pcluster.plen as usize);
        self.read_pcluster(&stored.pcluster, 0, bytes)?;
        Ok(bytes)
    }

    /// The stream in the bytes of its pcluster.
    fn stream<'a>(&self, stored: &Stored, pcluster: &'a [u8]) -> Result<&'a [u8], ReadError> {
        if self.is_unpadded(stored) {
            return Ok(pcluster);
        }
        let Pcluster { pa, plen, .. } = stored.pcluster;
        let block_bits = self.superblock().block_bits;
        strip_padding(pcluster, block_bits.len() - block_bits.within(pa))
            .ok_or_else(|| ReadError::corrupt("pcluster", pa, "plen", plen.into(), "only zeros in its first block"))
    }
}

/// The stream in a pcluster: what follows the zeros in front, which end within the first `in_block` bytes, its first
/// block.
fn strip_padding(pcluster: &[u8], in_block: u64) -> Option<&[u8]> {
    let start = pcluster.iter().take(in_block as usize).position(|&byte| byte != 0)?;
    Some(&pcluster[start..])
}
