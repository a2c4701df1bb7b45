//! Results that threads bring in any order, and that one thread takes in the order of their numbers.
//!
//! A channel and a map of results that came early would do the same. Both are compiled again for
//! each type of results, of which there are many, and those of the standard library are long.

use crate::locks::{lock, wait};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

/// Results, numbered from 0 on.
pub(crate) struct Turns<R> {
    state: Mutex<State<R>>,
    /// The next result has come, or nobody brings any more.
    changed: Condvar,
}

struct State<R> {
    /// Number of the next result to take.
    turn: u64,
    /// Results from that number on, as far as they have come.
    results: VecDeque<Option<R>>,
    /// Number of bringers.
    bringers: usize,
}

impl<R> Turns<R> {
    pub(crate) fn new() -> Self {
        let state = State { turn: 0, results: VecDeque::new(), bringers: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the handle of a thread that brings results. Make it before the thread is started.
    pub(crate) fn bringer(&self) -> Bringer<'_, R> {
        lock(&self.state).bringers += 1;
        Bringer(self)
    }

    /// Returns the next result, and waits for it. Returns `None` if there are no bringers left, and
    /// none has brought it.
    pub(crate) fn next(&self) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            if let Some(result) = state.results.front_mut().and_then(Option::take) {
                state.results.pop_front();
                state.turn += 1;
                return Some(result);
            }
            if state.bringers == 0 {
                return None;
            }
            state = wait(&self.changed, state);
        }
    }
}

/// Handle of a thread that brings results. Dropped, it tells that the thread brings no more.
pub(crate) struct Bringer<'a, R>(&'a Turns<R>);

impl<R> Bringer<'_, R> {
    /// Brings the result with a number, which nobody else brings.
    pub(crate) fn bring(&self, number: u64, result: R) {
        let mut state = lock(&self.0.state);
        let place = usize::try_from(number - state.turn).expect("results wait in memory");
        if place >= state.results.len() {
            state.results.resize_with(place + 1, || None);
        }
        state.results[place] = Some(result);
        if place == 0 {
            self.0.changed.notify_one();
        }
    }
}

impl<R> Drop for Bringer<'_, R> {
    fn drop(&mut self) {
        lock(&self.0.state).bringers -= 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn results_are_taken_in_order() {
        let turns = Turns::new();
        let bringer = turns.bringer();
        for number in [2, 1, 0, 4] {
            bringer.bring(number, number);
        }
        assert_eq!([(); 3].map(|()| turns.next()), [0, 1, 2].map(Some));
        drop(bringer);
        assert_eq!(turns.next(), None, "nobody brings 3");
    }

    #[test]
    fn waiting_ends_with_a_result_or_with_the_last_bringer() {
        let turns = Turns::new();
        let bringers = [turns.bringer(), turns.bringer()];
        thread::scope(|scope| {
            for (idx, bringer) in bringers.into_iter().enumerate() {
                scope.spawn(move || {
                    for number in (idx as u64..1000).step_by(2) {
                        if number % 100 < 2 {
                            thread::yield_now();
                        }
                        bringer.bring(number, number);
                    }
                });
            }
            for number in 0..1000 {
                assert_eq!(turns.next(), Some(number));
            }
            assert_eq!(turns.next(), None);
        });
    }
}
