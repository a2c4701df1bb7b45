//! Tests of this crate, in one program, which links much faster than many.

mod edits;
mod filter;
mod fs_config;
mod merge;
mod policy;
