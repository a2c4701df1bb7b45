//! The tests of this crate, in one program, which links in a fraction of the time of many.

mod api;
mod batched;
mod block_reads;
mod check;
mod common;
mod digest;
mod explain;
mod generations;
mod golden;
mod handmade;
mod hostile;
mod load_ahead;
mod map;
mod metadata_readahead;
mod objects;
mod pin;
mod robust;
mod spaces;
mod usage;
mod ways;
