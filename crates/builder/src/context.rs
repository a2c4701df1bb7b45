//! The input of all phases: the tree, the options, the caller's control, and the ledger of files that are left out.

pub(crate) mod clock;
pub(crate) mod ledger;
pub(crate) mod progress;

use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::options::BuildOptions;
use kiln_tree::Tree;

/// The tree, the options and the caller's control: the same for all phases.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// The options.
    pub options: &'a BuildOptions,
    /// Progress and interruption.
    pub control: &'a Control<'a>,
    /// Files that are not stored as they were scanned.
    pub ledger: &'a Ledger,
}
