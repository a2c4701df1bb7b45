//! What is different between two trees.
//!
//! Both trees are walked at once, name by name. Metadata is compared on the way; contents, where lengths are equal, by any
//! number of threads, in pieces, so that one large file keeps all of them busy. Changes come out in the order of the walk,
//! whatever the number of threads, and all that is held for that is a bounded number of them.

mod change;
mod compare;
mod jobs;
mod links;
mod ordered;
mod pairs;
mod walk;

pub use change::{Aspect, Change, ChangeKind, Difference, Side, XattrChange};

use compare::{Comparer, Outcome};
use jobs::{Job, Jobs, Piece};
use kiln_builder::tree::{NodeId, Tree};
use pairs::{OneSided, Pair, Pairs};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use walk::{Contents, Step, Visit, Walk};

/// How to compare.
#[derive(Clone, Copy)]
pub struct DiffOptions<'a> {
    /// What is here and below is compared, a path without links to follow; empty for everything.
    pub path: &'a [u8],
    /// What makes no difference.
    pub ignore: &'a [Aspect],
    /// Report an added or removed directory without what is in it.
    pub brief: bool,
    /// Threads that compare contents, at least 1. Nothing depends on it but the time taken.
    pub threads: usize,
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

/// Counts of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffSummary {
    /// Only in the second tree.
    pub added: u64,
    /// Only in the first tree.
    pub removed: u64,
    /// In both, and different.
    pub changed: u64,
    /// In both, and their contents could not be compared. A path may be changed, too.
    pub unreadable: u64,
    /// In both, and the same.
    pub same: u64,
    /// Bytes of contents that were read on each side.
    pub bytes: u64,
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
    let jobs = || {
        let walk = Walk::new(a, b, Pairs::new(a, b, start, &path, one_sided), options.ignore);
        Jobs::new(a, b, walk).take_while(|_| not_stopped())
    };
    let mut reporter = Reporter::new(each);
    let progress = options.progress.map(|tell| Telling { tell, done: AtomicU64::new(0), total: planned(jobs()) });
    let make_worker = || {
        let mut comparer = Comparer::new(a, b, options.stop);
        let progress = &progress;
        move |job: Job| {
            let len = job.piece.as_ref().map_or(0, Piece::len);
            let outcome = job.piece.map_or(Outcome::same(), |piece| comparer.run(&piece));
            if let Some(progress) = progress {
                progress.advance(len);
            }
            Done { outcome, step: job.step }
        }
    };
    let jobs = jobs();
    let _ = ordered::run(options.threads, jobs, make_worker, |done| match not_stopped() {
        true => reporter.take(done),
        false => ControlFlow::Break(()),
    });
    if not_stopped() { Ok(reporter.summary) } else { Err(DiffError::Interrupted) }
}

/// The names of a path.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|name| !name.is_empty())
}

fn find(tree: &Tree, path: &[u8]) -> Option<NodeId> {
    tree.find(names(path))
}

/// A job that is done.
struct Done {
    outcome: Outcome,
    step: Option<Step>,
}

/// Puts steps and the outcomes of their pieces together, in order.
struct Reporter<'a> {
    each: &'a mut dyn FnMut(Change) -> ControlFlow<()>,
    summary: DiffSummary,
    /// What decided about the contents whose pieces are coming in.
    outcome: Outcome,
    /// Of contents that have several names on both sides.
    known: HashMap<(NodeId, NodeId), Outcome>,
}

impl<'a> Reporter<'a> {
    fn new(each: &'a mut dyn FnMut(Change) -> ControlFlow<()>) -> Self {
        Self { each, summary: DiffSummary::default(), outcome: Outcome::same(), known: HashMap::new() }
    }

    fn take(&mut self, done: Done) -> ControlFlow<()> {
        self.summary.bytes += done.outcome.bytes;
        if self.outcome.is_same() {
            self.outcome = done.outcome;
        }
        match done.step {
            None => ControlFlow::Continue(()),
            Some(step) => {
                let outcome = std::mem::replace(&mut self.outcome, Outcome::same());
                self.step(step, outcome)
            }
        }
    }

    fn step(&mut self, Step { path, visit }: Step, outcome: Outcome) -> ControlFlow<()> {
        match visit {
            Visit::Added(file_type) => {
                self.summary.added += 1;
                (self.each)(Change { path, kind: ChangeKind::Added(file_type) })
            }
            Visit::Removed(file_type) => {
                self.summary.removed += 1;
                (self.each)(Change { path, kind: ChangeKind::Removed(file_type) })
            }
            Visit::Both { differences, contents } => {
                let outcome = self.outcome_of(contents, outcome);
                self.both(path, differences, outcome)
            }
        }
    }

    /// What is known of contents: now, or from an earlier name.
    fn outcome_of(&mut self, contents: Contents, outcome: Outcome) -> Outcome {
        match contents {
            Contents::Settled | Contents::Compare { several_names: false, .. } => outcome,
            Contents::Compare { a, b, several_names: true } => {
                self.known.insert((a, b), outcome.clone());
                outcome
            }
            Contents::AsBefore { a, b } => self.known.get(&(a, b)).cloned().unwrap_or(outcome),
        }
    }

    fn both(&mut self, path: Vec<u8>, mut differences: Vec<Difference>, outcome: Outcome) -> ControlFlow<()> {
        let (first_different, unreadable) = (outcome.first_different, outcome.unreadable);
        if let Some(off) = first_different {
            differences.insert(0, Difference::Contents { off });
        }
        self.summary.same += u64::from(differences.is_empty() && unreadable.is_none());
        if let Some((side, error)) = unreadable {
            self.summary.unreadable += 1;
            (self.each)(Change { path: path.clone(), kind: ChangeKind::Unreadable { side, error } })?;
        }
        if !differences.is_empty() {
            self.summary.changed += 1;
            (self.each)(Change { path, kind: ChangeKind::Changed(differences) })?;
        }
        ControlFlow::Continue(())
    }
}
