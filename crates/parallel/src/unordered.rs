//! Items that several threads take from one queue, in order, and finish in any order.

use crate::locks::lock;
use crate::threads::Threads;
use std::sync::Mutex;
use std::thread;

/// Passes each of `items` to a worker once. Each thread has its own worker from `make_worker`, and
/// takes the next item when it has finished one. The calling thread is one of the threads. There
/// are no more threads than items; if the system refuses a thread, the others do the work.
pub fn run<T: Send, W: FnMut(T)>(threads: Threads, items: Vec<T>, make_worker: impl Fn() -> W + Sync) {
    let threads = threads.count().min(items.len());
    let queue = Mutex::new(items.into_iter());
    // A worker holds no lock while it works, so a panic leaves the queue intact.
    let next = || lock(&queue).next();
    let work = || {
        let mut worker = make_worker();
        while let Some(item) = next() {
            worker(item);
        }
    };
    if threads <= 1 {
        return work();
    }
    thread::scope(|scope| {
        for _ in 1..threads {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_done_once() {
        for count in [1, 2, 7] {
            let mut numbers: Vec<u64> = (0..1000).collect();
            let items: Vec<&mut [u64]> = numbers.chunks_mut(13).collect();
            let made = Mutex::new(0);
            run(Threads::at_least_one(count), items, || {
                *made.lock().unwrap() += 1;
                |part: &mut [u64]| part.iter_mut().for_each(|number| *number *= 3)
            });
            assert!(numbers.iter().enumerate().all(|(idx, &number)| number == 3 * idx as u64));
            assert_eq!(made.into_inner().unwrap(), count);
        }
    }

    #[test]
    fn nothing_is_no_work() {
        run(Threads::PROCESSORS, Vec::<u8>::new(), || |_| unreachable!());
    }
}
