//! Archives as trees.

mod members;
pub mod tar;
