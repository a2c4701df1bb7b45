//! Sources of bytes: the trait [`ReadAt`](read_at::ReadAt), its implementations, and the devices of
//! one image.

pub mod conformance;
pub(crate) mod devices;
pub(crate) mod file;
pub(crate) mod image_sources;
pub(crate) mod latency;
pub(crate) mod layer;
pub(crate) mod mapped;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod offset;
pub(crate) mod read_at;
pub(crate) mod timed;
