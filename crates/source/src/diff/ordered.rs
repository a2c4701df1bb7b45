//! Jobs done by several threads, and consumed in order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Jobs for each thread that may be given out before the first of them is consumed.
const BACKLOG: usize = 64;

/// Do `jobs` on `threads` threads, each with a worker of its own, and pass the results to `each`, in the order of the jobs,
/// until it breaks. Jobs are made, and results consumed, on the calling thread. With one thread everything is: the reference.
pub(super) fn run<J, R, W>(
    threads: usize,
    jobs: impl Iterator<Item = J>,
    make_worker: impl Fn() -> W + Sync,
    mut each: impl FnMut(R) -> ControlFlow<()>,
) -> ControlFlow<()>
where
    J: Send,
    R: Send,
    W: FnMut(J) -> R,
{
    if threads <= 1 {
        return jobs.map(make_worker()).try_for_each(each);
    }
    let (jobs_in, jobs_out) = mpsc::channel();
    let (results_in, results_out) = mpsc::channel();
    let (jobs_out, over) = (Mutex::new(jobs_out), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut started = 0;
        for _ in 0..threads {
            let (jobs_out, results_in, over, make_worker) = (&jobs_out, results_in.clone(), &over, &make_worker);
            let work = move || work(jobs_out, &results_in, over, make_worker());
            started += u32::from(thread::Builder::new().spawn_scoped(scope, work).is_ok());
        }
        // Where the system has no more threads, fewer will do, or this one.
        if started == 0 {
            return jobs.map(make_worker()).try_for_each(each);
        }
        let outcome = in_order(threads * BACKLOG, jobs, jobs_in, &results_out, &mut each);
        // The queue has ended with its sender, and so will the workers, without finishing results that are not consumed.
        over.store(true, Ordering::Relaxed);
        outcome
    })
}

/// A job or a result, and its place in the order.
struct Numbered<T> {
    seq: usize,
    value: T,
}

fn in_order<J, R>(
    backlog: usize,
    jobs: impl Iterator<Item = J>,
    jobs_in: Sender<Numbered<J>>,
    results: &Receiver<Option<Numbered<R>>>,
    each: &mut impl FnMut(R) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut jobs = jobs.fuse();
    let mut early = BTreeMap::new();
    let (mut given, mut turn) = (0, 0);
    loop {
        while given - turn < backlog
            && let Some(value) = jobs.next()
        {
            // The channel has no receiver only if a worker has panicked: then there is no result, either.
            let _ = jobs_in.send(Numbered { seq: given, value });
            given += 1;
        }
        if turn == given {
            return ControlFlow::Continue(());
        }
        let Ok(Some(Numbered { seq, value })) = results.recv() else { return ControlFlow::Break(()) };
        early.insert(seq, value);
        while let Some(value) = early.remove(&turn) {
            turn += 1;
            each(value)?;
        }
    }
}

fn work<J, R>(
    jobs: &Mutex<Receiver<Numbered<J>>>,
    results: &Sender<Option<Numbered<R>>>,
    over: &AtomicBool,
    mut worker: impl FnMut(J) -> R,
) {
    let alarm = Alarm(results);
    while !over.load(Ordering::Relaxed) {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Numbered { seq, value }) = job else { break };
        if results.send(Some(Numbered { seq, value: worker(value) })).is_err() {
            break;
        }
    }
    drop(alarm);
}

/// A panicking worker must not leave the consumer waiting for its result.
struct Alarm<'a, R>(&'a Sender<Option<Numbered<R>>>);

impl<R> Drop for Alarm<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn squares(threads: usize, end: u64) -> Vec<u64> {
        let mut squares = Vec::new();
        let worker = || {
            |n: u64| {
                if n.is_multiple_of(97) {
                    thread::sleep(Duration::from_millis(2));
                }
                n * n
            }
        };
        let outcome = run(threads, 0..1000, worker, |square| {
            squares.push(square);
            if square >= end * end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(outcome.is_break(), end < 1000);
        squares
    }

    #[test]
    fn results_come_in_order_and_end_with_a_break() {
        for (threads, end) in [(1, 1000), (2, 1000), (7, 1000), (1, 300), (3, 300), (3, 0)] {
            let expected: Vec<_> = (0..1000).take_while(|n| *n <= end).map(|n| n * n).collect();
            assert_eq!(squares(threads, end), expected);
        }
    }

    #[test]
    fn the_backlog_is_bounded() {
        use std::sync::atomic::AtomicUsize;
        let (made, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut consumed = 0;
        let jobs = (0..2000).inspect(|_| {
            made.fetch_add(1, Ordering::Relaxed);
        });
        let _ = run(
            2,
            jobs,
            || |n: u64| n,
            |_| {
                consumed += 1;
                most.fetch_max(made.load(Ordering::Relaxed) - consumed, Ordering::Relaxed);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(consumed, 2000);
        assert!(most.into_inner() <= 2 * BACKLOG);
    }

    #[test]
    #[should_panic = "a scoped thread panicked"]
    fn a_panic_ends_it() {
        let worker = || |n: u64| assert_ne!(n, 5, "a bug");
        let _ = run(2, 0..u64::MAX, worker, |()| ControlFlow::Continue(()));
    }
}
