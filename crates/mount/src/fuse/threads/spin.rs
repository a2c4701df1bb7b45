//! Adaptive spinning: a leader polls for the next request for a moment before it blocks.
//!
//! A client asks again some microseconds after each answer, and waking a sleeper on an idle
//! processor costs more than spinning that long, especially in a virtual machine. Spinning is
//! useless if other processes need the processor, or if no request comes soon: then it stops, and
//! is only tried again from time to time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to spin: about the time that a sleeping client takes to wake up and ask again.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Largest credit, and credit lost by a failure. Each success earns 1.
const CREDIT_MAX: u32 = 16;
const LOSS: u32 = 2;
/// Number of times to skip without credit before the next try: twice as many after each failure.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 16 << 10;

/// Recent usefulness of spinning.
#[derive(Debug)]
pub(super) struct Spin {
    credit: AtomicU32,
    /// Number of times skipped since the last try.
    skipped: AtomicU32,
    /// Number of times to skip until the next try.
    pause: AtomicU32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { credit: AtomicU32::new(LOSS), skipped: AtomicU32::new(0), pause: AtomicU32::new(PAUSE_MIN) }
    }
}

impl Spin {
    /// Polls `has_come` for a moment, until it is true, if that has been useful. Threads that do so
    /// at the same time may overwrite each other's credit, which only makes the guess worse.
    pub(super) fn until(&self, has_come: impl Fn() -> bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit < LOSS {
            if self.skipped.fetch_add(1, Ordering::Relaxed) < self.pause.load(Ordering::Relaxed) {
                return;
            }
            self.skipped.store(0, Ordering::Relaxed);
        }
        let start = Instant::now();
        let mut polls = 0;
        while !has_come() {
            // Another process that needs this processor gets it, which ends the spinning at once.
            thread::yield_now();
            polls += 1;
            if start.elapsed() > SPIN_TIME {
                return self.missed(credit, polls);
            }
        }
        self.credit.store(CREDIT_MAX.min(credit.max(LOSS) + 1), Ordering::Relaxed);
        self.pause.store(PAUSE_MIN, Ordering::Relaxed);
    }

    /// Records that no request had come after `polls` polls. If there was only time for one,
    /// another process had the processor, and should have it: all credit is lost.
    fn missed(&self, credit: u32, polls: u32) {
        let credit = if polls > 1 { credit.saturating_sub(LOSS) } else { 0 };
        self.credit.store(credit, Ordering::Relaxed);
        if credit < LOSS {
            let pause = self.pause.load(Ordering::Relaxed);
            self.pause.store(PAUSE_MAX.min(2 * pause), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn useless_spinning_is_given_up() {
        let spin = Spin::default();
        let tries = |times: u32| {
            let tries = Cell::new(0);
            for _ in 0..times {
                let is_first = Cell::new(true);
                spin.until(|| {
                    tries.set(tries.get() + u32::from(is_first.replace(false)));
                    false
                });
            }
            tries.get()
        };
        for _ in 0..CREDIT_MAX {
            spin.until(|| true);
        }
        assert!((1..=CREDIT_MAX / LOSS).contains(&tries(PAUSE_MIN)));
        // Tries become rarer and rarer.
        assert!((5..10).contains(&tries(100 * PAUSE_MIN)));
        assert!(tries(2 * PAUSE_MAX) <= 3);
        // One useful try restores the credit.
        while spin.credit.load(Ordering::Relaxed) < LOSS {
            spin.until(|| true);
        }
        assert_eq!(tries(1), 1);
    }
}
