//! One encoder for all methods.

use crate::{CodecError, Method, Spec, deflate, lz4, lzma, zstd};
use kiln_format::compr_cfg::EXTENT_MAX_LEN;

/// Result of [`Encoder::fill`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Length of the input that the stream encodes; 0 if no prefix of the input becomes smaller.
    pub consumed: usize,
    /// Length of the stream.
    pub produced: usize,
}

/// Compressor of pclusters for one [`Spec`]. Use one per worker, and reuse it: once its buffers
/// have grown, no pcluster allocates.
pub struct Encoder {
    engine: Engine,
    fills: u64,
}

enum Engine {
    Lz4(lz4::Lz4Encoder),
    Lz4hc(lz4::Lz4hcEncoder),
    Lzma(lzma::LzmaEncoder),
    Deflate(deflate::DeflateEncoder),
    Zstd(Box<zstd::ZstdEncoder>),
}

impl Encoder {
    /// Creates an encoder.
    ///
    /// # Errors
    /// [`CodecError::Memory`], and the errors of [`Spec::new`] and [`Spec::with_window`].
    pub fn new(spec: &Spec) -> Result<Encoder, CodecError> {
        spec.check()?;
        let engine = match spec.method {
            Method::Lz4 => Engine::Lz4(lz4::Lz4Encoder::new()),
            Method::Lz4hc => Engine::Lz4hc(lz4::Lz4hcEncoder::new(spec.level)),
            Method::Lzma => Engine::Lzma(lzma::LzmaEncoder::new(spec)?),
            Method::Deflate => Engine::Deflate(deflate::DeflateEncoder::new(spec)?),
            Method::Zstd => Engine::Zstd(Box::new(zstd::ZstdEncoder::new(spec)?)),
        };
        Ok(Encoder { engine, fills: 0 })
    }

    /// Forgets everything learnt from earlier input. Call it at the start of every part, so that
    /// its bytes never depend on earlier work of this encoder.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Lz4(_) | Engine::Lz4hc(_) | Engine::Lzma(_) => {}
            Engine::Deflate(e) => e.reset(),
            Engine::Zstd(e) => e.reset(),
        }
    }

    /// Encodes the longest prefix of `input` that fits in `out`, at most 12 MiB (the longest extent
    /// that kernels decode).
    ///
    /// The prefix is exactly the longest for LZ4 and LZMA, whose encoders stop where the room ends;
    /// for the others it is within some tenths of a percent. `produced` may be far below
    /// `out.len()` if the input ends. `consumed` is 0 if nothing useful fits: neither the input nor
    /// a prefix of it gets smaller. The result depends only on the spec, `input`, `out.len()` and
    /// the calls since [`reset`](Self::reset). Pass all of the remaining input: the encoder may
    /// read beyond the part that fits.
    ///
    /// # Errors
    /// [`CodecError::Memory`]; [`CodecError::Library`] for a bug of ours. Input that does not
    /// compress is not an error.
    pub fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Result<Filled, CodecError> {
        let input = &input[..input.len().min(EXTENT_MAX_LEN)];
        if input.is_empty() || out.is_empty() {
            return Ok(Filled::default());
        }
        self.fills += 1;
        let filled = match &mut self.engine {
            Engine::Lz4(e) => e.fill(input, out),
            Engine::Lz4hc(e) => e.fill(input, out),
            Engine::Lzma(e) => e.fill(input, out)?,
            Engine::Deflate(e) => e.fill(input, out)?,
            Engine::Zstd(e) => e.fill(input, out)?,
        };
        if filled.consumed <= filled.produced {
            return Ok(Filled::default());
        }
        debug_assert_ne!(out[0], 0, "readers skip zeros in front of a stream");
        Ok(filled)
    }

    /// Encodes all of `input`, at most 12 MiB, with one call of the library; for data that is
    /// already cut into units. Returns the length of the stream, or `None` if it does not fit in
    /// `out`. The stream may be longer than the input if `out` is.
    ///
    /// # Errors
    /// Same as [`fill`](Self::fill).
    pub fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        self.fills += 1;
        let filled = match &mut self.engine {
            Engine::Lz4(e) => e.fill(input, out),
            Engine::Lz4hc(e) => e.fill(input, out),
            Engine::Lzma(e) => e.fill(input, out)?,
            Engine::Deflate(e) => return Ok(e.encode(input, out)),
            Engine::Zstd(e) => return e.encode(input, out),
        };
        Ok((filled.consumed == input.len()).then_some(filled.produced))
    }

    /// Returns how often a compressor ran over input since the encoder was created: more than once
    /// per pcluster if the length that fits must be searched for. For measurements.
    pub fn encodes(&self) -> u64 {
        match &self.engine {
            Engine::Lz4(_) | Engine::Lz4hc(_) | Engine::Lzma(_) => self.fills,
            Engine::Deflate(e) => e.encodes(),
            Engine::Zstd(e) => e.encodes(),
        }
    }
}
