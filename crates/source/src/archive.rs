//! Readers of archives: cpio, tar and zip.

pub(crate) mod cpio;
mod decoded;
pub(crate) mod left_out;
pub(crate) mod members;
pub(crate) mod passed;
pub mod tar;
pub(crate) mod zip;
