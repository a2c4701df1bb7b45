//! What all phases of a build are given: the tree, the options, and how a caller follows and ends it.

pub(crate) mod clock;
pub(crate) mod progress;

use crate::context::progress::Control;
use crate::options::BuildOptions;
use crate::tree::Tree;

/// What is built, how, and how a caller ends it: the same for all phases.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// What the caller chose.
    pub options: &'a BuildOptions,
    /// Progress and interruption.
    pub control: &'a Control<'a>,
}
