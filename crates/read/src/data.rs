//! Contents: from ranges of files to bytes.

mod announce;
mod batch;
pub(crate) mod batch_into;
pub(crate) mod batch_plan;
mod decode;
pub(crate) mod owned;
pub(crate) mod plan;
pub(crate) mod position;
pub(crate) mod read;
pub(crate) mod seek;
pub(crate) mod view;
