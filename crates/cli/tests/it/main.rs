//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod common;
mod convert;
mod definitions;
mod delta;
mod diff;
mod dropin;
mod estimate;
mod explain_pack;
mod export;
mod facts;
mod help;
mod hostile;
mod interrupted;
mod json;
mod keep_going;
mod mkfs;
mod mount;
mod oci;
mod pack;
mod place;
mod read;
mod reference;
mod select;
mod server;
mod shuffle;
mod sizes;
