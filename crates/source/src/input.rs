//! What is at a path before its kind is known, and how sources read it.
//!
//! A [`Candidate`](candidate::Candidate) has the first bytes, plain and decompressed, by which kinds recognise it. The kind that does takes it
//! in one of two forms: `into_bytes` for formats that are read at any position (images, zip), `into_tape` for formats
//! that are read front to back (tar, cpio), which may be compressed and may come from a pipe. What cannot be read twice is
//! kept in a nameless file, once. Where compressed parts and others follow one another, as in an initramfs, a tape goes into them and out again
//! (`layer`), and `place` tells where that is in the file.

pub(crate) mod candidate;
pub mod disk;
mod joined;
mod layer;
mod lz4_frames;
pub(crate) mod part;
pub(crate) mod place;
mod reader;
pub(crate) mod spool;
pub(crate) mod spool_error;
mod spooled;
pub(crate) mod stream;
pub(crate) mod stream_format;
pub(crate) mod tape;
