//! Commands that read images: what is in them, and whether they are sound.

pub mod cat;
pub mod check;
pub mod diff;
pub mod du;
pub mod explain;
pub mod info;
pub mod ls;
pub mod stat;
pub mod tree;
