//! Long work that Ctrl-C ends. It runs on a thread of its own, while the calling thread checks for
//! signals.

use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval between two checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// Runs `work` on a thread, without the interpreter, and waits for it. Meanwhile it handles signals
/// and calls `tick` on this thread, about twenty times a second and once at the end (with the flag
/// set). An error of either sets `stop`, which ends `work` early, and is returned once the work has
/// ended. No thread outlives the call.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(Python<'_>, IsLast) -> PyResult<()>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let end = End::default();
    thread::scope(|scope| {
        let on_thread = || {
            let _guard = EndGuard(&end);
            work()
        };
        let worker = thread::Builder::new().name("kilnfs".into()).spawn_scoped(scope, on_thread)?;
        let mut outcome = Ok(());
        loop {
            let is_last = py.detach(|| end.wait());
            if outcome.is_ok() {
                outcome = py.check_signals().and_then(|()| tick(py, is_last));
                if outcome.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if is_last.0 {
                break;
            }
        }
        match py.detach(|| worker.join()) {
            Ok(done) => outcome.map(|()| done),
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// True if the work has ended.
#[derive(Clone, Copy)]
pub(crate) struct IsLast(pub(crate) bool);

/// Signal for the end of the work.
#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl End {
    /// Waits for the end, at most one tick.
    fn wait(&self) -> IsLast {
        let guard = self.lock();
        let (guard, _) =
            self.comes.wait_timeout_while(guard, TICK, |come| !*come).unwrap_or_else(PoisonError::into_inner);
        IsLast(*guard)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_come.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that signals the end when it is dropped, also after a panic.
struct EndGuard<'e>(&'e End);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = true;
        self.0.comes.notify_all();
    }
}

/// Progress of the work, set by its threads and read by the calling one.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    done: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    /// Sets the progress in bytes.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Returns a tick that calls `callback(done, total)` if the progress has changed.
    pub(crate) fn reporter<'py>(
        &self,
        callback: Option<Bound<'py, PyAny>>,
    ) -> impl FnMut(Python<'_>, IsLast) -> PyResult<()> {
        let mut reported = (0, 0);
        move |_, _| {
            let Some(callback) = &callback else { return Ok(()) };
            let now = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
            if now != reported {
                reported = now;
                callback.call1(now)?;
            }
            Ok(())
        }
    }
}
