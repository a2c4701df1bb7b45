//! Contents: from ranges of files to bytes.

pub(crate) mod announce;
pub(crate) mod batch;
pub(crate) mod decode;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod seek;
pub(crate) mod view;
