//! Steps from a source to an image: scan, build, commit.

mod built;
mod scanned;
mod updated;

pub use built::Built;
pub use scanned::{Estimated, Packed, Scanned, Unmatched};
pub use updated::Updated;

use kiln_builder::{BuildOptions, Control, Out, PhaseClock, Preset, Progress, store_hot, store_stream};
use kiln_output::{AtomicFile, Output};
use kiln_source::dir::FileId;
use kiln_source::{Scan, ScanOptions, Source, SourceOptions, leave_out_unfit};
use kiln_tree::Intake;
use kiln_tree::policy::{Policy, XattrPolicy, apply};
use kiln_tree::storage::DataOrder;
use std::cell::Cell;
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
        let scan = self.scan_only(source, &options, None)?;
        let unmatched = scanned::resolve(self, &scan.tree, &mut options);
        let hot_files = store_hot(&scan.tree, self.hot_as, &|_| None, &mut options)?;
        clock.finish("scan");
        let stored = Cell::default();
        Ok(Scanned { scan, options, unmatched, hot_files, stored, phases: clock.phases(), packer: self })
    }

    /// Scans `source` as [`Packer::scan`] does. If it is a [stream](Source::is_stream), and nothing needs what comes
    /// later ([`Packer::spools_because`]), its contents are stored in `out` as they come, and
    /// [`Scanned::build`](crate::Scanned::build) adds the rest. Otherwise they are kept in a temporary file.
    ///
    /// ```
    /// use kilnfs::Packer;
    /// use kilnfs::builder::Out;
    /// use kilnfs::output::MemoryOutput;
    /// use kilnfs::source::{self, SourceOptions};
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # let tar = tmp.path().join("tree.tar.zst");
    /// # let dir = tmp.path().join("tree");
    /// # std::fs::create_dir(&dir).unwrap();
    /// # std::fs::write(dir.join("hello"), "world").unwrap();
    /// # let packed = std::process::Command::new("tar").args(["--zstd", "-cf"]).args([&tar, &dir]).status();
    /// # if !packed.is_ok_and(|done| done.success()) { return Ok(()) }
    /// let (packer, memory) = (Packer::new(), MemoryOutput::default());
    /// let out = Out { image: &memory, offset: 0, blob: None, behind: None };
    /// let source = source::open(&tar, &SourceOptions::default())?;
    /// assert!(source.is_stream() && packer.spools_because(&*source).is_none());
    /// let scanned = packer.scan_into(&*source, out, &|progress| println!("{} bytes", progress.done_bytes))?;
    /// assert_eq!(scanned.build(out, &|_| {})?.summary.files, 1);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Packer::scan`], and as [`kiln_builder::store_stream`].
    pub fn scan_into(
        &self,
        source: &dyn Source,
        out: Out<'_>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Scanned<'_>, Error> {
        if self.spools_because(source).is_some() {
            return self.scan(source);
        }
        let options = self.build_options()?;
        let control = Control { stop: &self.stop, progress };
        let scan = |intake: &mut dyn Intake| self.scan_only(source, &options, Some(intake));
        let (scan, stored) = store_stream(out, &options, &control, scan)??;
        let (unmatched, hot_files) = Default::default();
        let stored = Cell::new(Some(stored));
        Ok(Scanned { scan, options, unmatched, hot_files, stored, phases: Vec::new(), packer: self })
    }

    /// Returns the reason why the contents of a stream go to a temporary file before they are stored, if they do.
    pub fn spools_because(&self, source: &dyn Source) -> Option<&'static str> {
        let Policy { xattrs, fs_config, edits, labels, .. } = &self.policy;
        let reasons = [
            (!source.is_stream(), "this kind of source is read in another order than it comes"),
            (self.base.is_some(), "a base is compared with the whole tree"),
            (!matches!(self.order, DataOrder::Path), "an order needs all files"),
            (!self.hints.is_empty(), "hints need the names of all files"),
            (!self.filter.is_everything(), "a file that a filter excludes may get another name later"),
            (!edits.is_empty(), "edits need the whole tree"),
            (
                fs_config.is_some() || labels.is_some() || !xattrs.set.is_empty(),
                "attributes need the names of all files",
            ),
        ];
        reasons.into_iter().find(|(is, _)| *is).map(|(_, reason)| reason)
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
        self.pack_file(&*source, image.as_ref(), file)
    }

    /// Packs any source, as [`Packer::pack`] does: several as one ([`open_sources`](crate::open_sources)), bytes in
    /// memory ([`kiln_source::open_bytes`]), a tree that a program makes
    /// ([`DraftSource`](kiln_source::merge::DraftSource)).
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_source(&self, source: &dyn Source, image: impl AsRef<Path>) -> Result<Packed, Error> {
        let image = image.as_ref();
        self.pack_file(source, image, AtomicFile::create(image, self.existing)?)
    }

    /// Packs the directory, archive or image `source` into `output`, which is empty. After an error its contents are
    /// undefined.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_to(&self, source: impl AsRef<Path>, output: &dyn Output) -> Result<Packed, Error> {
        let packer = self.clone().scratch_dir(std::env::temp_dir());
        let source = kiln_source::open(source.as_ref(), &SourceOptions::default())?;
        let out = Out { image: output, offset: 0, blob: None, behind: None };
        let report = |progress| packer.report(progress);
        let scanned = packer.scan_into(&*source, out, &report)?;
        let summary = scanned.build(out, &report)?.summary;
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
        let scan = whole.scan_only(source, &options, None)?;
        clock.finish("scan");
        let (unmatched, hot_files, stored) = Default::default();
        Scanned { scan, options, unmatched, hot_files, stored, phases: clock.phases(), packer: self }.estimate(presets)
    }

    /// Leaves `file`, and the file that it replaces, out of the tree, and puts temporary files beside it.
    pub fn output(self, file: &AtomicFile) -> Self {
        let replaced = file.replaced().and_then(|old| FileId::of(old).ok());
        let outputs = FileId::of(file.file()).ok().into_iter().chain(replaced);
        self.outputs(outputs).scratch_dir(file.dir_path())
    }

    fn pack_file(&self, source: &dyn Source, image: &Path, file: AtomicFile) -> Result<Packed, Error> {
        let packer = self.clone().output(&file);
        let (out, report) = (Out::from(&file), |progress| packer.report(progress));
        let scanned = packer.scan_into(source, out, &report)?;
        let mut built = scanned.build(out, &report)?;
        match self.dry_run {
            true => built.check_stop()?,
            false => {
                // What tells of the hash tree of an older image does not stand by this one.
                kiln_verity::beside::set_aside(image, &[])?;
                built.commit(file)?;
            }
        }
        let summary = built.summary;
        Ok(scanned.into_packed(summary))
    }

    /// Returns the tree that goes in, without choices by path. Contents go to `intake`, if there is one.
    fn scan_only(
        &self,
        source: &dyn Source,
        options: &BuildOptions,
        intake: Option<&mut dyn Intake>,
    ) -> Result<Scan, Error> {
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
        let scan = match (&self.base, intake) {
            (Some(base), _) => kiln_revise::increment(source, base, &scan_options)?,
            (None, Some(intake)) => source.scan_into(&scan_options, intake)?,
            (None, None) => source.scan(&scan_options)?,
        };
        let mut tree = apply(scan.tree, &self.policy)?;
        let xattrs = &self.policy.xattrs;
        let xattrs = XattrPolicy { strict: xattrs.strict || is_backup, ..xattrs.clone() };
        let left_out_xattrs = leave_out_unfit(&mut tree, &xattrs, scan.left_out_xattrs)?;
        Ok(Scan { tree, left_out_xattrs, ..scan })
    }

    fn report(&self, progress: Progress) {
        self.progress.iter().for_each(|tell| tell(progress));
    }
}
