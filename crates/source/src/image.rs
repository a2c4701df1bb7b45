//! Readers of filesystem images: cramfs, EROFS, ext4 and SquashFS.

pub(crate) mod cramfs;
pub mod erofs;
pub(crate) mod ext4;
mod inflate;
pub(crate) mod squashfs;
