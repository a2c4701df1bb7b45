//! From a directory to an image: the library's steps, with the failures of the command.

use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::process::signals::Signals;
use kiln::{Error, PackRequest};
use kiln_builder::{BuildError, BuildOptions, Estimate, Out, Progress, Reasons, Summary};
use kiln_source::Scan;
use kiln_tree::Tree;
use std::path::Path;

/// A directory to pack.
pub struct Job<'a> {
    /// What goes in, and as what.
    pub request: PackRequest<'a>,
    /// The image's name, for messages.
    pub image: &'a Path,
    /// What may end it.
    pub signals: &'a Signals,
}

impl Job<'_> {
    /// The tree that goes in.
    pub fn scan(&self, options: &BuildOptions) -> Result<Scan, Failure> {
        self.request.scan(options).map_err(|error| self.failure(error))
    }

    /// Build it into `out`.
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        out: Out<'_>,
        options: &BuildOptions,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Summary, Reasons<'t>), Failure> {
        self.request.build(tree, out, options, progress).map_err(|error| self.failure(error))
    }

    /// Estimate what it would become, with an extra device for chunks if `has_blob`.
    pub fn estimate(&self, tree: &Tree, has_blob: bool, options: &BuildOptions) -> Result<Estimate, Failure> {
        self.request.estimate(tree, has_blob, options).map_err(|error| self.failure(error))
    }

    /// What ended a step.
    pub fn failure(&self, error: impl Into<Error>) -> Failure {
        failure(error, self.signals, self.image)
    }
}

/// What ended a step on the way to the image `image`, with the names that the user knows.
pub fn failure(error: impl Into<Error>, signals: &Signals, image: &Path) -> Failure {
    match (error.into(), signals.caught()) {
        (Error::Source(error), caught) => Failure::of_source(error, caught, DEVICE_OPTION),
        (Error::Policy(error), _) => Failure::Policy(error),
        (Error::Xattr(error), _) => Failure::Xattr(error),
        (Error::Build(BuildError::Interrupted), Some(number)) => Failure::Signal(number),
        (Error::Build(source), _) => Failure::Build { image: image.to_owned(), source },
        (Error::Read { image, source }, _) => Failure::of_image(&image, 0, DEVICE_OPTION, source),
        (Error::Update { image, source }, _) => Failure::Update { image, source },
        // The steps have no others.
        (error, _) => Failure::Usage(error.to_string()),
    }
}

/// The environment's latest time, in seconds since 1970.
pub fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else { return Ok(None) };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let refuse = || Failure::Usage("SOURCE_DATE_EPOCH: not a number of seconds since 1970".into());
    secs.map(Some).ok_or_else(refuse)
}
