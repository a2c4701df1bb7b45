//! The input of all phases: the tree, the format, the caller's control, and the ledger of files that are left out.

pub(crate) mod clock;
pub(crate) mod ledger;
pub(crate) mod progress;

use crate::context::ledger::Ledger;
use crate::context::progress::Control;
use crate::format::Format;
use crate::inodes::previous::PreviousMetadata;
use kiln_tree::Tree;

/// The tree, the format and the caller's control: the same for all phases.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// Decisions about the image.
    pub format: &'a Format,
    /// Progress and interruption.
    pub control: &'a Control<'a>,
    /// Files that are not stored as they were scanned.
    pub ledger: &'a Ledger,
    /// Metadata of the previous image that may be kept, if there is any.
    pub previous: Option<&'a PreviousMetadata>,
}
