//! The process that runs the command: its memory, signals, threads, and how it starts itself again.

pub mod memory;
pub mod program;
pub mod signals;
pub mod threads;
