//! Contents: from ranges of files to bytes.

mod announce;
mod batch;
mod batch_front;
pub(crate) mod batch_into;
pub(crate) mod batch_plan;
mod batch_stage;
mod batch_worker;
mod decode;
mod fetch;
pub(crate) mod file;
mod file_read;
mod gather;
mod hot_extents;
pub(crate) mod loading;
mod object;
mod owned;
pub(crate) mod plan;
pub(crate) mod position;
pub(crate) mod read;
pub(crate) mod seek;
pub(crate) mod view;
