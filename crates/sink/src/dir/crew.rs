//! How many workers there are, and how many jobs may wait for them.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::thread;

/// Jobs that wait for a worker, at most.
const QUEUE_LEN: usize = 128;
/// Descriptors of a job, waiting or in work: its directory's and its file's.
const PER_JOB: usize = 2;
/// Descriptors that the walk needs: the directory it was in last, pieces of a long path, a large file that it splits; and some for
/// what the process does besides.
const OF_THE_WALK: usize = 6;
/// Descriptors that are open already, where `/proc` does not tell.
const OPEN_GUESS: usize = 10;

/// Workers and waiting jobs, as many as the process may have descriptors for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crew {
    pub(super) workers: usize,
    pub(super) queue_len: usize,
}

impl Crew {
    /// For `threads` workers, or one for each processor if that is 0; fewer where descriptors are few.
    pub(super) fn new(threads: usize) -> Self {
        let wanted = match threads {
            0 => thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        Self::within(wanted, descriptors_left())
    }

    /// Half of the descriptors are for workers at most: queues that run empty keep them waiting.
    fn within(wanted: usize, descriptors: usize) -> Self {
        let jobs = descriptors.saturating_sub(OF_THE_WALK) / PER_JOB;
        let workers = wanted.clamp(1, (jobs / 2).max(1));
        Self { workers, queue_len: jobs.saturating_sub(workers).clamp(1, QUEUE_LEN) }
    }
}

/// How many descriptors this process may still open.
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
