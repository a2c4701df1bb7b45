//! `kiln pack`

mod summary;
mod tree_args;

use crate::exit::{Exit, Failure};
use crate::output::{Existing, Output};
use crate::preset::{self, Preset};
use crate::progress::{Meter, ProgressArgs};
use crate::report::{note, print_document};
use crate::signals::Signals;
use crate::size;
use crate::threads::ThreadsArgs;
use kiln_build::{BuildError, BuildOptions, Control, Dedupe, Fragments, PhaseClock, Progress, Summary};
use kiln_format::KernelVersion;
use kiln_source::dir::{Scan, ScanError, ScanOptions, Unreadable};
use kiln_source::filter::{self, Filter};
use std::path::{Path, PathBuf};
use summary::PackJson;
use tree_args::TreeArgs;
use uuid::Uuid;

/// Pack a directory into an image
///
/// The image appears under its name when it is complete, or not at all. The same input and options give the same bytes, whatever
/// the machine and the number of threads. SOURCE_DATE_EPOCH, where set, is the latest time in the image.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln pack rootfs/ rootfs.erofs
  kiln pack --preset small rootfs/ rootfs.erofs
  kiln pack -z lz4hc,12 -C 64k --kernel 5.15 rootfs/ rootfs.erofs
  kiln pack --exclude '*.o' --exclude /target/ --all-root --mtime 0 src/ src.erofs
  find src -newer stamp -printf '%P\\n' | kiln pack --from-list - src/ new.erofs")]
pub struct Args {
    /// The directory to pack
    src: PathBuf,

    /// The image to make
    image: PathBuf,

    /// Where to start; -z and -C override it
    #[arg(long, value_enum, default_value_t)]
    preset: Preset,

    /// Compression: lz4, lz4hc, lzma, deflate or zstd, with a level, or none
    #[arg(short = 'z', value_name = "ALGORITHM[,LEVEL]")]
    compression: Option<String>,

    /// The largest pcluster: what is compressed as one piece
    #[arg(short = 'C', value_name = "SIZE", value_parser = size::parse)]
    pcluster_len: Option<u64>,

    /// Use only what Linux X.Y can mount
    #[arg(long, value_name = "X.Y")]
    kernel: Option<KernelVersion>,

    /// What is stored once though it occurs several times
    #[arg(long, value_enum, default_value_t)]
    dedupe: DedupeArg,

    /// Memory for the index of parts; a smaller one finds fewer
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    memory: u64,

    /// Files that are compressed together: off, all, or those of up to this many bytes (needs Linux 6.1)
    #[arg(long, value_name = "off|SIZE|all", value_parser = parse_fragments)]
    fragments: Option<Fragments>,

    /// The largest pcluster of files that are compressed together
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    packed_pcluster: Option<u64>,

    /// Encoded extents: byte-granular, without padding (needs Linux 6.15)
    #[arg(long)]
    encoded: bool,

    /// The image's UUID; the default comes from its contents
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,

    /// The image's label: at most 15 bytes
    #[arg(short = 'L', long, default_value = "", value_parser = parse_label, hide_default_value = true)]
    label: Label,

    /// Replace IMAGE if it exists
    #[arg(long)]
    force: bool,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    progress: ProgressArgs,

    /// One JSON document on standard output
    #[arg(long)]
    json: bool,

    // The last: its heading goes on to the end.
    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum DedupeArg {
    /// Files of equal contents, and equal parts of compressed files
    Parts,
    /// Files of equal contents
    #[default]
    Files,
    /// Nothing
    Off,
}

fn parse_fragments(text: &str) -> Result<Fragments, String> {
    match text {
        "off" => Ok(Fragments::Off),
        "all" => Ok(Fragments::UpTo(u64::MAX)),
        len => size::parse(len).map(Fragments::UpTo),
    }
}

/// Padded with zeros.
#[derive(Clone, Copy)]
struct Label([u8; 16]);

fn parse_label(text: &str) -> Result<Label, String> {
    let mut label = [0; 16];
    match text.len() {
        0..=15 => label[..text.len()].copy_from_slice(text.as_bytes()),
        len => return Err(format!("{len} bytes, at most 15 fit")),
    }
    Ok(Label(label))
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let options = options(args)?;
    let (filter, policy) = (args.tree.filter()?, args.tree.policy()?);
    let signals = Signals::catch()?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let output = Output::create(&args.image, existing)?;
    let mut before = PhaseClock::start();
    let mut scan = scan(args, &filter, &signals)?;
    scan.tree = filter::apply(scan.tree, &policy).map_err(Failure::Policy)?;
    before.finish("scan");
    let mut summary = build(args, &scan, &output, &options, &signals)?;
    let mut after = PhaseClock::start();
    output.commit()?;
    after.finish("sync");
    summary.phases = [before.phases(), summary.phases, after.phases()].concat();
    report(args, &scan.skipped, &summary)
}

fn options(args: &Args) -> Result<BuildOptions, Failure> {
    Ok(BuildOptions {
        compression: preset::compression(args.preset, args.compression.as_deref(), args.pcluster_len, args.kernel)?,
        threads: args.threads.count(),
        kernel: args.kernel,
        dedupe: match args.dedupe {
            DedupeArg::Off => Dedupe::Off,
            DedupeArg::Files => Dedupe::Files,
            DedupeArg::Parts => Dedupe::Parts,
        },
        index_budget: usize::try_from(args.memory).unwrap_or(usize::MAX),
        fragments: args.fragments.unwrap_or(Fragments::Off),
        encoded_extents: args.encoded,
        packed_pcluster_len: args.packed_pcluster.map(|len| len as u32),
        uuid: args.uuid.map(Uuid::into_bytes),
        label: args.label.0,
        source_date_epoch: source_date_epoch()?,
        keep_going: args.keep_going,
        scratch_dir: parent_of(&args.image),
    })
}

/// Where the image goes there must be room: so there, too, for what the builder puts aside.
fn parent_of(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else { return Ok(None) };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let refuse = || Failure::Usage("SOURCE_DATE_EPOCH: not a number of seconds since 1970".into());
    secs.map(Some).ok_or_else(refuse)
}

fn scan(args: &Args, filter: &Filter, signals: &Signals) -> Result<Scan, Failure> {
    let (threads, keep_going) = (args.threads.count(), args.keep_going);
    let options = ScanOptions { threads, keep_going, filter, stop: signals.stop() };
    kiln_source::dir::scan(&args.src, &options).map_err(|error| match (error, signals.caught()) {
        (ScanError::Interrupted, Some(number)) => Failure::Signal(number),
        (error, _) => Failure::Source(error),
    })
}

fn build(
    args: &Args,
    scan: &Scan,
    output: &Output,
    options: &BuildOptions,
    signals: &Signals,
) -> Result<Summary, Failure> {
    let meter = Meter::bar(&args.progress);
    let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
    let control = Control { stop: signals.stop(), progress: &progress };
    kiln_build::build(&scan.tree, output.file(), options, &control).map_err(|source| match (source, signals.caught()) {
        (BuildError::Interrupted, Some(number)) => Failure::Signal(number),
        (source, _) => Failure::Build { image: args.image.clone(), source },
    })
}

fn report(args: &Args, unreadable: &[Unreadable], summary: &Summary) -> Result<Exit, Failure> {
    for skipped in unreadable {
        note(format_args!("skipped: {skipped}"));
    }
    for skipped in &summary.skipped {
        note(format_args!("skipped: {}", skipped.error));
    }
    if !args.progress.quiet {
        summary::tell(&args.image, summary);
    }
    if args.json {
        print_document(&PackJson::new(&args.image, unreadable, summary))?;
    }
    Ok(if unreadable.is_empty() && summary.skipped.is_empty() { Exit::Done } else { Exit::Skipped })
}
