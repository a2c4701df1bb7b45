//! `kiln delta` and `kiln apply`.

pub mod apply;
pub mod make;
