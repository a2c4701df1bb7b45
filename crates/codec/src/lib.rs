//! One pcluster in, one pcluster out: lz4, lzma, deflate, zstd.
//!
//! This crate has two actors, each owned by one thread and reused for every pcluster:
//!
//! * an [`Encoder`] finds and encodes the longest prefix of an input that fits in a buffer, for one
//!   [`Spec`];
//! * a [`Decoder`] decodes the stream of a pcluster of any algorithm, as a whole or a prefix of it.
//!
//! Besides, [`probe`] predicts if compression is worthwhile. Streams have the form that the EROFS
//! kernel driver reads: bare, without padding (the caller adds and strips the zeros in front), and
//! never beginning with a zero byte.
//!
//! Bytes of an image are untrusted: they can cause errors only.
//!
//! `unsafe` occurs in two kinds of modules only:
//!
//! * calls of C functions: `lz4`, `lzma`, `deflate::decode`, `deflate::libdeflate`, `zstd`,
//!   `zstd::decode`, `zstd::parse`, `zstd::stream`;
//! * match finders, which read text and tables without bounds checks: `words`, `deflate::matches`,
//!   `zstd::matches`, `zstd::row_table`, `zstd::rows`, `zstd::text`, `zstd::tokens`.
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

/// Error of an encoder, a decoder, or a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A stream that violates its format: the image is damaged or hostile.
    #[error("corrupt {} stream: {reason}", algorithm.name())]
    Corrupt {
        /// Format of the stream.
        algorithm: Algorithm,
        /// Reason why the stream is corrupt.
        reason: Reason,
    },
    /// A library could not allocate its context.
    #[error("out of memory")]
    Memory,
    /// No method has this name.
    #[error("unknown compression method {name:?}: use lz4, lz4hc, lzma, deflate or zstd")]
    UnknownMethod {
        /// Name as the user wrote it.
        name: String,
    },
    /// Text after the method that is neither a level nor an option.
    #[error("{} has no option {option:?}: use \"{},LEVEL,dictsize=SIZE\"", method.name(), method.name())]
    UnknownOption {
        /// Method before the text.
        method: Method,
        /// Text as the user wrote it.
        option: String,
    },
    /// A level that the method does not have.
    #[error("{} has no level {level}: use {}", method.name(), method.info().levels_in_words)]
    Level {
        /// The method.
        method: Method,
        /// Requested level.
        level: i32,
    },
    /// A window that the method, or its encoder of that level, does not support.
    #[error("{} has no dictionary of {len} bytes: {}", method.name(), method.info().windows_in_words)]
    Window {
        /// The method.
        method: Method,
        /// Requested window in bytes.
        len: u32,
    },
    /// A pcluster length that no block size allows.
    #[error("a pcluster cannot have {len} bytes: use a multiple of the block size, up to 1 MiB")]
    PclusterLen {
        /// Requested length in bytes.
        len: u32,
    },
    /// A library returned an error for valid arguments: a bug in this crate or in the library.
    #[error("internal error: {} library: {call} returned {code}", algorithm.name())]
    Library {
        /// Algorithm of the library.
        algorithm: Algorithm,
        /// Name of the C function.
        call: &'static str,
        /// Return value of the function.
        code: i64,
    },
}

/// Reason why a stream is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The stream has no bytes, or more than a library can address.
    Length,
    /// The stream breaks the rules of its format, or ends early.
    Malformed,
    /// The stream decodes to fewer bytes than the image records.
    TooShort,
    /// The stream needs a larger window than the image's configuration records declare.
    Window,
    /// Zstandard: the stream is not one standard frame without a dictionary.
    Frame,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Length => "empty or too long",
            Reason::Malformed => "malformed, cut off, or not of the recorded length",
            Reason::TooShort => "decodes to fewer bytes than recorded",
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
