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
/// Without credit it is left out so many times before it is tried again: twice as often after each failure.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 16 << 10;

/// Whether looking out has been worth it lately.
#[derive(Debug)]
pub struct Watch {
    credit: AtomicU32,
    /// Times left out since the last try, and until the next.
    left_out: AtomicU32,
    pause: AtomicU32,
}

impl Default for Watch {
    fn default() -> Self {
        Self { credit: AtomicU32::new(LOSS), left_out: AtomicU32::new(0), pause: AtomicU32::new(PAUSE_MIN) }
    }
}

impl Watch {
    /// Look out for a moment, until `has_come`, if that is worth it. Threads that do so at the same time may overwrite each other's
    /// credit: that costs a guess, nothing else.
    pub fn watch(&self, has_come: impl Fn() -> bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit < LOSS {
            if self.left_out.fetch_add(1, Ordering::Relaxed) < self.pause.load(Ordering::Relaxed) {
                return;
            }
            self.left_out.store(0, Ordering::Relaxed);
        }
        let start = Instant::now();
        let mut looks = 0;
        while !has_come() {
            // Others who want this processor get it, and then the moment is over at once.
            thread::yield_now();
            looks += 1;
            if start.elapsed() > MOMENT {
                return self.in_vain(credit, looks);
            }
        }
        self.credit.store(CREDIT_MAX.min(credit.max(LOSS) + 1), Ordering::Relaxed);
        self.pause.store(PAUSE_MIN, Ordering::Relaxed);
    }

    /// Note that nothing had come, after so many looks. After one, the processor is somebody else's: he shall have it.
    fn in_vain(&self, credit: u32, looks: u32) {
        let credit = if looks > 1 { credit.saturating_sub(LOSS) } else { 0 };
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
    fn what_is_in_vain_is_given_up() {
        let watch = Watch::default();
        let tries = |times: u32| {
            let tries = Cell::new(0);
            for _ in 0..times {
                let is_first = Cell::new(true);
                watch.watch(|| {
                    tries.set(tries.get() + u32::from(is_first.replace(false)));
                    false
                });
            }
            tries.get()
        };
        for _ in 0..CREDIT_MAX {
            watch.watch(|| true);
        }
        assert!((1..=CREDIT_MAX / LOSS).contains(&tries(PAUSE_MIN)));
        // Then seldom, and ever more seldom.
        assert!((5..10).contains(&tries(100 * PAUSE_MIN)));
        assert!(tries(2 * PAUSE_MAX) <= 3);
        // Until it was good once.
        while watch.credit.load(Ordering::Relaxed) < LOSS {
            watch.watch(|| true);
        }
        assert_eq!(tries(1), 1);
    }
}
