//! Jobs that find further jobs, as directories contain directories.
//!
//! The job that was found last runs first, so that a walk of a tree has few waiting jobs. The order
//! in which jobs finish depends on scheduling; their results must not.

use crate::locks::{lock, wait};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use crate::threads::Threads;

/// Runs `first` and all jobs that `work` finds, on `threads` threads, until none is left or `stop`
/// is set. `work` gets a job, and appends the jobs that it finds to the list. The calling thread is
/// one of the threads.
///
/// # Panics
/// If `work` panics.
pub fn run<J: Send>(threads: Threads, first: J, stop: &AtomicBool, work: impl Fn(J, &mut Vec<J>) + Sync) {
    let state = QueueState { waiting: vec![first], unfinished: 1, panicked: false };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), stop };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, || queue.work_all(&work)).ok();
        // If the system has no more threads, fewer are used.
        let others: Vec<_> = (1..threads.count()).map_while(start).collect();
        queue.work_all(&work);
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

struct Queue<'a, J> {
    state: Mutex<QueueState<J>>,
    changed: Condvar,
    stop: &'a AtomicBool,
}

struct QueueState<J> {
    waiting: Vec<J>,
    /// Number of jobs that are waiting or running.
    unfinished: usize,
    /// True if a job has panicked: the other threads stop.
    panicked: bool,
}

impl<J> Queue<'_, J> {
    /// Runs jobs until no more can come.
    fn work_all(&self, work: &impl Fn(J, &mut Vec<J>)) {
        let mut found = Vec::new();
        while let Some(job) = self.next() {
            let closer = CloseOnPanic(self);
            work(job, &mut found);
            drop(closer);
            let mut state = self.lock();
            state.unfinished = state.unfinished - 1 + found.len();
            state.waiting.append(&mut found);
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.unfinished == 0 || state.panicked || self.stop.load(Ordering::Relaxed) {
                self.changed.notify_all();
                return None;
            }
            if let Some(job) = state.waiting.pop() {
                return Some(job);
            }
            state = wait(&self.changed, state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<J>> {
        lock(&self.state)
    }
}

/// Guard for the time of a job: if it panics, the other threads must not wait for the jobs that it
/// would have found.
struct CloseOnPanic<'a, 'b, J>(&'a Queue<'b, J>);

impl<J> Drop for CloseOnPanic<'_, '_, J> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().panicked = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Returns the sum of all numbers below `1 << bits`, each found by the number without its
    /// highest bit.
    fn sum(threads: usize, bits: u32, stop: &AtomicBool) -> u64 {
        let sum = AtomicU64::new(0);
        run(Threads::at_least_one(threads), 0_u64, stop, |number, found| {
            sum.fetch_add(number, Ordering::Relaxed);
            found.extend((u64::BITS - number.leading_zeros()..bits).map(|bit| number | 1 << bit));
        });
        sum.into_inner()
    }

    #[test]
    fn jobs_are_done_with_all_that_they_find() {
        for threads in [1, 2, 7] {
            assert_eq!(sum(threads, 12, &AtomicBool::new(false)), (0..1 << 12).sum());
            assert_eq!(sum(threads, 12, &AtomicBool::new(true)), 0);
        }
    }

    #[test]
    fn the_latest_job_comes_first() {
        let order = Mutex::new(Vec::new());
        run(Threads::ONE, "", &AtomicBool::new(false), |job, found| {
            order.lock().unwrap().push(job);
            found.extend_from_slice(match job {
                "" => &["a", "b"],
                "b" => &["c"],
                _ => &[],
            });
        });
        assert_eq!(order.into_inner().unwrap(), ["", "b", "c", "a"]);
    }

    #[test]
    #[should_panic = "a bug"]
    fn a_panic_ends_it() {
        run(Threads::at_least_one(3), 0_u64, &AtomicBool::new(false), |job, found| {
            assert_ne!(job, 100, "a bug");
            found.push(job + 1);
        });
    }
}
