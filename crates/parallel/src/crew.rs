//! Workers that are given jobs one at a time, and results that come back in the order of the jobs.
//!
//! [`ordered::run`](crate::ordered::run) takes all jobs from an iterator. A crew suits a caller
//! that finds its jobs while it works, and that may need the result of an earlier job before it can
//! name the next one. The caller bounds the backlog: it takes results while [`Crew::is_full`].

use crate::channel::{self, Receiver, Sender};
use crate::threads::Threads;
use crate::turns::{Bringer, Turns};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Result of a job, or the panic of its worker.
type Outcome<R, E> = thread::Result<Result<R, E>>;

/// Worker on the calling thread.
type Alone<'a, J, R, E> = Box<dyn FnMut(J) -> Result<R, E> + 'a>;

/// Workers of one call of [`with_crew`].
pub struct Crew<'a, J, R, E> {
    jobs: Sender<(u64, J)>,
    /// Jobs that wait for a worker.
    waiting: Receiver<(u64, J)>,
    results: &'a Turns<Outcome<R, E>>,
    /// Costs of jobs whose results were not taken, in order.
    costs: VecDeque<u64>,
    held: u64,
    budget: u64,
    /// Number of the next job.
    next: u64,
    /// Worker on the calling thread, where the system has no threads.
    alone: Option<Alone<'a, J, R, E>>,
}

impl<J, R, E> Crew<'_, J, R, E> {
    /// Gives a job to the workers. `cost` counts against the budget until the result is taken.
    pub fn submit(&mut self, job: J, cost: u64) {
        self.jobs.send((self.next, job)).expect("the crew receives, too");
        self.next += 1;
        self.held += cost;
        self.costs.push_back(cost);
    }

    /// Returns true if the jobs whose results were not taken use up the budget. One may always run.
    pub fn is_full(&self) -> bool {
        self.held > 0 && self.held >= self.budget
    }

    /// Returns the result of the oldest job whose result was not taken, or `None` if there is no
    /// such job. Waits for the worker.
    ///
    /// # Panics
    /// With the panic of the worker.
    pub fn take(&mut self) -> Option<Result<R, E>> {
        self.held -= self.costs.pop_front()?;
        if let Some(worker) = &mut self.alone {
            let (_, job) = self.waiting.try_recv()?;
            return Some(worker(job));
        }
        Some(self.results.next()?.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// Workers end with the jobs that they have begun, however the caller ends.
impl<J, R, E> Drop for Crew<'_, J, R, E> {
    fn drop(&mut self) {
        while self.waiting.try_recv().is_some() {}
    }
}

/// Runs `work` with a crew of `threads`, each with its own worker from `make_worker`. The crew is
/// full when jobs of `budget` wait for their results to be taken. Jobs that no worker has begun
/// when `work` ends are dropped.
///
/// # Errors
/// Those of `work`. An error of `make_worker` becomes the result of a job.
pub fn with_crew<J, R, E, W, T>(
    threads: Threads,
    budget: u64,
    make_worker: impl Fn() -> Result<W, E> + Sync,
    work: impl FnOnce(&mut Crew<'_, J, R, E>) -> Result<T, E>,
) -> Result<T, E>
where
    J: Send,
    R: Send,
    E: Send,
    W: FnMut(J) -> Result<R, E>,
{
    let results = Turns::new();
    thread::scope(|scope| {
        let (jobs, waiting) = channel::unbounded();
        let count = (0..threads.count()).map_while(|_| {
            let (waiting, make_worker, bringer) = (waiting.clone(), &make_worker, results.bringer());
            thread::Builder::new().spawn_scoped(scope, move || serve(waiting, make_worker, &bringer)).ok()
        });
        let has_threads = count.count() > 0;
        let alone = if has_threads { None } else { Some(Box::new(make_worker()?) as Alone<'_, J, R, E>) };
        let costs = VecDeque::new();
        work(&mut Crew { jobs, waiting, results: &results, costs, held: 0, budget, next: 0, alone })
    })
}

/// Takes jobs until the crew ends.
fn serve<J, R, E, W>(
    waiting: Receiver<(u64, J)>,
    make_worker: &impl Fn() -> Result<W, E>,
    results: &Bringer<'_, Outcome<R, E>>,
) where
    W: FnMut(J) -> Result<R, E>,
{
    let mut worker = None;
    for (seq, job) in waiting {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let worker = match &mut worker {
                Some(worker) => worker,
                None => worker.insert(make_worker()?),
            };
            worker(job)
        }));
        results.bring(seq, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_number_of_threads() {
        for threads in [1, 2, 7] {
            let double = || {
                Ok::<_, String>(|job: u64| {
                    if job.is_multiple_of(3) {
                        thread::yield_now();
                    }
                    Ok(2 * job)
                })
            };
            let sum = with_crew(Threads::at_least_one(threads), 10, double, |crew| {
                let mut taken = Vec::new();
                for job in 0..1000 {
                    while crew.is_full() {
                        taken.push(crew.take().unwrap()?);
                    }
                    crew.submit(job, 1 + job % 4);
                }
                while let Some(result) = crew.take() {
                    taken.push(result?);
                }
                Ok(taken)
            });
            assert_eq!(sum.unwrap(), (0..1000).map(|job| 2 * job).collect::<Vec<_>>());
        }
    }

    #[test]
    fn errors_come_in_their_turn_and_end_the_crew() {
        let worker = || Ok(|job: u32| if job == 5 { Err("five") } else { Ok(job) });
        let outcome = with_crew(Threads::at_least_one(3), 100, worker, |crew| {
            (0..9).for_each(|job| crew.submit(job, 1));
            let mut last = 0;
            while let Some(result) = crew.take() {
                last = result.inspect_err(|_| assert_eq!(last, 4))?;
            }
            Ok(last)
        });
        assert_eq!(outcome, Err("five"));
        let nobody = || Err::<fn(u32) -> Result<u32, &'static str>, _>("no worker");
        let outcome = with_crew(Threads::ONE, 1, nobody, |crew| {
            crew.submit(1, 1);
            crew.take().unwrap()
        });
        assert_eq!(outcome, Err("no worker"));
    }

    #[test]
    #[should_panic(expected = "a worker's own")]
    fn a_panic_of_a_worker_reaches_the_caller() {
        let worker = || Ok(|_: u32| -> Result<u32, ()> { panic!("a worker's own") });
        let _ = with_crew(Threads::at_least_one(2), 1, worker, |crew| {
            crew.submit(1, 1);
            crew.take().unwrap()
        });
    }
}
