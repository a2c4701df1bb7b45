//! The process that runs the command: its memory, signals and threads, programs that it runs, and its restart in the
//! background.

pub mod child;
pub mod memory;
pub mod program;
pub mod signals;
pub mod threads;
