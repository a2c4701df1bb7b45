//! One pcluster in, one pcluster out: lz4, lzma, deflate, zstd.
//!
//! Two actors, each owned by one thread and reused for every pcluster it meets:
//!
//! * an [`Encoder`] answers "the longest prefix of this input that fits so many bytes" for one [`Spec`];
//! * a [`Decoder`] turns the stream of a pcluster, of any algorithm, back into plain bytes or a prefix of them.
//!
//! A third, [`probe`], tells whether trying to compress is worthwhile. Streams are as the EROFS kernel driver reads
//! them: bare, without padding (the caller adds and strips the zeros in front), and never beginning with a zero byte.
//!
//! This is the only crate that calls C. Bytes of an image are untrusted and can cause errors only.
//!
//! `unsafe` stands in two kinds of modules, and nowhere else:
//!
//! * at C functions: `lz4`, `lzma`, `deflate::decode`, `deflate::libdeflate`, `zstd`, `zstd::decode`, `zstd::parse`, `zstd::stream`;
//! * in match finders, which read text and tables without bounds checks: `words`, `deflate::matches`, `zstd::matches`,
//!   `zstd::tokens`.
#![warn(unreachable_pub)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod bits;
mod decoder;
mod deflate;
mod encoder;
mod entropy;
mod fit;
mod huffman;
mod lz4;
mod lzma;
mod method;
pub mod probe;
mod size;
mod spec;
mod words;
mod zstd;

pub use decoder::{DecodeLimits, Decoder, Want};
pub use encoder::{Encoder, Filled};
pub use method::{METHODS, Method, MethodInfo, Windows};
pub use size::{SizeError, parse_size};
pub use spec::Spec;

use kiln_format::Algorithm;
use std::fmt;

/// Why something could not be encoded or decoded, or why a [`Spec`] is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A stream is not what its format demands: the image is damaged or hostile.
    #[error("corrupt {} stream: {reason}", algorithm.name())]
    Corrupt {
        /// The format that the stream should have.
        algorithm: Algorithm,
        /// What is wrong with it.
        reason: Reason,
    },
    /// A library could not allocate its context.
    #[error("out of memory")]
    Memory,
    /// No method has this name.
    #[error("unknown compression method {name:?}: use lz4, lz4hc, lzma, deflate or zstd")]
    UnknownMethod {
        /// As the user wrote it.
        name: String,
    },
    /// Text behind the method is neither a level nor an option.
    #[error("{} has no option {option:?}: use \"{},LEVEL,dictsize=SIZE\"", method.name(), method.name())]
    UnknownOption {
        /// The method in front of it.
        method: Method,
        /// As the user wrote it.
        option: String,
    },
    /// The method has no such level.
    #[error("{} has no level {level}: use {}", method.name(), method.info().levels_in_words)]
    Level {
        /// The method.
        method: Method,
        /// The level that was asked for.
        level: i32,
    },
    /// The method, or its encoder of that level, has no such window.
    #[error("{} has no dictionary of {len} bytes: {}", method.name(), method.info().windows_in_words)]
    Window {
        /// The method.
        method: Method,
        /// The window that was asked for, in bytes.
        len: u32,
    },
    /// A pcluster length that no block size allows.
    #[error("pclusters of {len} bytes: use a multiple of the block size, up to 1 MiB")]
    PclusterLen {
        /// The length that was asked for, in bytes.
        len: u32,
    },
    /// A library refused what it must accept: our own mistake, or the library's.
    #[error("internal error: {} library: {call} returned {code}", algorithm.name())]
    Library {
        /// Whose library it is.
        algorithm: Algorithm,
        /// The foreign function.
        call: &'static str,
        /// Its answer.
        code: i64,
    },
}

/// What is wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The stream has no bytes, or more than a library can address.
    Length,
    /// The stream breaks the rules of its format, or ends early.
    Malformed,
    /// The stream decodes to fewer bytes than the image says.
    TooShort,
    /// The stream needs a larger window than the image's configuration declares.
    Window,
    /// Zstandard: the stream is not one standard frame without a dictionary.
    Frame,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Length => "empty, or of an impossible length",
            Reason::Malformed => "malformed, cut off, or not of the length that the image says",
            Reason::TooShort => "decodes to fewer bytes than the image says",
            Reason::Window => "needs a larger window than the image declares",
            Reason::Frame => "not one standard frame without a dictionary",
        })
    }
}

impl CodecError {
    pub(crate) fn corrupt(algorithm: Algorithm, reason: Reason) -> Self {
        CodecError::Corrupt { algorithm, reason }
    }
}
