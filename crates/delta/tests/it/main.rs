//! Patches between images of generated trees.

mod common;
mod hostile;
mod in_place;
mod round_trip;
