//! Locks that stay usable after a panic.
//!
//! Code that starts threads also passes on their panics, so a poisoned lock would only hide the
//! first panic behind others. These are the locks of the standard library, for code that must work
//! in a child after fork(2): `parking_lot` keeps all waiting threads of a process in one table, and
//! a child would wait forever for a part of the table that another thread had locked during the
//! fork.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic of a thread that held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unlocks the mutex, waits for a notification, and locks it again. May also return without a
/// notification.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Returns the value, even after a panic of a thread that held the lock.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
