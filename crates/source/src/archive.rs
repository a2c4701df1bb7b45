//! Archives as trees.

mod decoded;
pub(crate) mod members;
pub mod tar;
pub(crate) mod zip;
