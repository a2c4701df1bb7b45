//! From a source to an image, step by step, for callers that do something between the steps.

use kiln_builder::{BuildOptions, Control, Estimate, Out, Reasons, Spec, Summary, WorkOptions};
use kiln_revise::IncrementBase;
use kiln_source::dir::FileId;
use kiln_source::{Scan, ScanOptions, Source, leave_out_unfit};
use kiln_tree::Tree;
use kiln_tree::filter::Filter;
use kiln_tree::policy::{Policy, XattrPolicy, apply};
use kiln_tree::storage::{DataOrder, HintRules};
use std::sync::atomic::AtomicBool;

use crate::error::Error;

/// What is packed: a source, what of it, and as what.
#[derive(Clone, Copy)]
pub struct PackRequest<'a> {
    /// What is packed.
    pub source: &'a dyn Source,
    /// An older image of the source, whose stored data is reused for what has not changed, see
    /// [`increment`](kiln_revise::increment()).
    pub base: Option<&'a IncrementBase>,
    /// What of it is left out.
    pub filter: &'a Filter,
    /// What becomes of owners, times, attributes and the like.
    pub policy: &'a Policy,
    /// Files that are being written: no part of the tree.
    pub outputs: &'a [FileId],
    /// Nothing may be missed or left out in silence, see [`Preset::Backup`](kiln_builder::Preset::Backup): the system writes first what it has
    /// in memory of the filesystem of a directory ([`ScanOptions::sync`]), and attributes that EROFS cannot hold are an error.
    pub is_backup: bool,
    /// Ends each step early once set.
    pub stop: &'a AtomicBool,
}

/// Choices about files by their paths: they need the tree.
#[derive(Clone, Default)]
pub struct ByPath {
    /// How files are compressed.
    pub hints: HintRules<Option<Spec>>,
    /// In which order data is stored.
    pub order: DataOrder,
}

/// Choices by path that are about nothing in the tree: most likely they are mistakes.
#[derive(Clone, Debug, Default)]
pub struct Unmatched {
    /// Paths of the order at which nothing is.
    pub paths: Vec<Vec<u8>>,
    /// Patterns of hints that match no path.
    pub hints: Vec<Vec<u8>>,
}

impl ByPath {
    /// Make them choices about the files of `tree`.
    pub fn resolve(&self, tree: &Tree, options: &mut BuildOptions) -> Unmatched {
        let (order, paths) = self.order.of(tree);
        options.compression.hints = self.hints.of(tree).into_iter().collect();
        (options.layout.order, options.layout.hot) = (order, self.order.hot_zone(tree));
        Unmatched { paths, hints: self.hints.unmatched(tree).into_iter().map(Into::into).collect() }
    }
}

impl PackRequest<'_> {
    /// The tree that goes in.
    ///
    /// # Errors
    /// A source that cannot be read, a tree that cannot be what the policy wants.
    pub fn scan(&self, options: &BuildOptions) -> Result<Scan, Error> {
        let WorkOptions { threads, keep_going, .. } = options.work;
        let Self { filter, outputs, is_backup, stop, .. } = *self;
        let scan_options = ScanOptions { threads, keep_going, filter, outputs, sync: is_backup, stop };
        // Times are compared as the source has them.
        let scan = match self.base {
            Some(base) => kiln_revise::increment(self.source, base, &scan_options)?,
            None => self.source.scan(&scan_options)?,
        };
        let mut tree = apply(scan.tree, self.policy)?;
        let xattrs = &self.policy.xattrs;
        let xattrs = XattrPolicy { strict: xattrs.strict || is_backup, ..xattrs.clone() };
        let left_out_xattrs = leave_out_unfit(&mut tree, &xattrs, scan.left_out_xattrs)?;
        Ok(Scan { tree, left_out_xattrs, ..scan })
    }

    /// Build the tree into `out`, and keep why each file is stored as it is.
    ///
    /// # Errors
    /// As [`kiln_builder::build`].
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        out: Out<'_>,
        options: &BuildOptions,
        progress: &(dyn Fn(kiln_builder::Progress) + Sync),
    ) -> Result<(Summary, Reasons<'t>), Error> {
        Ok(kiln_builder::build_explained(tree, out, options, &Control { stop: self.stop, progress })?)
    }

    /// Estimate the image of the tree, with an extra device for chunks if `has_blob`.
    ///
    /// # Errors
    /// As [`kiln_builder::estimate()`].
    pub fn estimate(&self, tree: &Tree, has_blob: bool, options: &BuildOptions) -> Result<Estimate, Error> {
        let control = Control { stop: self.stop, progress: &|_| {} };
        Ok(kiln_builder::estimate(tree, has_blob, options, &control)?)
    }
}
