//! FUSE requests and their answers.

mod buffers;
mod failed;
pub(super) mod filesystem;
pub(super) mod image_fs;
pub(super) mod node;
pub(super) mod owners;
mod parents;
pub(super) mod paths;
mod unused_holes;
