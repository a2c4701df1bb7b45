//! Packing with choices.

use kiln_builder::{
    BuildError, BuildOptions, Choices, ContentDigests, Estimate, IdentityOptions, Interval, LayoutOptions,
    MetadataOptions, OptionError, Out, PhaseClock, Preset, Progress, Spec, Summary, WorkOptions,
};
use kiln_format::KernelVersion;
use kiln_output::{AtomicFile, Existing, Output};
use kiln_parallel::Threads;
use kiln_revise::IncrementBase;
use kiln_source::dir::FileId;
use kiln_source::{LeftOutXattrs, Note, Scan, Source, SourceOptions, Unreadable};
use kiln_tree::DigestName;
use kiln_tree::filter::Filter;
use kiln_tree::policy::Policy;
use kiln_tree::storage::{DataOrder, HintRules};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::request::{ByPath, PackRequest, Unmatched};

/// Packs directories and images into images. Each choice has a default, which is what [`pack`](crate::pack) takes.
///
/// ```
/// use kiln::{Packer, Preset, Threads};
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (src, out) = (tmp.path().join("src"), tmp.path().join("out.erofs"));
/// # std::fs::create_dir(&src).unwrap();
/// # std::fs::write(src.join("hello"), "world").unwrap();
/// let packed = Packer::new()
///     .preset(Preset::Archive)
///     .kernel("6.6".parse().unwrap())
///     .threads(Threads::ONE)
///     .replace()
///     .pack(&src, &out)?;
/// assert_eq!(packed.summary.files, 1);
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Packer {
    choices: Choices,
    threads: Threads,
    keep_going: bool,
    source_date_epoch: Option<i64>,
    existing: Existing,
    dry_run: bool,
    filter: Filter,
    policy: Policy,
    by_path: ByPath,
    base: Option<Arc<IncrementBase>>,
    content_digests: Option<ContentDigests>,
    no_inline_tails: bool,
    stop: Arc<AtomicBool>,
    progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("choices", &self.choices).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// An image that was packed.
#[derive(Debug)]
pub struct Packed {
    /// What is in the image, and what it takes.
    pub summary: Summary,
    /// Entries of the source that could not be read and were left out, see [`Packer::keep_going`].
    pub skipped: Vec<Unreadable>,
    /// Notes on the source: that an archive goes on behind its end mark, for example.
    pub notes: Vec<Note>,
    /// Extended attributes, and entries of ACLs, that EROFS cannot hold: they were left out.
    pub left_out_xattrs: LeftOutXattrs,
    /// Hints and paths of the order that are about nothing in the source.
    pub unmatched: Unmatched,
}

/// What an image will be, or why options cannot be had together.
pub type Estimated = Result<Estimate, OptionError>;

impl Packer {
    /// The preset [`Preset::Balanced`] for any kernel, on all processors, to a file that does not exist.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the preset, with which the choice of options starts. With [`Preset::Backup`], what programs have written to
    /// a directory is on disk before it is looked at, and attributes that EROFS cannot hold are an error.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.choices.preset = preset;
        self
    }

    /// Use only what this kernel can mount.
    pub fn kernel(mut self, kernel: KernelVersion) -> Self {
        self.choices.kernel = Some(kernel);
        self
    }

    /// A preset, a kernel, and options that override the preset.
    pub fn choices(mut self, choices: Choices) -> Self {
        self.choices = choices;
        self
    }

    /// How many threads work. The image does not depend on it.
    pub fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// What of the source is left out.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// What becomes of owners, times, attributes and the like.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Reuse stored data of an older image for what has not changed since, see [`increment`](kiln_revise::increment()).
    pub fn base(mut self, base: IncrementBase) -> Self {
        self.base = Some(Arc::new(base));
        self
    }

    /// How some files are compressed.
    pub fn hints(mut self, hints: HintRules<Option<Spec>>) -> Self {
        self.by_path.hints = hints;
        self
    }

    /// Store the SHA-256 of each file's contents, so that readers can verify them. Files are read once more.
    pub fn content_digests(mut self) -> Self {
        self.content_digests = Some(ContentDigests::Named(DigestName::Usual));
        self
    }

    /// Store the ends of uncompressed files as blocks, not beside their inodes: see [`LayoutOptions::inline_tails`].
    pub fn without_inline_tails(mut self) -> Self {
        self.no_inline_tails = true;
        self
    }

    /// In which order data is stored: by path, that of a list, or at random. Names and contents do not depend on it.
    ///
    /// ```
    /// use kiln::Packer;
    /// use kiln::tree::storage::DataOrder;
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # let (src, out) = (tmp.path().join("src"), tmp.path().join("out.erofs"));
    /// # std::fs::create_dir(&src).unwrap();
    /// # for name in ["a", "b", "c", "d", "e"] {
    /// #     std::fs::write(src.join(name), [name, &"x".repeat(5000)].concat()).unwrap();
    /// # }
    /// Packer::new().order(DataOrder::Shuffled { seed: 7 }).pack(&src, &out)?;
    ///
    /// // Names are sorted, data is not.
    /// let image = kiln::open(&out)?;
    /// let mut positions = Vec::new();
    /// for entry in image.open_dir("/")? {
    ///     positions.push(image.position(&image.inode(entry?.nid)?)?);
    /// }
    /// assert!(!positions.is_sorted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn order(mut self, order: impl Into<DataOrder>) -> Self {
        self.by_path.order = order.into();
        self
    }

    /// The latest time in the image, in seconds since 1970. This library does not read the environment.
    pub fn source_date_epoch(mut self, secs: i64) -> Self {
        self.source_date_epoch = Some(secs);
        self
    }

    /// Leave out what cannot be read, and list it, instead of failing.
    pub fn keep_going(mut self) -> Self {
        self.keep_going = true;
        self
    }

    /// Replace the file that has the image's name, in one step, if it is a regular file.
    pub fn replace(mut self) -> Self {
        self.existing = Existing::Replace;
        self
    }

    /// Do everything but keep the image, which needs its room until the end.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// End the work with an error once this is set: nothing is there under the image's name then.
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Called as data is written.
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Pack the directory or image `source` into the file `image`, which appears when it is complete, or not at all.
    ///
    /// # Errors
    /// Options that cannot be had, a source that cannot be read, a file that exists, an output that cannot be written.
    pub fn pack(&self, source: impl AsRef<Path>, image: impl AsRef<Path>) -> Result<Packed, Error> {
        // What cannot be had shows before the source is looked at.
        let file = AtomicFile::create(image.as_ref(), self.existing)?;
        let source = kiln_source::open(source.as_ref(), &SourceOptions::default())?;
        self.pack_file(&*source, file)
    }

    /// As [`Packer::pack`], of any source: several as one ([`open_sources`](crate::open_sources)), what is in memory
    /// ([`kiln_source::open_bytes`]), a tree that a program makes ([`DraftSource`](kiln_source::merge::DraftSource)).
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_source(&self, source: &dyn Source, image: impl AsRef<Path>) -> Result<Packed, Error> {
        self.pack_file(source, AtomicFile::create(image.as_ref(), self.existing)?)
    }

    /// What images of `source` will be, one for each of `presets`, with the other choices as they are; or why they cannot be had together.
    ///
    /// # Errors
    /// A source that cannot be read; as [`kiln_builder::estimate()`].
    pub fn estimate(&self, source: &dyn Source, presets: &[Preset]) -> Result<Vec<Estimated>, Error> {
        let of_preset = |&preset| self.options_of(preset);
        let all: Vec<_> = presets.iter().map(of_preset).collect();
        // The scan asks for nothing that presets decide.
        let Some(first) = all.iter().find_map(|options| options.as_ref().ok().cloned()) else {
            return Ok(all.into_iter().filter_map(Result::err).map(Err).collect());
        };
        let request = PackRequest { base: None, ..self.request(source, &[]) };
        let clock = PhaseClock::start();
        let scan = request.scan(&first)?;
        clock.finish("scan");
        let scanned = clock.phases()[0];
        let mut estimates = Vec::new();
        for options in all {
            estimates.push(match options {
                Err(refused) => Err(refused),
                Ok(mut options) => {
                    self.by_path.resolve(&scan.tree, &mut options);
                    let mut estimate = request.estimate(&scan.tree, false, &options)?;
                    estimate.cpu_secs = estimate.cpu_secs + Interval::exact(scanned.cpu.as_secs_f64());
                    estimate.wall_secs = estimate.wall_secs + Interval::exact(scanned.wall.as_secs_f64());
                    Ok(estimate)
                }
            });
        }
        Ok(estimates)
    }

    /// The options of a build that all choices make together, without those by path.
    ///
    /// # Errors
    /// Choices that cannot be had together.
    pub fn build_options(&self) -> Result<BuildOptions, OptionError> {
        self.options_of(self.choices.preset)
    }

    /// Pack the directory or image `source` into `output`, which is empty. On an error it holds rubbish.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_to(&self, source: impl AsRef<Path>, output: &dyn Output) -> Result<Packed, Error> {
        let options = self.build_options()?.with(|options| options.work.scratch_dir = std::env::temp_dir());
        let source = kiln_source::open(source.as_ref(), &SourceOptions::default())?;
        self.pack_into(&*source, Out { image: output, offset: 0, blob: None, behind: None }, &[], options)
    }

    fn options_of(&self, preset: Preset) -> Result<BuildOptions, OptionError> {
        let Self { threads, keep_going, source_date_epoch, .. } = *self;
        let choices = Choices { preset, ..self.choices.clone() };
        let options = choices.build_options()?;
        let content_digests = self.content_digests.clone().unwrap_or(options.metadata.content_digests);
        let inline_tails = options.layout.inline_tails && !self.no_inline_tails;
        Ok(BuildOptions {
            work: WorkOptions { threads, keep_going, ..options.work },
            identity: IdentityOptions { source_date_epoch, ..options.identity },
            layout: LayoutOptions { inline_tails, ..options.layout },
            metadata: MetadataOptions { content_digests, ..options.metadata },
            ..options
        })
    }

    fn request<'a>(&'a self, source: &'a dyn Source, outputs: &'a [FileId]) -> PackRequest<'a> {
        let Self { filter, policy, stop, .. } = self;
        let is_backup = self.choices.preset == Preset::Backup;
        PackRequest { source, base: self.base.as_deref(), filter, policy, outputs, is_backup, stop }
    }

    fn pack_file(&self, source: &dyn Source, file: AtomicFile) -> Result<Packed, Error> {
        let replaced = file.replaced().and_then(|old| FileId::of(old).ok());
        let outputs: Vec<FileId> = FileId::of(file.file()).ok().into_iter().chain(replaced).collect();
        let options = self.build_options()?.with(|options| options.work.scratch_dir = file.dir_path().to_owned());
        let mut packed = self.pack_into(source, Out::from(&file), &outputs, options)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(BuildError::Interrupted.into());
        }
        if !self.dry_run {
            let clock = PhaseClock::start();
            file.commit()?;
            clock.finish("sync");
            packed.summary.phases.extend(clock.phases());
        }
        Ok(packed)
    }

    fn pack_into(
        &self,
        source: &dyn Source,
        out: Out<'_>,
        outputs: &[FileId],
        mut options: BuildOptions,
    ) -> Result<Packed, Error> {
        let request = self.request(source, outputs);
        let clock = PhaseClock::start();
        let scan = request.scan(&options)?;
        let unmatched = self.by_path.resolve(&scan.tree, &mut options);
        clock.finish("scan");
        let progress = |progress| self.progress.iter().for_each(|tell| tell(progress));
        let (mut summary, _) = request.build(&scan.tree, out, &options, &progress)?;
        summary.phases.splice(0..0, clock.phases());
        let Scan { skipped, notes, left_out_xattrs, .. } = scan;
        Ok(Packed { summary, skipped, notes, left_out_xattrs, unmatched })
    }
}
