//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod common;
mod fuse;
mod kernel;
mod record;
mod stats;
mod trees;
mod unmount;
