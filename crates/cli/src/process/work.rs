//! Options of commands that work for long.

use crate::console::progress::{Meter, ShownArgs};
use crate::exit::Failure;
use crate::process::threads::{NiceArgs, ThreadsArgs};
use kiln_builder::Progress;
use kiln_parallel::Threads;

/// Options of commands that work for long.
#[derive(clap::Args)]
pub struct WorkArgs {
    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    progress: ShownArgs,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl WorkArgs {
    /// Lowers the priority of this process if that was asked for. Threads that start later have it, too.
    ///
    /// # Errors
    /// A priority that the system refuses.
    pub fn apply_nice(&self) -> Result<(), Failure> {
        self.nice.apply()
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> Threads {
        self.threads.threads()
    }

    /// Returns a meter. It shows nothing for `quiet` commands, and where progress is not wanted.
    pub fn meter(&self, quiet: bool) -> Meter {
        self.progress.meter(quiet)
    }

    /// Runs `work` and shows its progress meanwhile.
    pub fn watch<T>(&self, quiet: bool, work: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> T) -> T {
        self.meter(quiet).watch(work)
    }
}
