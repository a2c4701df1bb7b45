//! Commands that read images, to show their contents or to check them.

pub mod cat;
pub mod check;
pub mod diff;
pub mod du;
pub mod explain;
pub mod info;
pub mod ls;
pub mod stat;
pub mod tree;
