//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod common;
mod deflate;
mod hostile;
mod probe;
mod round_trip;
mod version;
mod window;
