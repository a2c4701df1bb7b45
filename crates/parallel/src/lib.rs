//! Work on several threads whose results do not depend on how many there are.
//!
//! [`Threads`] says how many threads do a piece of work; [`ordered`] runs jobs on them and hands out the results in the order of
//! the jobs; [`unordered`] hands items out to threads that need not wait for each other; [`queue`] does jobs that find further jobs;
//! [`locks`] has the locks that they and others use.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod locks;
pub mod ordered;
pub mod queue;
mod threads;
pub mod unordered;

pub use threads::Threads;
