//! Images of filesystems as trees.

pub mod erofs;
