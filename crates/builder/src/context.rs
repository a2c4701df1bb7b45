//! What all phases of a build are given.

use crate::options::BuildOptions;
use crate::progress::Control;
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
