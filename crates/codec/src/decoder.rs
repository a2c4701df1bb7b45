//! One decoder for all algorithms.

use crate::{CodecError, Reason, deflate, lz4, lzma, zstd};
use kiln_format::Algorithm;
use kiln_format::compr_cfg::ComprCfgs;

/// Part of a stream to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of it: `dst` has exactly the decoded length. Bytes after the stream are an error if the
    /// format says so (LZ4, LZMA).
    Whole,
    /// The first `dst.len()` bytes: the stream may decode to more.
    Prefix,
}

/// Limits from the image's configuration records. A stream that needs more is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// LZMA's dictionary in bytes.
    pub lzma_dict_size: u32,
    /// log2 of Zstandard's window in bytes.
    pub zstd_window_log: u8,
}

impl Default for DecodeLimits {
    /// Returns the kernel's own limits: a dictionary of 8 MiB, a window of 1 MiB.
    fn default() -> Self {
        DecodeLimits { lzma_dict_size: 8 << 20, zstd_window_log: 20 }
    }
}

impl From<&ComprCfgs> for DecodeLimits {
    /// Returns the limits of the records. Algorithms without a record, which the image does not
    /// use, get the kernel's own limits.
    fn from(cfgs: &ComprCfgs) -> Self {
        let default = DecodeLimits::default();
        DecodeLimits {
            lzma_dict_size: cfgs.lzma_dict_size.unwrap_or(default.lzma_dict_size),
            zstd_window_log: cfgs.zstd_windowlog.unwrap_or(default.zstd_window_log),
        }
    }
}

/// Approximate size in bytes of the libraries' contexts: libzstd's, liblzma's probabilities,
/// DEFLATE's tables.
const CONTEXT_LEN: u64 = 192 << 10;

impl DecodeLimits {
    /// Returns the approximate number of bytes that a decoder keeps after it has decoded
    /// `plain_len` bytes of a stream.
    pub fn memory_for(&self, algorithm: Algorithm, plain_len: usize) -> u64 {
        let window_len = match algorithm {
            Algorithm::Lz4 => return 0,
            Algorithm::Deflate => 0,
            // The part of a dictionary that exceeds the decoded text is not touched.
            Algorithm::Lzma => self.lzma_dict_size.into(),
            Algorithm::Zstd => 1 << self.zstd_window_log,
        };
        CONTEXT_LEN + window_len.min(plain_len as u64)
    }
}

/// Decoder for pclusters of every algorithm. Use one per thread, and reuse it.
///
/// Contexts are created when an algorithm is first met, and then reused. The limits bound the
/// memory: one LZMA dictionary, one Zstandard window, and small contexts. Streams are untrusted:
/// they cause errors, never panics. After an error the contents of `dst` are unspecified.
pub struct Decoder {
    limits: DecodeLimits,
    lzma: Option<lzma::LzmaDecoder>,
    deflate: deflate::DeflateDecoder,
    zstd: Option<zstd::ZstdDecoder>,
}

impl Decoder {
    /// Creates a decoder for images with these limits.
    pub fn new(limits: DecodeLimits) -> Decoder {
        Decoder { limits, lzma: None, deflate: deflate::DeflateDecoder::default(), zstd: None }
    }

    /// Fills `dst` from the stream `src`, which has no padding any more.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the stream is damaged, does not have the length that `want` and
    /// `dst` require, or exceeds the limits; [`CodecError::Memory`] if a context cannot be
    /// allocated.
    pub fn decode(&mut self, algorithm: Algorithm, src: &[u8], dst: &mut [u8], want: Want) -> Result<(), CodecError> {
        if src.is_empty() {
            return Err(CodecError::corrupt(algorithm, Reason::Length));
        }
        match (algorithm, want) {
            (_, Want::Prefix) if dst.is_empty() => Ok(()),
            (Algorithm::Lz4, Want::Whole) => lz4::decode_whole(src, dst),
            (Algorithm::Lz4, Want::Prefix) => lz4::decode_prefix(src, dst),
            (Algorithm::Lzma, _) => created(&mut self.lzma, || Ok(lzma::LzmaDecoder::new(self.limits.lzma_dict_size)))?
                .decode(src, dst, want),
            (Algorithm::Deflate, Want::Whole) => self.deflate.decode_whole(src, dst),
            (Algorithm::Deflate, Want::Prefix) => self.deflate.decode_prefix(src, dst),
            (Algorithm::Zstd, _) => {
                created(&mut self.zstd, || zstd::ZstdDecoder::new(self.limits.zstd_window_log))?.decode(src, dst, want)
            }
        }
    }

    /// Fills `dst` from LZ4 of images for kernels before Linux 5.4, which do not pad in front: the
    /// stream starts at `src[0]`, zeros may follow it, and decoding stops when `dst` is full.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the stream is damaged or decodes to fewer bytes.
    pub fn decode_lz4_unpadded(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        lz4::decode_prefix(src, dst)
    }

    /// Checks a stream for faults that the algorithm's decoder ignores for the sake of speed. The
    /// first `plain_len` bytes of the stream must be decodable. Without such faults those bytes
    /// depend on nothing but the stream.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the stream has such a fault.
    pub fn verify(algorithm: Algorithm, src: &[u8], plain_len: usize) -> Result<(), CodecError> {
        match algorithm {
            Algorithm::Lz4 => lz4::check_distances(src, plain_len),
            // libdeflate accepts symbols that DEFLATE does not have; zlib, and thus Linux, does
            // not.
            Algorithm::Deflate => deflate::DeflateDecoder::default().decode_prefix(src, &mut vec![0; plain_len]),
            Algorithm::Lzma | Algorithm::Zstd => Ok(()),
        }
    }
}

/// Returns the value in `slot`, which is created first if `slot` is empty.
fn created<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, CodecError>) -> Result<&mut T, CodecError> {
    if slot.is_none() {
        *slot = Some(make()?);
    }
    Ok(slot.as_mut().expect("just made"))
}
