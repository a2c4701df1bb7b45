//! Trees that were scanned, with all that is needed to build or estimate an image of them.

use kiln_builder::{
    BuildOptions, Control, Estimate, HotFiles, Interval, OptionError, Out, Phase, Preset, Progress, StoredStream,
    Summary,
};
use kiln_source::{LeftOutXattrs, Note, Scan, Unreadable};
use kiln_tree::Tree;
use std::cell::Cell;
use std::sync::Arc;

use super::built::Built;
use crate::error::Error;
use crate::packer::Packer;

/// A tree that goes into an image: the result of [`Packer::scan`].
pub struct Scanned<'p> {
    /// The tree, entries that were skipped, notes, left-out attributes, outputs in the source and stamps.
    pub scan: Scan,
    /// Options of the build, with choices by path resolved to nodes of the tree.
    pub options: BuildOptions,
    /// Choices by path that match nothing in the tree.
    pub unmatched: Unmatched,
    /// Files that are stored otherwise than the rest, see [`Packer::hot_as`].
    pub hot_files: HotFiles,
    /// Contents that were stored during the scan, if the source is a stream.
    pub(super) stored: Cell<Option<StoredStream>>,
    /// Phases so far: the scan.
    pub(super) phases: Vec<Phase>,
    pub(super) packer: &'p Packer,
}

/// Choices by path that match nothing in the tree: most likely they are mistakes.
#[derive(Clone, Debug, Default)]
pub struct Unmatched {
    /// Paths of the order that do not exist.
    pub paths: Vec<Vec<u8>>,
    /// Patterns of hints that match no path.
    pub hints: Vec<Vec<u8>>,
}

/// An image that was packed by [`Packer::pack`](crate::Packer::pack) or its kin.
#[derive(Debug)]
pub struct Packed {
    /// Contents and sizes of the image, and the time that each phase took.
    pub summary: Summary,
    /// Entries of the source that could not be read and were left out, see
    /// [`Packer::keep_going`](crate::Packer::keep_going).
    pub skipped: Vec<Unreadable>,
    /// Notes on the source: that an archive goes on behind its end mark, for example.
    pub notes: Vec<Note>,
    /// Extended attributes, and entries of ACLs, that EROFS cannot hold: they were left out.
    pub left_out_xattrs: LeftOutXattrs,
    /// Hints and paths of the order that match nothing in the source.
    pub unmatched: Unmatched,
    /// Files that are stored otherwise than the rest, see [`Packer::hot_as`](crate::Packer::hot_as).
    pub hot_files: HotFiles,
}

/// An estimate of an image, or the reason why options cannot be had together.
pub type Estimated = Result<Estimate, OptionError>;

/// Makes the packer's choices by path options about the files of `tree`.
pub(super) fn resolve(packer: &Packer, tree: &Tree, options: &mut BuildOptions) -> Unmatched {
    let Packer { hints, order, .. } = packer;
    let (nodes, paths) = order.of(tree);
    options.compression.hints = hints.of(tree).into_iter().collect();
    (options.layout.order, options.layout.hot) = (nodes, order.hot_zone(tree));
    Unmatched { paths, hints: hints.unmatched(tree).into_iter().map(Into::into).collect() }
}

impl Scanned<'_> {
    /// Builds the image into `out`, which is empty, or has what [`Packer::scan_into`] stored: the second step. After an
    /// error its contents are undefined.
    ///
    /// ```
    /// use kilnfs::Packer;
    /// use kilnfs::builder::Out;
    /// use kilnfs::output::MemoryOutput;
    /// use kilnfs::source::{self, SourceOptions};
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # std::fs::write(tmp.path().join("hello"), "world").unwrap();
    /// let (packer, memory) = (Packer::new(), MemoryOutput::default());
    /// let scanned = packer.scan(&*source::open(tmp.path(), &SourceOptions::default())?)?;
    /// let out = Out { image: &memory, offset: 0, blob: None, behind: None };
    /// let built = scanned.build(out, &|progress| println!("{} bytes", progress.done_bytes))?;
    /// assert_eq!(built.summary.image_bytes, memory.into_bytes().len() as u64);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`kiln_builder::build`].
    pub fn build(&self, out: Out<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Built<'_>, Error> {
        let stop = Arc::clone(&self.packer.stop);
        let control = Control { stop: &stop, progress };
        let (tree, options) = (&self.scan.tree, &self.options);
        let (mut summary, reasons) = match self.stored.take() {
            Some(stored) => kiln_builder::build_stored(tree, stored, out, options, &control)?,
            None => kiln_builder::build_explained(tree, out, options, &control)?,
        };
        summary.phases.splice(0..0, self.phases.iter().copied());
        Ok(Built { summary, reasons, stop })
    }

    /// Estimates the image for each of `presets`, with the other choices of the packer as they are.
    ///
    /// ```
    /// use kilnfs::source::{self, SourceOptions};
    /// use kilnfs::{Packer, Preset};
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # std::fs::write(tmp.path().join("hello"), "world".repeat(10_000)).unwrap();
    /// let packer = Packer::new();
    /// let scanned = packer.scan(&*source::open(tmp.path(), &SourceOptions::default())?)?;
    /// let bytes: Vec<f64> = (scanned.estimate(&[Preset::Plain, Preset::Balanced])?.into_iter().flatten())
    ///     .map(|estimate| estimate.image_bytes.value)
    ///     .collect();
    /// assert!(bytes[1] < bytes[0]);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`kiln_builder::estimate()`].
    pub fn estimate(&self, presets: &[Preset]) -> Result<Vec<Estimated>, Error> {
        presets.iter().map(|&preset| self.estimate_as(&self.packer.clone().preset(preset))).collect()
    }

    /// Estimates the image that `packer` would build of this tree. Its filter, policy and base do not count.
    ///
    /// # Errors
    /// As [`kiln_builder::estimate()`].
    pub fn estimate_as(&self, packer: &Packer) -> Result<Estimated, Error> {
        let mut options = match packer.build_options() {
            Ok(options) => options,
            Err(refused) => return Ok(Err(refused)),
        };
        let tree = &self.scan.tree;
        resolve(packer, tree, &mut options);
        let control = Control { stop: &self.packer.stop, progress: &|_| {} };
        let mut estimate = kiln_builder::estimate(tree, packer.has_extra_device, &options, &control)?;
        for phase in &self.phases {
            estimate.cpu_secs = estimate.cpu_secs + Interval::exact(phase.cpu.as_secs_f64());
            estimate.wall_secs = estimate.wall_secs + Interval::exact(phase.wall.as_secs_f64());
        }
        Ok(Ok(estimate))
    }

    /// Returns what remains of interest once the image is there.
    pub(super) fn into_packed(self, summary: Summary) -> Packed {
        let Self { scan: Scan { skipped, notes, left_out_xattrs, .. }, unmatched, hot_files, .. } = self;
        Packed { summary, skipped, notes, left_out_xattrs, unmatched, hot_files }
    }
}
