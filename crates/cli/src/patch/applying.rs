//! Values that all ways to apply a patch share.

use crate::console::progress::Meter;
use crate::console::size::Human;
use crate::exit::Failure;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_delta::{ApplyReport, DeltaError, Patch};
use std::io::{self, Read};
use std::path::Path;

/// A patch, from a file or a pipe.
pub(super) type PatchInput = Box<dyn Read + Send>;

/// A patch that is about to be applied.
pub(super) struct Applying<'a> {
    pub patch: Patch<PatchInput>,
    /// The path of the old image.
    pub old: &'a Path,
    /// Print nothing but errors.
    pub quiet: bool,
    pub work: &'a WorkArgs,
    pub signals: &'a Signals,
    /// Converts an error for the user.
    pub of_patch: &'a dyn Fn(DeltaError) -> Failure,
}

impl Applying<'_> {
    /// Returns the meter of the new image's progress.
    pub(super) fn meter(&self) -> Meter {
        self.work.meter(self.quiet)
    }
}

/// Describes the result of applying.
pub(super) fn said(applied: &ApplyReport) -> String {
    let ApplyReport { new_len, copied, encoded } = *applied;
    format!("{}: {} copied, {} encoded", Human(new_len), Human(copied), Human(encoded))
}

pub(super) fn file_failure(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { path: path.to_owned(), action, source }
}
