//! Archives as trees.

pub(crate) mod cpio;
mod decoded;
pub(crate) mod left_out;
pub(crate) mod members;
pub mod tar;
pub(crate) mod zip;
