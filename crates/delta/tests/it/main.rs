//! Patches between images of generated trees.

mod common;
mod hostile;
mod in_place;
mod journals;
mod random_pairs;
mod resumable;
mod round_trip;
