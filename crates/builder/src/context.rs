//! What all phases of a build are given: the tree, the options, how a caller follows and ends it, and where they post what they
//! leave out.

pub(crate) mod clock;
pub(crate) mod ledger;
pub(crate) mod progress;

use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::options::BuildOptions;
use kiln_tree::Tree;

/// What is built, how, and how a caller ends it: the same for all phases.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// What the caller chose.
    pub options: &'a BuildOptions,
    /// Progress and interruption.
    pub control: &'a Control<'a>,
    /// Files that are not stored as they were scanned.
    pub ledger: &'a Ledger,
}
