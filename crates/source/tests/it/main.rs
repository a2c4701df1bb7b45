//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod common;
mod diff;
mod erofs;
mod filter;
mod laws;
mod policy;
