//! Parallel work with results that do not depend on the number of threads.
//!
//! [`Threads`] is the number of threads for some work. [`ordered`] runs jobs on them and returns
//! the results in the order of the jobs; [`crew`] does so for jobs that are found one at a time.
//! [`unordered`] hands out items to threads that need not wait for each other. [`queue`] runs jobs
//! that find further jobs. [`channel`] passes messages between threads. [`locks`] has the locks
//! that these modules and other crates use.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod channel;
pub mod crew;
pub mod locks;
pub mod ordered;
pub mod queue;
mod threads;
mod turns;
pub mod unordered;

pub use threads::Threads;
