//! Looking out for the next request for a moment before sleeping.
//!
//! One client asks again some microseconds after each answer, and to wake a sleeper on an idle processor costs more than looking out
//! for so long, in a virtual machine above all. It is no use where other processes want the processor, or where nobody asks soon:
//! then it is given up, and tried again only from time to time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long to look out: about what it takes a client that was asleep to wake up and ask again.
const MOMENT: Duration = Duration::from_micros(50);
/// Credit is earned with each success, up to this, and lost with each failure.
const CREDIT_MAX: u32 = 16;
const LOSS: u32 = 2;
/// Without credit, it is tried once in so many times.
const TRY_EVERY: u32 = 64;

/// Whether looking out has been worth it lately.
#[derive(Debug, Default)]
pub struct Watch {
    credit: AtomicU32,
    /// Times without credit.
    without: AtomicU32,
}

impl Watch {
    /// Look out for a moment, until `has_come`, if that is worth it. Threads that do so at the same time may overwrite each other's
    /// credit: that costs a guess, nothing else.
    pub fn watch(&self, has_come: impl Fn() -> bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit < LOSS && !self.without.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY) {
            return;
        }
        let start = Instant::now();
        let mut is_over = false;
        while !has_come() && !is_over {
            // Others who want this processor get it, and then the moment is over.
            thread::yield_now();
            is_over = start.elapsed() > MOMENT;
        }
        let credit = if is_over { credit.saturating_sub(LOSS) } else { CREDIT_MAX.min(credit + 1) };
        self.credit.store(credit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_in_vain_is_given_up() {
        let watch = Watch::default();
        for _ in 0..CREDIT_MAX {
            watch.watch(|| true);
        }
        assert!(watch.credit.load(Ordering::Relaxed) > 0);
        let tries = Cell::new(0);
        for _ in 0..10 * TRY_EVERY {
            let is_first = Cell::new(true);
            watch.watch(|| {
                tries.set(tries.get() + u32::from(is_first.replace(false)));
                false
            });
        }
        // Until the credit is used up, and then seldom.
        assert!((10..=10 + CREDIT_MAX / LOSS).contains(&tries.get()), "{}", tries.get());
    }
}
