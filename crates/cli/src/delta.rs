//! `kiln delta` and `kiln apply`.

pub mod apply;
mod applying;
mod device;
mod in_place;
mod journal;
pub mod left_over;
pub mod make;
mod new_image;
mod room;
mod status;
mod target;
