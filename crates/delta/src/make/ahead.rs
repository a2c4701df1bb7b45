//! Spans that lie ahead in a run: looked at once, from behind, so that no step has to look through the rest of a long
//! file.

use kiln_read::Algorithm;

use crate::make::map::{Span, Stored};
use crate::make::prover::Prover;

/// Facts about the spans that lie ahead, by span.
pub(crate) struct Ahead {
    steps: Vec<Step>,
    /// Filling can begin behind any span, or behind those of `may_begin`.
    begins: Begins,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Anywhere,
    BehindShortSpans,
}

#[derive(Clone, Copy, Default)]
struct Step {
    /// The algorithm of the first encoded span from here on, the end of a file beside its inode included.
    algorithm: Option<Algorithm>,
    /// Spans from here on that the old image has, up to the first that it has not.
    there: usize,
    /// Of these, spans up to the last one behind which filling may begin.
    ended: usize,
}

impl Ahead {
    /// Of `run`, of which the old image has the spans that `is_there` says.
    pub(crate) fn new(run: &[Span], is_there: impl Fn(usize) -> bool, prover: Option<&Prover<'_>>) -> Self {
        let mut steps = vec![Step::default(); run.len() + 1];
        for (idx, span) in run.iter().enumerate().rev() {
            let next = steps[idx + 1];
            let algorithm = match span.stored {
                Stored::Encoded(algorithm) | Stored::Tail(algorithm) => Some(algorithm),
                Stored::Plain | Stored::Raw => next.algorithm,
            };
            steps[idx] = match is_there(idx) {
                false => Step { algorithm, there: 0, ended: 0 },
                true => {
                    let ends_here = prover.is_some_and(|prover| prover.may_end_with(span));
                    let ended = if next.ended > 0 { next.ended + 1 } else { usize::from(ends_here) };
                    Step { algorithm, there: next.there + 1, ended }
                }
            };
        }
        let is_free = |prover: &Prover<'_>| steps[0].algorithm.is_none_or(|one| prover.starts_anywhere(one));
        let begins = if prover.is_none_or(is_free) { Begins::Anywhere } else { Begins::BehindShortSpans };
        Self { steps, begins }
    }

    /// The algorithm of the first encoded span from `at` on.
    pub(crate) fn algorithm(&self, at: usize) -> Option<Algorithm> {
        self.steps[at].algorithm
    }

    /// Returns the number of spans from `at` on that are copied from the old image: up to the last one behind which
    /// filling may begin.
    pub(crate) fn copied(&self, at: usize) -> usize {
        let Step { algorithm, there, ended } = self.steps[at];
        let goes_on = at + there < self.steps.len() - 1;
        match self.begins {
            Begins::BehindShortSpans if goes_on && algorithm.is_some() => ended,
            _ => there,
        }
    }
}
