//! Locks that no panic closes.
//!
//! Whoever starts threads passes their panics on, so a poisoned lock would only hide the first panic behind others. These are the locks of
//! the standard library, for code that must work in a child after fork(2): `parking_lot` keeps all waiting threads of a process in one
//! table, and a child would wait for ever for a part of the table that another thread held when it was forked off.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lock, also after a panic of a thread that held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unlock, and lock again when another thread notifies, or for no reason.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The value, also after a panic of a thread that held the lock.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
