//! `kiln update`, and the commands about what it leaves.

pub mod log;
pub mod lost;
pub mod repair;
pub mod rollback;
mod summary;

use crate::console::progress::QuietArgs;
use crate::console::report::print_document;
use crate::console::size;
use crate::exit::{Exit, Failure};
use crate::headings::{RUNNING, STORAGE};
use crate::pack::out_args::SpoolArgs;
use crate::pack::preset::{self, PresetArg};
use crate::pack::{
    ConcatenatedArg, DigestArgs, StampsWanted, TreeArgs, TrustArg, failure, open_source, parse_kind, source_date_epoch,
    tell_stamps, tell_unused_stamps,
};
use crate::patch::left_over;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use crate::verity::{ChangedVerityArgs, Changing, Hashing};
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln_builder::{BuildOptions, Choices, Compression, MetadataCompression, PhaseClock};
use kiln_format::feature::Feature;
use kiln_format::{Escaped, KernelVersion};
use kiln_output::Existing;
use kiln_revise::update::{About, BehindImage, Update, UpdateTarget, UpdatedFile, open_for_update};
use kiln_revise::{EditedImage, IncrementBase, Stamps};
use kiln_source::dir::FileId;
use kiln_source::{Source, SourceKind, SourceOptions};
use kilnfs::{Error, Packer, Updated};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use summary::{Report, UpdateJson};

/// Update an image in place
///
/// IMAGE becomes equal to SRC, or is edited by --remove, --add and --replace, in this order. New data is appended
/// and one sector is replaced last, so that a crash leaves the old tree or the new one. Older trees stay as
/// generations (see `kiln log`). See `kiln help reuse`.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln update [OPTIONS] IMAGE SRC\n       kiln update [OPTIONS] IMAGE [--remove PATH]... [--add SRC]...\n                   [--replace PATH=FILE]...",
    after_help = "\
Examples:
  kiln update backup.erofs /srv
  kiln update rootfs.erofs --add overrides/ --remove /var/cache
  kiln update rootfs.erofs --replace /etc/hosts=hosts.new"
)]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    /// Directory, archive or image to which IMAGE becomes equal
    #[arg(required_unless_present_any = ["add", "remove", "replace"], conflicts_with_all = ["add", "remove", "replace"])]
    src: Option<PathBuf>,

    /// Lay SRC over the tree of IMAGE
    #[arg(long, value_name = "SRC")]
    add: Vec<PathBuf>,

    /// Remove PATH from IMAGE, with everything below it
    #[arg(long, value_name = "PATH")]
    remove: Vec<OsString>,

    /// Take contents and time of PATH in IMAGE from FILE
    #[arg(long, value_name = "PATH=FILE", value_parser = OsStringValueParser::new().try_map(replacement))]
    replace: Vec<(OsString, PathBuf)>,

    /// Read every source as this kind (see `kiln help sources`)
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    from: Option<SourceKind>,

    /// Detect unchanged files by times or content
    #[arg(long, value_name = "times|content", value_enum, hide_possible_values = true, default_value_t, conflicts_with_all = ["add", "remove", "replace"])]
    base_trust: TrustArg,

    /// Write IMAGE.stamp, which detects every change next time
    #[arg(long, conflicts_with_all = ["add", "remove", "replace"])]
    stamp: bool,

    /// Start from this preset; other options override it
    #[arg(long, value_enum, help_heading = STORAGE)]
    preset: Option<PresetArg>,

    /// Compress by ALGORITHM[,LEVEL] (see `kiln help compression`)
    #[arg(short = 'z', long, value_name = "METHOD", help_heading = STORAGE)]
    compress: Option<String>,

    /// Largest physical cluster of compressed data
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = size::parse, help_heading = STORAGE)]
    cluster_size: Option<u64>,

    /// Use only features of Linux X.Y, 5.4 or later
    #[arg(long, value_name = "X.Y", help_heading = STORAGE)]
    kernel: Option<KernelVersion>,

    #[command(flatten, next_help_heading = STORAGE)]
    digests: DigestArgs,

    /// Overwrite bytes that lie behind the image in its file
    #[arg(long, help_heading = RUNNING)]
    discard_tail: bool,

    #[command(flatten, next_help_heading = STORAGE)]
    verity: ChangedVerityArgs,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long, help_heading = RUNNING)]
    keep_going: bool,

    #[command(flatten, next_help_heading = RUNNING)]
    spool: SpoolArgs,

    #[command(flatten, next_help_heading = RUNNING)]
    concatenated: ConcatenatedArg,

    #[command(flatten, next_help_heading = RUNNING)]
    work: WorkArgs,

    #[command(flatten, next_help_heading = RUNNING)]
    quiet: QuietArgs,

    // The last: its headings go on to the end.
    #[command(flatten)]
    tree: TreeArgs,
}

/// The value of `--replace`.
fn replacement(text: OsString) -> Result<(OsString, PathBuf), &'static str> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=').ok_or("use PATH=FILE")?;
    let (path, file) = (bytes[..at].to_vec(), bytes[at + 1..].to_vec());
    if file.is_empty() { Err("use PATH=FILE") } else { Ok((OsString::from_vec(path), OsString::from_vec(file).into())) }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let (filter, policy) = (args.tree.filter()?, args.tree.policy()?);
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let fail = |error: Error| failure(error, &signals, &args.image);
    let started = PhaseClock::start();
    let time = now()?;
    let file = open_for_update(&args.image).map_err(|error| fail(error.into()))?;
    refuse_left_over(&args.image)?;
    let changing = Changing::begin(&args.verity, &args.image, &file)?;
    let update = begin(args, changing.target()?).map_err(fail)?;
    let options = options(args, &update, time).map_err(|failure| refuse(failure, fail))?;
    let source = source(args, &update, &signals)?;
    let base = base(args, &update).map_err(fail)?.map(Arc::new);
    let mut packer = Packer::new().options(options).filter(filter).policy(policy).outputs(written(&file));
    packer = packer.stop(Arc::clone(signals.stop()));
    if args.preset == Some(PresetArg::Backup) {
        packer = packer.backup();
    }
    if let Some(base) = &base {
        packer = packer.base(Arc::clone(base));
    }
    let scanned = packer.scan(&*source).map_err(fail)?;
    let scan = &scanned.scan;
    let stamps = stamps(args, base.as_deref());
    stamps.check(scan, Existing::Replace)?;
    started.finish("scan");
    let about = About { time, label: label(args) };
    let updated = args.work.watch(args.quiet.quiet, |progress| scanned.update(&update, &about, progress));
    let Updated { mut summary, number, added } = updated.map_err(fail)?;
    summary.phases.splice(0..0, started.phases());
    let stamps = stamps.write(&args.image, scan, Existing::Replace)?;
    // Nothing refers to the target any more.
    drop(update);
    let clock = PhaseClock::start();
    let tree = changing.seal(Hashing { work: Some(&args.work), quiet: args.quiet.quiet, signals: &signals })?;
    if tree.is_some() {
        clock.finish("hash tree");
        summary.phases.extend(clock.phases());
    }
    let src = args.src.as_deref().unwrap_or(&args.image);
    let report = Report { image: &args.image, src, scan, summary: &summary, number, added, tree: tree.as_ref() };
    let exit = report.tell_skipped();
    if !args.quiet.quiet {
        report.tell();
        tell_stamps(base.as_deref(), scan, stamps);
    }
    if args.work.json {
        print_document(&UpdateJson::new(&report))?;
    }
    Ok(exit)
}

/// Returns the files that are written: the image, whatever leads to it, and messages.
fn written(file: &UpdatedFile) -> impl Iterator<Item = FileId> {
    let written = [FileId::of(file.file()).ok(), FileId::of_written(io::stdout()), FileId::of_written(io::stderr())];
    written.into_iter().flatten()
}

/// Refuses an image that a patch in place has half written, as its journal tells.
fn refuse_left_over(image: &Path) -> Result<(), Failure> {
    match left_over::find(image) {
        Some(journal) => Err(Failure::LeftOver { image: image.to_owned(), journal, source: None }),
        None => Ok(()),
    }
}

fn begin<'a>(args: &Args, target: UpdateTarget<'a>) -> Result<Update<'a>, Error> {
    let behind = if args.discard_tail { BehindImage::Anything } else { BehindImage::OwnRemains };
    Ok(Update::begin(target, behind)?)
}

/// The image as the base of what SRC makes of it; what edits do not name is of the image itself.
fn base(args: &Args, update: &Update<'_>) -> Result<Option<IncrementBase>, Error> {
    if args.src.is_none() {
        return Ok(None);
    }
    let base = IncrementBase::of(update.base().clone(), args.base_trust.into())?;
    tell_unused_stamps(&base);
    Ok(Some(base))
}

/// Returns the stamps to write: where there were some, they are kept up to date.
fn stamps(args: &Args, base: Option<&IncrementBase>) -> StampsWanted {
    let path = Stamps::path(&args.image);
    let is_backup = args.preset == Some(PresetArg::Backup) && args.src.is_some() && args.image.is_file();
    match args.stamp {
        true => StampsWanted::Required(path),
        false if is_backup || base.is_some_and(|base| base.stamps.is_some()) => StampsWanted::Possible(path),
        false => StampsWanted::None,
    }
}

/// Opens the source of the new tree.
fn source(args: &Args, update: &Update<'_>, signals: &Signals) -> Result<Box<dyn Source>, Failure> {
    let concatenated = args.concatenated.concatenated;
    let options = SourceOptions { concatenated, ..args.spool.source_options(Some(signals)) };
    let open = |path: &Path| open_source(path, args.from, &options, Some(signals));
    if let Some(src) = &args.src {
        return open(src);
    }
    let mut edited = EditedImage::new(update.base().clone());
    args.remove.iter().for_each(|path| edited.remove(path.as_bytes()));
    for path in &args.add {
        edited.add(open(path)?);
    }
    args.replace.iter().for_each(|(path, file)| edited.replace(path.as_bytes(), file));
    Ok(Box::new(edited))
}

/// Returns options that store new data as the image stores its data, unless the command line has others.
fn options(args: &Args, update: &Update<'_>, time: i64) -> Result<BuildOptions, Refused> {
    let found = update.choices().map_err(Error::from)?;
    let Choices { block_len, metadata, .. } = found;
    let found = match args.preset {
        Some(preset) => Choices { preset: preset.into(), block_len, metadata, ..Choices::default() },
        None => found,
    };
    let compression = match args.compress.as_deref() {
        Some("none") => Some(Compression::Off),
        Some(text) => Some(Compression::By(preset::method("--compress ", text)?)),
        None => found.compression,
    };
    // What was found of other compression says nothing about this one.
    let is_other = args.compress.is_some();
    let is_off = compression == Some(Compression::Off);
    let choices = Choices {
        compression,
        kernel: args.kernel.or(found.kernel.filter(|_| !is_other)),
        pcluster_len: args.cluster_size.or(found.pcluster_len.filter(|_| !is_off)),
        packed_pcluster_len: found.packed_pcluster_len.filter(|_| !is_other),
        fragments: found.fragments.filter(|_| !is_off),
        encoded_extents: found.encoded_extents.filter(|_| !is_off),
        tail_packing: found.tail_packing && !is_off,
        metadata: match args.kernel {
            Some(kernel) if kernel < Feature::Metabox.since() => Some(MetadataCompression::Off),
            _ => found.metadata,
        },
        ..found
    };
    let options = choices.build_options().map_err(|error| preset::refusal(&error, &choices))?;
    let source_date_epoch = source_date_epoch()?;
    Ok(options.with(|options| {
        options.work.threads = args.work.threads();
        options.work.keep_going = args.keep_going;
        options.work.scratch_dir = args.spool.dir();
        args.digests.apply(&mut options.metadata);
        options.identity.source_date_epoch = source_date_epoch;
        options.identity.build_time = Some(time);
    }))
}

/// An error of the library or of the command line.
enum Refused {
    Library(Error),
    Command(Failure),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Command(failure)
    }
}

fn refuse(refused: Refused, fail: impl Fn(Error) -> Failure) -> Failure {
    match refused {
        Refused::Library(error) => fail(error),
        Refused::Command(failure) => failure,
    }
}

/// Seconds since 1970, as the environment or the clock has them.
fn now() -> Result<i64, Failure> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    Ok(source_date_epoch()?.unwrap_or_else(clock))
}

/// Returns the label that `kiln log` shows.
fn label(args: &Args) -> String {
    let shown = |path: &Path| Escaped::path(path).to_string();
    let src = args.src.iter().map(|path| shown(path));
    let removed = args.remove.iter().map(|path| format!("--remove {}", Escaped(path.as_bytes())));
    let added = args.add.iter().map(|path| format!("--add {}", shown(path)));
    let replaced = args.replace.iter().map(|(path, _)| format!("--replace {}", Escaped(path.as_bytes())));
    let words: Vec<_> = src.chain(removed).chain(added).chain(replaced).collect();
    format!("update {}", words.join(" "))
}
