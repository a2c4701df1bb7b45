//! Input files: detection of their kind, and the ways to read them.
//!
//! A [`Candidate`](candidate::Candidate) has the first bytes, raw and decompressed, by which a kind
//! recognises it. The kind then takes it in one of two forms: `into_bytes` for formats that are
//! read at any position (images, zip), `into_tape` for formats that are read front to back (tar,
//! cpio), which may be compressed and may come from a pipe. Input that cannot be read twice is
//! copied to an unnamed file, the spool. Where compressed and other parts alternate, as in an
//! initramfs, a tape enters and leaves them (`layer`), and `place` maps its offsets to those of the
//! file.

pub(crate) mod candidate;
pub mod disk;
mod joined;
mod layer;
mod lazy;
mod lz4_frames;
pub(crate) mod part;
pub(crate) mod place;
mod reader;
pub(crate) mod shared_error;
pub(crate) mod spool;
pub(crate) mod spool_error;
mod spooled;
pub(crate) mod stream;
pub(crate) mod stream_format;
pub(crate) mod tape;
pub(crate) mod tee;
