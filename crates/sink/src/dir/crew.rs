//! Number of workers, and number of jobs that may wait for them.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::thread;

/// Maximum number of waiting jobs.
const QUEUE_LEN: usize = 128;
/// Number of descriptors per job, waiting or running: its directory and its file.
const PER_JOB: usize = 2;
/// Number of descriptors that the walk needs: the last directory, pieces of a long path, a large
/// file being split; and a few for the rest of the process.
const OF_THE_WALK: usize = 6;
/// Assumed number of open descriptors if `/proc` is not available.
const OPEN_GUESS: usize = 10;

/// Numbers of workers and of waiting jobs that the limit on open files permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crew {
    pub(super) workers: usize,
    pub(super) queue_len: usize,
}

impl Crew {
    /// Returns a crew of `threads` workers, or of one per processor if that is 0; of fewer if
    /// descriptors are scarce.
    pub(super) fn new(threads: usize) -> Self {
        let wanted = match threads {
            0 => thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        Self::within(wanted, descriptors_left())
    }

    /// Gives workers at most half of the descriptors, because an empty queue would keep them
    /// waiting.
    fn within(wanted: usize, descriptors: usize) -> Self {
        let jobs = descriptors.saturating_sub(OF_THE_WALK) / PER_JOB;
        let workers = wanted.clamp(1, (jobs / 2).max(1));
        Self { workers, queue_len: jobs.saturating_sub(workers).clamp(1, QUEUE_LEN) }
    }
}

/// Returns the number of descriptors that this process may still open.
fn descriptors_left() -> usize {
    let open = fs::read_dir("/proc/self/fd").map_or(OPEN_GUESS, Iterator::count);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_bound_the_crew() {
        let crew = |wanted, descriptors| {
            let Crew { workers, queue_len } = Crew::within(wanted, descriptors);
            assert!(workers >= 1 && queue_len >= 1);
            let needed = OF_THE_WALK + PER_JOB * (workers + queue_len);
            assert!(needed <= descriptors.max(OF_THE_WALK + 2 * PER_JOB), "{wanted} of {descriptors}: {needed}");
            (workers, queue_len)
        };
        assert_eq!(crew(8, 1000), (8, QUEUE_LEN));
        assert_eq!(crew(64, 22), (4, 4));
        assert_eq!(crew(1, 22), (1, 7));
        for descriptors in 0..300 {
            crew(1, descriptors);
            crew(1024, descriptors);
        }
    }
}
