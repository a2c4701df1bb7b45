//! Images of filesystems as trees.

pub mod erofs;
pub(crate) mod squashfs;
