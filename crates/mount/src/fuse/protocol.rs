//! FUSE requests and their answers.

pub mod buffers;
pub mod failed;
pub mod filesystem;
pub mod image_fs;
pub mod node;
pub mod owners;
pub mod parents;
pub mod unused_features;
