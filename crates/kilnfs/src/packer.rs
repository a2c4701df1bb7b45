//! Choices about packing. The steps that they lead to are in `steps`.

use kiln_builder::{
    BuildOptions, Choices, ContentDigests, ContentHash, HotMethod, OptionError, Preset, Progress, Spec,
};
use kiln_format::KernelVersion;
use kiln_output::Existing;
use kiln_parallel::Threads;
use kiln_revise::IncrementBase;
use kiln_source::dir::FileId;
use kiln_tree::DigestName;
use kiln_tree::filter::Filter;
use kiln_tree::policy::Policy;
use kiln_tree::storage::{DataOrder, HintRules};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::label::ImageLabel;

/// Packs directories, archives and images into images.
///
/// Each choice has a default; [`pack`](crate::pack) uses the defaults. [`Packer::pack`] does all of the work:
///
/// ```
/// use kilnfs::{Packer, Preset, Threads};
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
/// # Ok::<(), kilnfs::Error>(())
/// ```
///
/// # Steps
///
/// To do something between the steps, take them one by one: [`Packer::scan`] returns a
/// [`Scanned`](crate::Scanned), [`Scanned::build`](crate::Scanned::build) a [`Built`](crate::Built), and
/// [`Built::commit`](crate::Built::commit) gives the image its name.
///
/// ```
/// use kilnfs::builder::Out;
/// use kilnfs::output::{AtomicFile, Existing};
/// use kilnfs::source::{self, SourceOptions};
/// use kilnfs::Packer;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (src, out) = (tmp.path().join("src"), tmp.path().join("out.erofs"));
/// # std::fs::create_dir(&src).unwrap();
/// # std::fs::write(src.join("hello"), "world").unwrap();
/// let file = AtomicFile::create(&out, Existing::Keep)?;
/// let packer = Packer::new().output(&file);
///
/// let source = source::open(&src, &SourceOptions::default())?;
/// let scanned = packer.scan(&*source)?;
/// assert_eq!(scanned.scan.tree.len(), 2, "the root and a file");
///
/// let mut built = scanned.build(Out::from(&file), &|_| {})?;
/// for explanation in built.reasons.explain() {
///     println!("{}: {:?}", explanation.path.escape_ascii(), explanation.how);
/// }
/// built.commit(file)?;
/// println!("{} bytes in {:?}", built.summary.image_bytes, built.summary.phases);
/// # Ok::<(), kilnfs::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Packer {
    start: Start,
    adjustments: Vec<Arc<Adjustment>>,
    /// See [`Packer::backup`].
    is_strict: bool,
    pub(crate) existing: Existing,
    pub(crate) dry_run: bool,
    pub(crate) filter: Filter,
    pub(crate) policy: Policy,
    pub(crate) hints: HintRules<Option<Spec>>,
    pub(crate) order: DataOrder,
    /// Storage of files that come first, and bytes that it may add.
    pub(crate) hot_as: (HotMethod, u64),
    pub(crate) base: Option<Arc<IncrementBase>>,
    pub(crate) outputs: Vec<FileId>,
    pub(crate) has_extra_device: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

/// A change of options, made after a preset or a caller has chosen them.
type Adjustment = dyn Fn(&mut BuildOptions) + Send + Sync;

/// Options that adjustments start from.
#[derive(Clone)]
enum Start {
    Choices(Choices),
    Options(Box<BuildOptions>),
}

impl Default for Start {
    fn default() -> Self {
        Self::Choices(Choices::default())
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("options", &self.build_options()).finish_non_exhaustive()
    }
}

impl Packer {
    /// Returns a packer with the preset [`Preset::Balanced`] for any kernel, which works on all processors and writes
    /// to a file that does not exist yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the preset. [`Preset::Backup`] includes [`Packer::backup`].
    pub fn preset(self, preset: Preset) -> Self {
        let choices = Choices { preset, ..self.start.choices() };
        self.choices(choices)
    }

    /// Uses only what this kernel can mount.
    pub fn kernel(self, kernel: KernelVersion) -> Self {
        let choices = Choices { kernel: Some(kernel), ..self.start.choices() };
        self.choices(choices)
    }

    /// Sets a preset, a kernel, and options that override the preset. They replace [`Packer::options`].
    pub fn choices(mut self, choices: Choices) -> Self {
        self.start = Start::Choices(choices);
        self
    }

    /// Sets all options of the build at once, instead of a preset, a kernel and choices.
    ///
    /// ```
    /// use kilnfs::Packer;
    /// use kilnfs::builder::Choices;
    ///
    /// let options = Choices::default().build_options()?.with(|options| options.identity.checksum = false);
    /// let packer = Packer::new().options(options);
    /// assert!(!packer.build_options()?.identity.checksum);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    pub fn options(mut self, options: BuildOptions) -> Self {
        self.start = Start::Options(Box::new(options));
        self
    }

    /// Changes options after presets, choices and earlier adjustments: where bytes lie, for example.
    ///
    /// ```
    /// use kilnfs::Packer;
    ///
    /// let packer = Packer::new().adjust(|options| options.layout.data_align = 64 << 10);
    /// assert_eq!(packer.build_options()?.layout.data_align, 64 << 10);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    pub fn adjust(mut self, change: impl Fn(&mut BuildOptions) + Send + Sync + 'static) -> Self {
        self.adjustments.push(Arc::new(change));
        self
    }

    /// Sets the label of the image.
    pub fn label(self, label: ImageLabel) -> Self {
        self.adjust(move |options| options.identity.label = label.padded())
    }

    /// Sets the UUID of the image. Without this call it is derived from the contents.
    pub fn uuid(self, uuid: [u8; 16]) -> Self {
        self.adjust(move |options| options.identity.uuid = Some(uuid))
    }

    /// Sets the number of threads. The image does not depend on it.
    pub fn threads(self, threads: Threads) -> Self {
        self.adjust(move |options| options.work.threads = threads)
    }

    /// Sets the number of threads that read the source, 8 by default: more keep a disk or a network busy that answers
    /// in parallel. The image does not depend on it.
    pub fn readers(self, readers: Threads) -> Self {
        self.adjust(move |options| options.work.readers = readers)
    }

    /// Sets the latest time in the image, in seconds since 1970. This library does not read the environment.
    pub fn source_date_epoch(self, secs: i64) -> Self {
        self.adjust(move |options| options.identity.source_date_epoch = Some(secs))
    }

    /// Stores a digest of each file's contents, so that readers can verify them.
    pub fn content_digests(self, hash: ContentHash) -> Self {
        self.adjust(move |options| {
            options.metadata.content_digests = ContentDigests::Named(DigestName::Usual);
            options.metadata.digest_hash = Some(hash);
        })
    }

    /// Stores the ends of uncompressed files as blocks, not beside their inodes: see
    /// [`LayoutOptions::inline_tails`](kiln_builder::LayoutOptions::inline_tails).
    pub fn without_inline_tails(self) -> Self {
        self.adjust(|options| options.layout.inline_tails = false)
    }

    /// Leaves out what cannot be read, and lists it, instead of failing.
    pub fn keep_going(self) -> Self {
        self.adjust(|options| options.work.keep_going = true)
    }

    /// Sets the directory for nameless temporary files. [`Packer::pack`] uses that of the image.
    pub fn scratch_dir(self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.adjust(move |options| options.work.scratch_dir.clone_from(&dir))
    }

    /// Misses nothing, and leaves nothing out in silence: the system writes what programs have written to a directory
    /// before it is scanned ([`ScanOptions::sync`](kiln_source::ScanOptions::sync)), and attributes that EROFS cannot
    /// hold are an error.
    pub fn backup(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Sets a filter: the entries of the source that are packed.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the policy of owners, times, attributes and the like.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Reuses stored data of an older image for files that have not changed since, see
    /// [`increment`](kiln_revise::increment()).
    pub fn base(mut self, base: impl Into<Arc<IncrementBase>>) -> Self {
        self.base = Some(base.into());
        self
    }

    /// Sets rules by which some files are compressed in another way.
    pub fn hints(mut self, hints: HintRules<Option<Spec>>) -> Self {
        self.hints = hints;
        self
    }

    /// Sets the order in which data is stored: by path, that of a list, or at random. Names and contents do not depend
    /// on it.
    ///
    /// ```
    /// use kilnfs::Packer;
    /// use kilnfs::tree::storage::DataOrder;
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
    /// let image = kilnfs::open(&out)?;
    /// let mut positions = Vec::new();
    /// for entry in image.open_dir("/")? {
    ///     positions.push(image.position(&image.inode(entry?.nid)?)?);
    /// }
    /// assert!(!positions.is_sorted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn order(mut self, order: impl Into<DataOrder>) -> Self {
        self.order = order.into();
        self
    }

    /// Stores the files of a list, see [`Packer::order`], so that decoding them costs less, as long as they take at
    /// most `budget` bytes more than otherwise.
    ///
    /// ```
    /// use kilnfs::source::manifest::parse_order;
    /// use kilnfs::Packer;
    /// use kilnfs::builder::HotMethod;
    ///
    /// # let tmp = tempfile::tempdir().unwrap();
    /// # let (src, out) = (tmp.path().join("src"), tmp.path().join("out.erofs"));
    /// # std::fs::create_dir(&src).unwrap();
    /// # for name in ["init", "other"] {
    /// #     std::fs::write(src.join(name), name.repeat(100_000)).unwrap();
    /// # }
    /// let list = parse_order(b"init\n", "boot.list").unwrap();
    /// let packed = Packer::new().order(list).hot_as(HotMethod::Plain, 64 << 20).pack(&src, &out)?;
    /// assert_eq!(packed.hot_files.nodes.len(), 1);
    /// # Ok::<(), kilnfs::Error>(())
    /// ```
    pub fn hot_as(mut self, hot_as: HotMethod, budget: u64) -> Self {
        self.hot_as = (hot_as, budget);
        self
    }

    /// Adds files that are being written: they are left out of the tree.
    pub fn outputs(mut self, outputs: impl IntoIterator<Item = FileId>) -> Self {
        self.outputs.extend(outputs);
        self
    }

    /// Tells estimates that chunks go to an extra device ([`Out::blob`](kiln_builder::Out::blob)).
    pub fn extra_device(mut self) -> Self {
        self.has_extra_device = true;
        self
    }

    /// Replaces the file that has the image's name, in one step, if it is a regular file.
    pub fn replace(mut self) -> Self {
        self.existing = Existing::Replace;
        self
    }

    /// Does everything except keep the image, which needs its room until the end.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Ends the work with an error once `stop` is set. Nothing has the image's name then.
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Calls `progress` as data is written by [`Packer::pack`] and its kin.
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Returns the options of the build that all choices make together, without those by path.
    ///
    /// # Errors
    /// Choices that cannot be had together.
    pub fn build_options(&self) -> Result<BuildOptions, OptionError> {
        let mut options = match &self.start {
            Start::Choices(choices) => choices.build_options()?,
            Start::Options(options) => (**options).clone(),
        };
        self.adjustments.iter().for_each(|adjust| adjust(&mut options));
        Ok(options)
    }

    /// Returns true if nothing may be missed, see [`Packer::backup`].
    pub(crate) fn is_backup(&self) -> bool {
        self.is_strict || matches!(&self.start, Start::Choices(choices) if choices.preset == Preset::Backup)
    }
}

impl Start {
    /// Returns the choices; the defaults if there are options instead.
    fn choices(&self) -> Choices {
        match self {
            Self::Choices(choices) => choices.clone(),
            Self::Options(_) => Choices::default(),
        }
    }
}
