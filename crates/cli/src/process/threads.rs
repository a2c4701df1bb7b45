//! The number of threads.

use crate::exit::Failure;
use kiln_read::Threads;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::thread::available_parallelism;

/// The option `--threads`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ThreadsArgs {
    /// Number of threads; default: one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,
}

/// The most threads that may be asked for.
const THREADS_MAX: u16 = 1024;

impl ThreadsArgs {
    /// Returns arguments for a number of threads, limited to the range that is allowed.
    pub fn about(count: u64) -> Self {
        Self { threads: Some(u16::try_from(count).map_or(THREADS_MAX, |count| count.clamp(1, THREADS_MAX))) }
    }

    /// Returns the number of threads: at least 1, and no more than there are descriptors for.
    pub fn count(&self) -> usize {
        self.threads.map_or_else(processors, |count| usize::from(count).min(affordable()))
    }

    /// Returns [`ThreadsArgs::count`] in the type of the libraries.
    pub fn threads(&self) -> Threads {
        Threads::at_least_one(self.count())
    }

    /// Returns the number that the user asked for.
    pub fn given(&self) -> Option<u16> {
        self.threads
    }
}

/// The option `--nice`.
#[derive(clap::Args)]
pub struct NiceArgs {
    /// Lower the priority, from 1 to 19, as nice(1) does
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=19))]
    nice: Option<i32>,
}

impl NiceArgs {
    /// Applies the niceness to this process; threads that start later inherit it.
    pub fn apply(&self) -> Result<(), Failure> {
        match self.nice {
            Some(nice) => Ok(rustix::process::nice(nice).map(drop).map_err(std::io::Error::from)?),
            None => Ok(()),
        }
    }
}

/// Returns the number of processors that we may use, no more than there are descriptors for threads.
pub fn processors() -> usize {
    available_parallelism().map_or(1, |count| count.get()).min(affordable())
}

/// Descriptors that do not belong to a thread: standard ones, images and their devices, directories, signals.
const OTHER_DESCRIPTORS: u64 = 16;
/// Descriptors that a thread may have open: files of two trees that are compared, and directories on the way to them.
const DESCRIPTORS_PER_THREAD: u64 = 4;

/// Returns the number of threads that the limit of descriptors allows (`ulimit -n`).
fn affordable() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let threads = limit.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_PER_THREAD;
    usize::try_from(threads).unwrap_or(usize::MAX).max(1)
}
