//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod archive;
mod common;
mod extract;
