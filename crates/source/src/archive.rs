//! Archives as trees.

mod decoded;
mod members;
pub mod tar;
pub(crate) mod zip;
