//! How many threads work.

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

/// Processors that we may use.
pub fn processors() -> usize {
    available_parallelism().map_or(1, |count| count.get())
}
