//! Contents: from ranges of files to bytes.

mod announce;
pub(crate) mod batch;
mod decode;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod seek;
pub(crate) mod view;
