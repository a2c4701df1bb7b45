//! Many files in one call.

pub(crate) mod batch;
pub(crate) mod files;
pub(crate) mod iterate;
pub(crate) mod positions;
pub(crate) mod read;
