//! Workers that take jobs in order, and results that leave in order.
//!
//! Each job has a cost, usually in bytes. The cost of all jobs that were handed out and not yet
//! consumed stays within a budget (one job may always run), which bounds the backlog even for
//! unequal jobs. Workers never write: results leave through `consume`, on the calling thread, in
//! the order of the jobs. So what `consume` sees never depends on scheduling. With one thread the
//! jobs run on the calling thread, as the reference.

use crate::locks::{lock, wait};
use crate::threads::Threads;
use crate::turns::{Bringer, Turns};
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

/// Job and its cost, in the unit of the budget, until its result is consumed.
pub struct Costed<J> {
    /// The job.
    pub job: J,
    /// Bytes of memory that the job may hold, or 1 if the budget counts jobs.
    pub cost: u64,
}

/// Runs `jobs` on `threads`, each with its own worker from `make_worker`, and passes the results to
/// `consume` in order. Stops at the first error: of `consume`, or of a job when its result is due.
///
/// # Errors
/// The first error.
pub fn run<J, R, E, W>(
    threads: Threads,
    budget: u64,
    jobs: impl Iterator<Item = Costed<J>> + Send,
    make_worker: impl Fn() -> Result<W, E> + Sync,
    mut consume: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    J: Send,
    R: Send,
    E: Send,
    W: FnMut(J) -> Result<R, E>,
{
    let count = threads.count();
    if count <= 1 {
        let mut worker = make_worker()?;
        for Costed { job, .. } in jobs {
            consume(worker(job)?)?;
        }
        return Ok(());
    }
    let (gate, results) = (Gate::new(jobs, budget), Turns::new());
    thread::scope(|scope| {
        // If the system has no more threads, fewer are used.
        let workers: Vec<_> = (0..count)
            .map_while(|_| {
                let (gate, make_worker, bringer) = (&gate, &make_worker, results.bringer());
                let work = move || {
                    // A panicking worker must not leave the others waiting for its job's budget.
                    let closer = CloseOnPanic(gate);
                    work(gate, make_worker, &bringer);
                    drop(closer);
                };
                thread::Builder::new().spawn_scoped(scope, work).ok()
            })
            .collect();
        if workers.is_empty() {
            return alone(&gate, &make_worker, &mut consume);
        }
        let outcome = in_order(&gate, &results, &mut consume);
        gate.close();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        outcome
    })
}

/// Runs all jobs on this thread.
fn alone<J, R, E, W>(
    gate: &Gate<impl Iterator<Item = Costed<J>>>,
    make_worker: &impl Fn() -> Result<W, E>,
    consume: &mut impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    W: FnMut(J) -> Result<R, E>,
{
    let mut worker = make_worker()?;
    while let Some((_, Costed { job, cost })) = gate.next() {
        consume(worker(job)?)?;
        gate.release(cost);
    }
    Ok(())
}

/// Finished job.
struct Done<R> {
    cost: u64,
    result: R,
}

fn work<J, R, E, W>(
    gate: &Gate<impl Iterator<Item = Costed<J>>>,
    make_worker: &impl Fn() -> Result<W, E>,
    results: &Bringer<'_, Done<Result<R, E>>>,
) where
    W: FnMut(J) -> Result<R, E>,
{
    let mut worker = match make_worker() {
        Ok(worker) => worker,
        Err(error) => {
            // The error becomes the result of this worker's next job.
            if let Some((seq, Costed { cost, .. })) = gate.next() {
                results.bring(seq, Done { cost, result: Err(error) });
            }
            return;
        }
    };
    while let Some((seq, Costed { job, cost })) = gate.next() {
        results.bring(seq, Done { cost, result: worker(job) });
    }
}

fn in_order<J, R, E>(
    gate: &Gate<impl Iterator<Item = Costed<J>>>,
    results: &Turns<Done<Result<R, E>>>,
    consume: &mut impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(done) = results.next() {
        consume(done.result?)?;
        gate.release(done.cost);
    }
    Ok(())
}

/// Gate that hands out jobs in order, within the budget.
struct Gate<I> {
    state: Mutex<GateState<I>>,
    released: Condvar,
    budget: u64,
}

struct GateState<I> {
    jobs: Option<I>,
    seq: u64,
    held: u64,
}

impl<J, I: Iterator<Item = Costed<J>>> Gate<I> {
    fn new(jobs: I, budget: u64) -> Self {
        Self { state: Mutex::new(GateState { jobs: Some(jobs), seq: 0, held: 0 }), released: Condvar::new(), budget }
    }

    fn next(&self) -> Option<(u64, Costed<J>)> {
        let mut state = self.lock();
        // The cost of a job is known once it is taken, so each worker may exceed the budget by one
        // job.
        while state.held > 0 && state.held >= self.budget && state.jobs.is_some() {
            state = wait(&self.released, state);
        }
        let costed = state.jobs.as_mut()?.next()?;
        state.held += costed.cost;
        let seq = state.seq;
        state.seq += 1;
        Some((seq, costed))
    }

    fn release(&self, cost: u64) {
        self.lock().held -= cost;
        self.released.notify_all();
    }
}

impl<I> Gate<I> {
    /// Stops handing out jobs.
    fn close(&self) {
        self.lock().jobs = None;
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GateState<I>> {
        lock(&self.state)
    }
}

struct CloseOnPanic<'a, I>(&'a Gate<I>);

impl<I> Drop for CloseOnPanic<'_, I> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;
    use std::time::Duration;

    fn exactly(count: usize) -> Threads {
        Threads::exactly(NonZero::new(count).unwrap())
    }

    fn squares(threads: usize, budget: u64) -> Result<Vec<u64>, u64> {
        let jobs = (0..500u64).map(|n| Costed { job: n, cost: 1 + n % 7 });
        let mut out = Vec::new();
        let worker = || {
            Ok(|n: u64| {
                if n.is_multiple_of(97) {
                    thread::sleep(Duration::from_millis(2));
                }
                Ok::<_, u64>(n * n)
            })
        };
        run(exactly(threads), budget, jobs, worker, |square| {
            out.push(square);
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn results_leave_in_order_whatever_the_threads() {
        let expected: Vec<u64> = (0..500).map(|n| n * n).collect();
        for (threads, budget) in [(1, 0), (2, 0), (1, 1), (2, 1), (3, 10), (7, 1000)] {
            assert_eq!(squares(threads, budget), Ok(expected.clone()));
        }
    }

    #[test]
    fn the_first_error_in_order_wins_and_nothing_hangs() {
        for threads in [1, 4] {
            let jobs = (0..100u64).map(|n| Costed { job: n, cost: 1 });
            let worker = || Ok(|n: u64| if n >= 20 { Err(n) } else { Ok(n) });
            let mut seen = 0;
            let outcome = run(exactly(threads), 8, jobs, worker, |n: u64| {
                assert_eq!(n, seen);
                seen += 1;
                Ok(())
            });
            assert_eq!((outcome, seen), (Err(20), 20));
            let jobs = (0..100u64).map(|n| Costed { job: n, cost: 1 });
            let no_worker = || if true { Err(7) } else { Ok(|n: u64| Ok::<u64, u64>(n)) };
            assert_eq!(run(exactly(threads), 8, jobs, no_worker, |_| Ok(())), Err(7));
        }
    }

    #[test]
    fn the_backlog_is_bounded() {
        use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
        let (running, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let jobs = (0..200u64).map(|n| Costed { job: n, cost: 10 });
        let worker = || {
            Ok::<_, ()>(|n: u64| {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                Ok(n)
            })
        };
        run(exactly(4), 30, jobs, worker, |_| {
            thread::sleep(Duration::from_micros(200));
            running.fetch_sub(1, SeqCst);
            Ok(())
        })
        .unwrap();
        assert!(most.load(SeqCst) <= 3 + 1, "{} jobs at once", most.load(SeqCst));
    }

    #[test]
    #[should_panic = "a bug"]
    fn a_panic_ends_it() {
        let worker = || {
            Ok::<_, ()>(|n: u64| {
                assert_ne!(n, 5, "a bug");
                Ok(())
            })
        };
        let _ = run(Threads::at_least_one(2), 8, (0..u64::MAX).map(|job| Costed { job, cost: 1 }), worker, |()| Ok(()));
    }
}
