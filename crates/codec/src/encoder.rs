//! One encoder for all methods.

use crate::{CodecError, Method, Spec, deflate, lz4, lzma, zstd};
use kiln_format::compr_cfg::EXTENT_MAX_LEN;

/// How far [`Encoder::fill`] came, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Input that the stream encodes; 0 if no prefix of the input becomes smaller.
    pub consumed: usize,
    /// Length of the stream.
    pub produced: usize,
}

/// Compresses pclusters of one [`Spec`]; one per worker, reused: no pcluster allocates, once the buffers have grown.
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
    /// An encoder that knows nothing yet.
    ///
    /// # Errors
    /// [`CodecError::Memory`], or what [`Spec::new`] or [`Spec::with_window`] would have refused.
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

    /// Forget everything learnt from earlier input. To be called at the start of every part, so that bytes never depend
    /// on which worker did what before.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Lz4(_) | Engine::Lz4hc(_) | Engine::Lzma(_) => {}
            Engine::Deflate(e) => e.reset(),
            Engine::Zstd(e) => e.reset(),
        }
    }

    /// Encode the longest prefix of `input` that fits `out`, at most 12 MiB (the longest extent that kernels decode).
    ///
    /// "Longest" is exact for LZ4 and LZMA, whose encoders stop where the room ends; for the others it is within some
    /// tenths of a percent. `produced` may be far below `out.len()` when the input ends. `consumed` is 0 if nothing
    /// useful fits: the input, or as much of it as would matter, does not get smaller. The result is a function of the
    /// spec, `input`, `out.len()` and the calls since [`reset`](Self::reset) only. Give all the input there is: it may
    /// be looked at beyond what fits.
    ///
    /// # Errors
    /// [`CodecError::Memory`]; [`CodecError::Library`] is our bug. Input that does not compress is no error.
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

    /// Encode all of `input`, at most 12 MiB: the length of the stream, or `None` if it does not fit `out`. For data whose
    /// pieces are cut beforehand: the library's plain call. The stream may be longer than the input, if `out` is.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
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

    /// How often a compressor ran over some input since the encoder was made: more than once per pcluster where the
    /// length that fits has to be searched. For measurements.
    pub fn encodes(&self) -> u64 {
        match &self.engine {
            Engine::Lz4(_) | Engine::Lz4hc(_) | Engine::Lzma(_) => self.fills,
            Engine::Deflate(e) => e.encodes(),
            Engine::Zstd(e) => e.encodes(),
        }
    }
}
