//! Images of filesystems as trees.

pub(crate) mod cramfs;
pub mod erofs;
pub(crate) mod ext4;
mod inflate;
pub(crate) mod squashfs;
