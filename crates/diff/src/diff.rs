//! The comparison as a whole: from two trees to changes in order.

use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{NodeId, Tree};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::change::{Aspect, Change};
use crate::compare::{Comparer, Outcome};
use crate::jobs::{ContentPiece, Job, Jobs};
use crate::pairs::{OneSided, Pair, Pairs};
use crate::reporter::{DiffSummary, Done, Reporter};
use crate::walk::{Rules, Walk};

/// Number of jobs per thread that may be started before the oldest of them is reported.
const BACKLOG: u64 = 64;

/// Options of a comparison.
#[derive(Clone, Copy)]
pub struct DiffOptions<'a> {
    /// Path at and below which to compare, in which symlinks are not followed; empty for
    /// everything.
    pub path: &'a [u8],
    /// Aspects to ignore.
    pub ignore: &'a [Aspect],
    /// Latest time of last modification, in seconds since 1970; later times count as this one.
    pub latest_mtime: Option<i64>,
    /// Returns true if a file of the first tree and one of the second, of equal length, are known
    /// to have equal contents; these are not read. May be called by any thread.
    pub is_same: Option<&'a (dyn Fn(NodeId, NodeId) -> bool + Sync)>,
    /// True to report an added or removed directory without its contents.
    pub brief: bool,
    /// Number of threads that compare contents. The result does not depend on it.
    pub threads: Threads,
    /// Ends the comparison early once it is true.
    pub stop: &'a AtomicBool,
    /// Called by any thread with the number of bytes compared so far, and in total. Computing the
    /// total takes an additional walk.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

/// Progress of a comparison.
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

/// Returns the number of bytes that `jobs` compare on each side.
fn planned(jobs: impl Iterator<Item = Job>) -> u64 {
    jobs.filter_map(|job| job.piece).map(|piece| piece.len()).sum()
}

/// An error of a comparison.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// Neither tree has the path.
    #[error("{}: no such file or directory on either side", path.escape_ascii())]
    NotFound {
        /// The path as the caller gave it.
        path: Vec<u8>,
    },
    /// The caller set the stop flag.
    #[error("interrupted")]
    Interrupted,
}

/// Calls `each` with every change from `a` to `b`, in walk order, until it breaks. Returns the
/// counts so far.
///
/// Names of one node in one tree must be names of one node in the other. Otherwise every name whose
/// set of links has changed gets a difference. A file that cannot be read is a change of its own
/// kind, and does not end the comparison.
///
/// # Errors
/// A path that neither tree has; an interruption.
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
