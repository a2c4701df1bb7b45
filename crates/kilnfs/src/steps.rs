//! Steps from a source to an image: scan, build, commit.

mod built;
mod scanned;
mod updated;

pub use built::Built;
pub use scanned::{Estimated, Packed, Scanned, Unmatched};
pub use updated::Updated;

use kiln_builder::{BuildOptions, Out, PhaseClock, Preset, store_hot};
use kiln_output::{AtomicFile, Output};
use kiln_source::dir::FileId;
use kiln_source::{Scan, ScanOptions, Source, SourceOptions, leave_out_unfit};
use kiln_tree::policy::{XattrPolicy, apply};
use std::path::Path;

use crate::error::Error;
use crate::packer::Packer;

impl Packer {
    /// Scans `source`: the first step. It returns the tree that goes into the image, and the options with all choices
    /// by path.
    ///
    /// ```
    /// use kilnfs::Packer;
    /// use kilnfs::source::{self, SourceOptions};
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # std::fs::write(tmp.path().join("hello"), "world").unwrap();
    /// let packer = Packer::new();
    /// let scanned = packer.scan(&*source::open(tmp.path(), &SourceOptions::default())?)?;
    /// assert!(scanned.scan.tree.find([&b"hello"[..]]).is_some());
    /// assert!(scanned.scan.skipped.is_empty() && scanned.unmatched.paths.is_empty());
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Options that cannot be had, a source that cannot be read, a tree that cannot be what the policy wants.
    pub fn scan(&self, source: &dyn Source) -> Result<Scanned<'_>, Error> {
        let mut options = self.build_options()?;
        let clock = PhaseClock::start();
        let scan = self.scan_only(source, &options)?;
        let unmatched = scanned::resolve(self, &scan.tree, &mut options);
        let hot_files = store_hot(&scan.tree, self.hot_as, &|_| None, &mut options)?;
        clock.finish("scan");
        Ok(Scanned { scan, options, unmatched, hot_files, phases: clock.phases(), packer: self })
    }

    /// Packs the directory, archive or image `source` into the file `image`, which appears when it is complete, or not
    /// at all.
    ///
    /// # Errors
    /// Options that cannot be had, a source that cannot be read, a file that exists, an output that cannot be written.
    pub fn pack(&self, source: impl AsRef<Path>, image: impl AsRef<Path>) -> Result<Packed, Error> {
        // Refuse impossible outputs before the source is opened.
        let file = AtomicFile::create(image.as_ref(), self.existing)?;
        let source = kiln_source::open(source.as_ref(), &SourceOptions::default())?;
        self.pack_file(&*source, file)
    }

    /// Packs any source, as [`Packer::pack`] does: several as one ([`open_sources`](crate::open_sources)), bytes in
    /// memory ([`kiln_source::open_bytes`]), a tree that a program makes
    /// ([`DraftSource`](kiln_source::merge::DraftSource)).
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_source(&self, source: &dyn Source, image: impl AsRef<Path>) -> Result<Packed, Error> {
        self.pack_file(source, AtomicFile::create(image.as_ref(), self.existing)?)
    }

    /// Packs the directory, archive or image `source` into `output`, which is empty. After an error its contents are
    /// undefined.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_to(&self, source: impl AsRef<Path>, output: &dyn Output) -> Result<Packed, Error> {
        let packer = self.clone().scratch_dir(std::env::temp_dir());
        let source = kiln_source::open(source.as_ref(), &SourceOptions::default())?;
        let scanned = packer.scan(&*source)?;
        let out = Out { image: output, offset: 0, blob: None, behind: None };
        let summary = scanned.build(out, &|progress| packer.report(progress))?.summary;
        Ok(scanned.into_packed(summary))
    }

    /// Estimates images of `source`, one for each of `presets`, with the other choices as they are. An element is an
    /// error if the choices cannot be had with that preset.
    ///
    /// # Errors
    /// A source that cannot be read; as [`kiln_builder::estimate()`].
    pub fn estimate(&self, source: &dyn Source, presets: &[Preset]) -> Result<Vec<Estimated>, Error> {
        let all: Vec<_> = presets.iter().map(|&preset| self.clone().preset(preset).build_options()).collect();
        // Presets do not change the scan.
        let Some(options) = all.iter().find_map(|options| options.as_ref().ok().cloned()) else {
            return Ok(all.into_iter().filter_map(Result::err).map(Err).collect());
        };
        let clock = PhaseClock::start();
        let mut whole = self.clone();
        whole.base = None;
        let scan = whole.scan_only(source, &options)?;
        clock.finish("scan");
        let (unmatched, hot_files) = Default::default();
        Scanned { scan, options, unmatched, hot_files, phases: clock.phases(), packer: self }.estimate(presets)
    }

    /// Leaves `file`, and the file that it replaces, out of the tree, and puts temporary files beside it.
    pub fn output(self, file: &AtomicFile) -> Self {
        let replaced = file.replaced().and_then(|old| FileId::of(old).ok());
        let outputs = FileId::of(file.file()).ok().into_iter().chain(replaced);
        self.outputs(outputs).scratch_dir(file.dir_path())
    }

    fn pack_file(&self, source: &dyn Source, file: AtomicFile) -> Result<Packed, Error> {
        let packer = self.clone().output(&file);
        let scanned = packer.scan(source)?;
        let mut built = scanned.build(Out::from(&file), &|progress| packer.report(progress))?;
        match self.dry_run {
            true => built.check_stop()?,
            false => built.commit(file)?,
        }
        let summary = built.summary;
        Ok(scanned.into_packed(summary))
    }

    /// Returns the tree that goes in, without choices by path.
    fn scan_only(&self, source: &dyn Source, options: &BuildOptions) -> Result<Scan, Error> {
        let is_backup = self.is_backup();
        let scan_options = ScanOptions {
            threads: options.work.threads,
            keep_going: options.work.keep_going,
            filter: &self.filter,
            outputs: &self.outputs,
            sync: is_backup,
            stop: &self.stop,
        };
        // Times are compared as the source has them.
        let scan = match &self.base {
            Some(base) => kiln_revise::increment(source, base, &scan_options)?,
            None => source.scan(&scan_options)?,
        };
        let mut tree = apply(scan.tree, &self.policy)?;
        let xattrs = &self.policy.xattrs;
        let xattrs = XattrPolicy { strict: xattrs.strict || is_backup, ..xattrs.clone() };
        let left_out_xattrs = leave_out_unfit(&mut tree, &xattrs, scan.left_out_xattrs)?;
        Ok(Scan { tree, left_out_xattrs, ..scan })
    }

    fn report(&self, progress: kiln_builder::Progress) {
        self.progress.iter().for_each(|tell| tell(progress));
    }
}
