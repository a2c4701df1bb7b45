//! Number of threads for some work.

use std::num::NonZero;
use std::thread::available_parallelism;

/// Number of threads for some work, including the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Threads(Option<NonZero<usize>>);

impl Threads {
    /// The calling thread only.
    pub const ONE: Threads = Threads(Some(NonZero::<usize>::MIN));

    /// One thread for each processor that the process may run on: the default.
    pub const PROCESSORS: Threads = Threads(None);

    /// Returns exactly `count` threads.
    pub const fn exactly(count: NonZero<usize>) -> Self {
        Threads(Some(count))
    }

    /// Returns `count` threads; one if `count` is 0.
    pub const fn at_least_one(count: usize) -> Self {
        match NonZero::new(count) {
            Some(count) => Threads(Some(count)),
            None => Threads::ONE,
        }
    }

    /// Returns the number of threads, for this process at this time.
    pub fn count(self) -> usize {
        self.0.or_else(|| available_parallelism().ok()).map_or(1, NonZero::get)
    }
}

impl From<NonZero<usize>> for Threads {
    fn from(count: NonZero<usize>) -> Self {
        Threads::exactly(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_what_was_asked_for() {
        assert_eq!(Threads::ONE.count(), 1);
        assert_eq!(Threads::from(NonZero::new(7).unwrap()).count(), 7);
        assert_eq!([0, 1, 5].map(|count| Threads::at_least_one(count).count()), [1, 1, 5]);
        assert_eq!(Threads::default(), Threads::PROCESSORS);
        assert!(Threads::PROCESSORS.count() >= 1);
    }
}
