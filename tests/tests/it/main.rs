//! Tests across crates in one program, which links much faster than many.

mod changing;
mod corpus;
mod damaged_bases;
mod damaged_updates;
mod estimate;
mod facade;
mod faults;
mod harness;
mod hostile_mount;
mod large;
mod laws;
mod layouts;
mod library;
mod limits;
mod long_reads;
mod metadata;
mod outputs;
mod power_cuts;
mod prefetch;
mod random;
mod round_trip;
mod same_bytes;
mod sizes;
mod streams;
mod tidy;
mod voice;
