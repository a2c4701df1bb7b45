//! State that an image keeps between reads: cached bytes, access history, readahead, memory for
//! decoding.

pub(crate) mod access_pattern;
pub(crate) mod admission;
pub(crate) mod byte_cache;
pub(crate) mod fork_local;
pub(crate) mod open_objects;
pub(crate) mod pinned;
mod readahead;
pub(crate) mod staged;
mod start_sums;
pub(crate) mod state;
mod stride;
pub(crate) mod workspaces;
