//! The comparison as a whole: from two trees to changes in order.

use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{NodeId, Tree};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::change::{Aspect, Change};
use crate::compare::{Comparer, Outcome};
use crate::jobs::{Job, Jobs, ContentPiece};
use crate::pairs::{OneSided, Pair, Pairs};
use crate::reporter::{DiffSummary, Done, Reporter};
use crate::walk::{Rules, Walk};

/// Jobs for each thread that may be handed out before the first of them is reported.
const BACKLOG: u64 = 64;

/// How to compare.
#[derive(Clone, Copy)]
pub struct DiffOptions<'a> {
    /// What is here and below is compared, a path without links to follow; empty for everything.
    pub path: &'a [u8],
    /// What makes no difference.
    pub ignore: &'a [Aspect],
    /// Times of last modification later than this many seconds since 1970 count as this.
    pub latest_mtime: Option<i64>,
    /// Returns true for a file of the first tree and one of the second, of equal length, of which something else tells
    /// that their contents are the same: they are not read. May be called by any thread.
    pub is_same: Option<&'a (dyn Fn(NodeId, NodeId) -> bool + Sync)>,
    /// Report an added or removed directory without what is in it.
    pub brief: bool,
    /// Threads that compare contents. Nothing depends on it but the time taken.
    pub threads: Threads,
    /// Ends the comparison early once set.
    pub stop: &'a AtomicBool,
    /// Is told, by any thread, how many bytes of contents are compared, and of how many. Knowing that takes one walk more.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// Tells how far it is.
struct Telling<'a> {
    tell: &'a (dyn Fn(u64, u64) + Sync),
    done: AtomicU64,
    total: u64,
}

impl Telling<'_> {
    fn advance(&self, len: u64) {
        let before = self.done.fetch_add(len, Ordering::Relaxed);
        (self.tell)(before + len, self.total);
    }
}

/// Bytes that jobs compare, on each side.
fn planned(jobs: impl Iterator<Item = Job>) -> u64 {
    jobs.filter_map(|job| job.piece).map(|piece| piece.len()).sum()
}

/// Why trees could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// Neither tree has the path.
    #[error("{}: no such file or directory on either side", path.escape_ascii())]
    NotFound {
        /// As the caller gave it.
        path: Vec<u8>,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Tell `each` what is different in `b` from `a`, in the order of a walk, until it breaks: then the counts are those so far.
///
/// Names in one tree that lead to one node must do so in the other: a difference in that is a difference of every name that
/// has lost or gained others. A file that cannot be read is a change of its own kind, and does not end the comparison.
///
/// # Errors
/// A path that is nowhere; an interruption.
pub fn diff(
    a: &Tree,
    b: &Tree,
    options: &DiffOptions<'_>,
    each: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> Result<DiffSummary, DiffError> {
    let start = match (find(a, options.path), find(b, options.path)) {
        (Some(a), Some(b)) => Pair::Both(a, b),
        (Some(a), None) => Pair::A(a),
        (None, Some(b)) => Pair::B(b),
        (None, None) => return Err(DiffError::NotFound { path: options.path.to_vec() }),
    };
    let one_sided = if options.brief { OneSided::Skip } else { OneSided::Enter };
    let path: Vec<_> = names(options.path).collect();
    let path = path.join(&b'/');
    let not_stopped = || !options.stop.load(Ordering::Relaxed);
    let DiffOptions { ignore, latest_mtime, is_same, .. } = *options;
    let jobs = || {
        let pairs = Pairs::new(a, b, start, &path, one_sided);
        let walk = Walk::new(a, b, pairs, Rules { ignore, latest_mtime, is_same });
        Jobs::new(a, b, walk).take_while(|_| not_stopped())
    };
    let mut reporter = Reporter::new(each);
    let progress = options.progress.map(|tell| Telling { tell, done: AtomicU64::new(0), total: planned(jobs()) });
    let make_worker = || {
        let mut comparer = Comparer::new(a, b, options.stop);
        let progress = &progress;
        move |job: Job| {
            let len = job.piece.as_ref().map_or(0, ContentPiece::len);
            let outcome = job.piece.map_or(Outcome::same(), |piece| comparer.run(&piece));
            if let Some(progress) = progress {
                progress.advance(len);
            }
            Ok(Done { outcome, step: job.step })
        }
    };
    let backlog = options.threads.count() as u64 * BACKLOG;
    let jobs = jobs().map(|job| Costed { job, cost: 1 });
    // A break leaves the pool as an error does.
    let _ = ordered::run(
        options.threads,
        backlog,
        jobs,
        || Ok(make_worker()),
        |done| match not_stopped() {
            true => reporter.take(done).break_value().map_or(Ok(()), Err),
            false => Err(()),
        },
    );
    if not_stopped() { Ok(reporter.summary) } else { Err(DiffError::Interrupted) }
}

/// The names of a path.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|name| !name.is_empty())
}

fn find(tree: &Tree, path: &[u8]) -> Option<NodeId> {
    tree.find(names(path))
}
