//! Images of filesystems as trees.

pub mod erofs;
pub(crate) mod ext4;
pub(crate) mod squashfs;
