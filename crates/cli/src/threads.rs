//! How many threads work.

use crate::exit::Failure;
use std::thread::available_parallelism;

/// The option `--threads`.
#[derive(clap::Args)]
pub struct ThreadsArgs {
    /// Threads to work on; the default is one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadsArgs {
    /// At least 1.
    pub fn count(&self) -> usize {
        match self.threads {
            Some(count) => count.into(),
            None => processors(),
        }
    }

    /// What the user asked for.
    pub fn given(&self) -> Option<u16> {
        self.threads
    }
}

/// The option `--nice`.
#[derive(clap::Args)]
pub struct NiceArgs {
    /// Leave the processors to others: 1 (a little) to 19, as nice(1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=19))]
    nice: Option<i32>,
}

impl NiceArgs {
    /// Be so nice from now on: threads that start later are, too.
    pub fn apply(&self) -> Result<(), Failure> {
        match self.nice {
            Some(nice) => Ok(rustix::process::nice(nice).map(drop).map_err(std::io::Error::from)?),
            None => Ok(()),
        }
    }
}

/// Processors that we may use.
pub fn processors() -> usize {
    available_parallelism().map_or(1, |count| count.get())
}
