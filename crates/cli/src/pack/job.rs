//! From a directory to an image.

use crate::exit::Failure;
use crate::signals::Signals;
use kiln_build::{BuildError, BuildOptions, Control, Estimate, Progress, Reasons, Summary, Tree};
use kiln_source::dir::{Scan, ScanError, ScanOptions};
use kiln_source::filter::{self, Filter, Policy};
use std::fs::File;
use std::path::Path;

/// A directory to pack, and how.
pub struct Job<'a> {
    /// The directory.
    pub src: &'a Path,
    /// The image's name, for messages.
    pub image: &'a Path,
    /// What of the directory goes in.
    pub filter: &'a Filter,
    /// As what.
    pub policy: &'a Policy,
    /// How the image is built; its threads scan, too.
    pub options: &'a BuildOptions,
}

impl Job<'_> {
    /// The tree that goes in.
    pub fn scan(&self, signals: &Signals) -> Result<Scan, Failure> {
        let BuildOptions { threads, keep_going, .. } = *self.options;
        let options = ScanOptions { threads, keep_going, filter: self.filter, stop: signals.stop() };
        let scan = kiln_source::dir::scan(self.src, &options);
        let scan = scan.map_err(|error| match (error, signals.caught()) {
            (ScanError::Interrupted, Some(number)) => Failure::Signal(number),
            (error, _) => Failure::Source(error),
        })?;
        Ok(Scan { tree: filter::apply(scan.tree, self.policy).map_err(Failure::Policy)?, ..scan })
    }

    /// Build it into `out`, which is empty.
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        out: &File,
        signals: &Signals,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Summary, Reasons<'t>), Failure> {
        let control = Control { stop: signals.stop(), progress };
        let built = kiln_build::build_explained(tree, out, self.options, &control);
        built.map_err(|source| self.failure(source, signals))
    }

    /// Estimate what it would become.
    pub fn estimate(&self, tree: &Tree, signals: &Signals) -> Result<Estimate, Failure> {
        let control = Control { stop: signals.stop(), progress: &|_| {} };
        let estimate = kiln_build::estimate(tree, self.options, &control);
        estimate.map_err(|source| self.failure(source, signals))
    }

    fn failure(&self, source: BuildError, signals: &Signals) -> Failure {
        match (source, signals.caught()) {
            (BuildError::Interrupted, Some(number)) => Failure::Signal(number),
            (source, _) => Failure::Build { image: self.image.to_owned(), source },
        }
    }
}

/// The environment's latest time, in seconds since 1970.
pub fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else { return Ok(None) };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let refuse = || Failure::Usage("SOURCE_DATE_EPOCH: not a number of seconds since 1970".into());
    secs.map(Some).ok_or_else(refuse)
}
