//! The process that runs the command: its memory, signals, threads, options of long work, programs that it runs, and how
//! it starts itself again.

pub mod child;
pub mod fork;
pub mod interpreter;
#[cfg(any(target_env = "musl", test))]
mod kept_blocks;
pub mod memory;
pub mod program;
pub mod request;
pub mod signals;
pub mod threads;
pub mod work;
