//! The format of patches, described in `docs/delta-format.md`.

pub(crate) mod body;
pub(crate) mod front;
pub(crate) mod header;
pub(crate) mod reader;
pub(crate) mod seal;
pub(crate) mod wire;
pub(crate) mod writer;
