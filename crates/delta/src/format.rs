//! The bytes of a patch: `docs/delta-format.md` describes them.

pub(crate) mod body;
pub(crate) mod header;
pub(crate) mod reader;
pub(crate) mod seal;
pub(crate) mod wire;
pub(crate) mod writer;
