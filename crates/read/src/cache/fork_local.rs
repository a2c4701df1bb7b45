//! One value for each process: caches and access history after fork(2).
//!
//! A child has a copy of its parent's memory, locks included, but only of the thread that forked. A
//! lock that another thread held stays locked in the child for ever. So each child starts with an
//! empty value of its own. The locks within are those of [`kiln_parallel::locks`], which share
//! nothing with others.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

/// Number of forks between the process that counted first and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A value for each process: for the one that made it, and for the children that are forked off.
pub(crate) struct ForkLocal<T> {
    forks: u64,
    value: T,
    /// The value of a child, in the child's memory.
    child: OnceLock<Box<ForkLocal<T>>>,
}

impl<T> ForkLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        count_forks();
        Self { forks: FORKS.load(Ordering::Relaxed), value, child: OnceLock::new() }
    }

    /// Returns this process's value, which `make` makes in a child. The parent's value is not
    /// touched: its locks may be held for ever.
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &T {
        let forks = FORKS.load(Ordering::Relaxed);
        let mut here = self;
        while here.forks != forks {
            here = here.child.get_or_init(|| Box::new(Self { forks, value: make(), child: OnceLock::new() }));
        }
        &here.value
    }
}

/// Installs the handler that counts forks, once.
fn count_forks() {
    static ONCE: Once = Once::new();
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the handler takes nothing, and does what is allowed in a child of threads: an
        // atomic addition.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        debug_assert_eq!(failed, 0, "no memory for one more handler");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_its_own() {
        let value = ForkLocal::new(1);
        assert_eq!(value.get(|| 2), &1);
        let child = ForkLocal { forks: value.forks.wrapping_sub(1), value: 1, child: OnceLock::new() };
        assert_eq!((child.get(|| 2), child.get(|| 3)), (&2, &2));
    }
}
