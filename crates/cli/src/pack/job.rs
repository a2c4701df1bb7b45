//! From a directory to an image.

use crate::exit::Failure;
use crate::image::DEVICE_OPTION;
use crate::signals::Signals;
use kiln_builder::{BuildError, BuildOptions, Control, Estimate, Out, Progress, Reasons, Summary, Tree};
use kiln_parallel::Threads;
use kiln_source::dir::{DirSource, FileId};
use kiln_source::filter::{self, Filter, HintRules, PathOrder, Policy};
use kiln_source::{Scan, ScanOptions, Source};
use std::path::Path;

/// A directory to pack.
pub struct Job<'a> {
    /// The directory.
    pub src: &'a Path,
    /// The image's name, for messages.
    pub image: &'a Path,
    /// What of the directory goes in.
    pub filter: &'a Filter,
    /// As what.
    pub policy: &'a Policy,
    /// What is being written: no part of the tree.
    pub outputs: &'a [FileId],
}

/// Choices about files by their paths: they need the tree.
#[derive(Default)]
pub struct ByPath {
    /// How they are compressed.
    pub hints: HintRules,
    /// Whose data comes first.
    pub order: PathOrder,
}

/// What of these choices is about nothing in the tree.
pub struct Idle {
    /// Paths of the order at which nothing is.
    pub paths: Vec<Vec<u8>>,
    /// Patterns of hints that match no path.
    pub hints: Vec<Vec<u8>>,
}

impl ByPath {
    /// Make them choices about the files of `tree`.
    pub fn settle(&self, tree: &Tree, options: &mut BuildOptions) -> Idle {
        let (order, paths) = self.order.of(tree);
        (options.hints, options.order) = (self.hints.of(tree), order);
        Idle { paths, hints: self.hints.unmatched(tree).into_iter().map(Into::into).collect() }
    }
}

impl Job<'_> {
    /// The tree that goes in.
    pub fn scan(&self, options: &BuildOptions, signals: &Signals) -> Result<Scan, Failure> {
        let BuildOptions { threads, keep_going, .. } = *options;
        let threads = threads.count();
        let Self { filter, outputs, .. } = *self;
        let threads = Threads::at_least_one(threads);
        let options = ScanOptions { threads, keep_going, filter, outputs, stop: signals.stop() };
        let scan = DirSource::new(self.src).scan(&options);
        let scan = scan.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
        Ok(Scan { tree: filter::apply(scan.tree, self.policy).map_err(Failure::Policy)?, ..scan })
    }

    /// Build it into `out`.
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        out: Out<'_>,
        options: &BuildOptions,
        signals: &Signals,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Summary, Reasons<'t>), Failure> {
        let control = Control { stop: signals.stop(), progress };
        let built = kiln_builder::build_explained(tree, out, options, &control);
        built.map_err(|source| self.failure(source, signals))
    }

    /// Estimate what it would become, with an extra device for chunks if `has_blob`.
    pub fn estimate(
        &self,
        tree: &Tree,
        has_blob: bool,
        options: &BuildOptions,
        signals: &Signals,
    ) -> Result<Estimate, Failure> {
        let control = Control { stop: signals.stop(), progress: &|_| {} };
        let estimate = kiln_builder::estimate(tree, has_blob, options, &control);
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
