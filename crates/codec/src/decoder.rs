//! One decoder for all algorithms.

use crate::{CodecError, Reason, deflate, lz4, lzma, zstd};
use kiln_format::Algorithm;
use kiln_format::compr_cfg::ComprCfgs;

/// How much of the stream is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of it: `dst` has exactly the decoded length. Bytes behind the stream are an error where the format says so
    /// (LZ4, LZMA).
    Whole,
    /// The first `dst.len()` bytes: the stream may decode to more.
    Prefix,
}

/// What the image's configuration records allow. A stream that needs more is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// LZMA's dictionary in bytes.
    pub lzma_dict_size: u32,
    /// log2 of Zstandard's window in bytes.
    pub zstd_window_log: u8,
}

impl Default for DecodeLimits {
    /// The kernel's own limits: a dictionary of 8 MiB, a window of 1 MiB.
    fn default() -> Self {
        DecodeLimits { lzma_dict_size: 8 << 20, zstd_window_log: 20 }
    }
}

impl From<&ComprCfgs> for DecodeLimits {
    /// What the records allow; the kernel's own limits for algorithms without a record, which then do not occur.
    fn from(cfgs: &ComprCfgs) -> Self {
        let default = DecodeLimits::default();
        DecodeLimits {
            lzma_dict_size: cfgs.lzma_dict_size.unwrap_or(default.lzma_dict_size),
            zstd_window_log: cfgs.zstd_windowlog.unwrap_or(default.zstd_window_log),
        }
    }
}

/// Bytes of libraries' contexts, about: libzstd's, liblzma's probabilities, tables of DEFLATE.
const CONTEXT_LEN: u64 = 192 << 10;

impl DecodeLimits {
    /// Bytes that a decoder keeps, about, once it has decoded `plain_len` bytes of an algorithm's stream.
    pub fn memory_for(&self, algorithm: Algorithm, plain_len: usize) -> u64 {
        let window_len = match algorithm {
            Algorithm::Lz4 => return 0,
            Algorithm::Deflate => 0,
            // Memory of a dictionary is not touched behind what is decoded.
            Algorithm::Lzma => self.lzma_dict_size.into(),
            Algorithm::Zstd => 1 << self.zstd_window_log,
        };
        CONTEXT_LEN + window_len.min(plain_len as u64)
    }
}

/// Decodes pclusters of every algorithm; one per thread, reused.
///
/// Contexts are created when an algorithm is first met, and then kept. Memory is bounded by the limits: one LZMA
/// dictionary, one Zstandard window, and small contexts beside them. The bytes of a stream are untrusted: they cause
/// errors, never panics. After an error the content of `dst` is unspecified.
pub struct Decoder {
    limits: DecodeLimits,
    lzma: Option<lzma::LzmaDecoder>,
    deflate: deflate::DeflateDecoder,
    zstd: Option<zstd::ZstdDecoder>,
}

impl Decoder {
    /// A decoder for images with these limits.
    pub fn new(limits: DecodeLimits) -> Decoder {
        Decoder { limits, lzma: None, deflate: deflate::DeflateDecoder::default(), zstd: None }
    }

    /// Fill `dst` from the stream `src`, whose padding is already stripped.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the stream is damaged, does not have the length that `want` and `dst` say, or exceeds
    /// the limits; [`CodecError::Memory`] if a context cannot be allocated.
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

    /// Fill `dst` from LZ4 of images older than Linux 5.4, which do not pad in front: the stream starts at `src[0]`,
    /// zeros may follow it, and decoding stops once `dst` is full.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the stream is damaged or decodes to fewer bytes.
    pub fn decode_lz4_unpadded(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
        lz4::decode_prefix(src, dst)
    }

    /// Look for what the decoder of an algorithm passes over for the sake of speed, in a stream of which the first
    /// `plain_len` bytes can be decoded. Without such faults those bytes depend on nothing but the stream.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`].
    pub fn verify(algorithm: Algorithm, src: &[u8], plain_len: usize) -> Result<(), CodecError> {
        match algorithm {
            Algorithm::Lz4 => lz4::check_distances(src, plain_len),
            // libdeflate gives a meaning to symbols that DEFLATE does not have; zlib, and Linux with it, does not.
            Algorithm::Deflate => deflate::DeflateDecoder::default().decode_prefix(src, &mut vec![0; plain_len]),
            Algorithm::Lzma | Algorithm::Zstd => Ok(()),
        }
    }
}

/// What `slot` holds, after making it if it is empty.
fn created<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, CodecError>) -> Result<&mut T, CodecError> {
    if slot.is_none() {
        *slot = Some(make()?);
    }
    Ok(slot.as_mut().expect("just made"))
}
