//! Changes in walk order, from steps of the walk and outcomes of their pieces.

use kiln_tree::NodeId;
use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::change::{Change, ChangeKind, Difference};
use crate::compare::Outcome;
use crate::walk::{Contents, Visit, WalkStep};

/// Counts of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffSummary {
    /// Paths only in the second tree.
    pub added: u64,
    /// Paths only in the first tree.
    pub removed: u64,
    /// Paths in both trees, with differences.
    pub changed: u64,
    /// Paths in both trees whose contents could not be compared. They may count as changed, too.
    pub unreadable: u64,
    /// Paths in both trees, without differences.
    pub same: u64,
    /// Bytes of contents that were read on each side.
    pub bytes: u64,
}

/// A finished job.
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) step: Option<WalkStep>,
}

/// Assembles changes from steps and outcomes, and reports them in order.
pub(crate) struct Reporter<'a> {
    each: &'a mut dyn FnMut(Change) -> ControlFlow<()>,
    pub(crate) summary: DiffSummary,
    /// First outcome, among the pieces so far of the current contents, that is not equal.
    outcome: Outcome,
    /// Outcomes of contents with several names in both trees.
    known: HashMap<(NodeId, NodeId), Outcome>,
}

impl<'a> Reporter<'a> {
    /// Creates a reporter that calls `each`.
    pub(crate) fn new(each: &'a mut dyn FnMut(Change) -> ControlFlow<()>) -> Self {
        Self { each, summary: DiffSummary::default(), outcome: Outcome::same(), known: HashMap::new() }
    }

    /// Takes the outcome of the next job.
    pub(crate) fn take(&mut self, done: Done) -> ControlFlow<()> {
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

    fn step(&mut self, WalkStep { path, visit }: WalkStep, outcome: Outcome) -> ControlFlow<()> {
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

    /// Returns the outcome of contents, which may be known from an earlier path.
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
