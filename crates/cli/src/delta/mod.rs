//! `kiln delta` and `kiln apply`.

pub mod apply;
mod applying;
mod in_place;
pub mod make;
mod new_image;
mod room;
