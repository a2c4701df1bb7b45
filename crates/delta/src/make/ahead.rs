//! Properties of the spans ahead in a run, computed once from the end, so that no step has to scan
//! the rest of a long file.

use kiln_read::Algorithm;

use crate::make::map::{Span, SpanStorage};
use crate::make::prover::Prover;

/// Properties of the spans ahead, by span.
pub(crate) struct Ahead {
    steps: Vec<SpanAhead>,
    /// Spans after which filling may begin.
    begins: Begins,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Anywhere,
    BehindShortSpans,
}

#[derive(Clone, Copy, Default)]
struct SpanAhead {
    /// Algorithm of the first encoded span from here on, including a file's end beside its inode.
    algorithm: Option<Algorithm>,
    /// Number of spans from here on that the old image has without a gap.
    there: usize,
    /// Number of these up to the last one after which filling may begin.
    ended: usize,
}

impl Ahead {
    /// Computes the properties of `run`. `is_there` returns true for the spans that the old image
    /// has.
    pub(crate) fn new(run: &[Span], is_there: impl Fn(usize) -> bool, prover: Option<&Prover<'_>>) -> Self {
        let mut steps = vec![SpanAhead::default(); run.len() + 1];
        for (idx, span) in run.iter().enumerate().rev() {
            let next = steps[idx + 1];
            let algorithm = match span.stored {
                SpanStorage::Encoded(algorithm) | SpanStorage::Tail(algorithm) => Some(algorithm),
                SpanStorage::Plain | SpanStorage::Raw => next.algorithm,
            };
            steps[idx] = match is_there(idx) {
                false => SpanAhead { algorithm, there: 0, ended: 0 },
                true => {
                    let ends_here = prover.is_some_and(|prover| prover.may_end_with(span));
                    let ended = if next.ended > 0 { next.ended + 1 } else { usize::from(ends_here) };
                    SpanAhead { algorithm, there: next.there + 1, ended }
                }
            };
        }
        let is_free = |prover: &Prover<'_>| steps[0].algorithm.is_none_or(|one| prover.starts_anywhere(one));
        let begins = if prover.is_none_or(is_free) { Begins::Anywhere } else { Begins::BehindShortSpans };
        Self { steps, begins }
    }

    /// Returns the algorithm of the first encoded span from `at` on.
    pub(crate) fn algorithm(&self, at: usize) -> Option<Algorithm> {
        self.steps[at].algorithm
    }

    /// Returns the number of spans from `at` on that are copied from the old image: up to the last
    /// one after which filling may begin.
    pub(crate) fn copied(&self, at: usize) -> usize {
        let SpanAhead { algorithm, there, ended } = self.steps[at];
        let goes_on = at + there < self.steps.len() - 1;
        match self.begins {
            Begins::BehindShortSpans if goes_on && algorithm.is_some() => ended,
            _ => there,
        }
    }
}
