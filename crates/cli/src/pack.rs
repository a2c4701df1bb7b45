//! `kiln pack`

mod base;
mod by_path;
mod digests;
mod estimate;
mod explain;
pub mod hot;
mod job;
mod label;
mod layers;
mod layout_args;
pub mod output;
pub mod preset;
mod sources;
mod summary;
pub mod target;
mod tree_args;
pub mod vmdk;

pub use base::{StampsWanted, TrustArg, tell_stamps, tell_unused_stamps};
pub use by_path::list_order;
pub use digests::DigestArgs;
pub use job::{Job, failure, source_date_epoch};
pub use label::Label;
pub use layout_args::{ALIGN_MAX, CHUNK_MAX_LEN};
pub use sources::{ConcatenatedArg, SpoolMaxArg, open_source, parse_kind};
pub use summary::{
    InSource, LeftOutXattrJson, NoteJson, PackJson, PhaseJson, Report, phases, tell, tell_left_out, tell_notes,
    verifiable,
};

use crate::console::progress::ProgressArgs;
use crate::console::report::{note, print_document};
use crate::console::size;
use crate::exit::{Exit, Failure};
use crate::pack::output::{Destination, Stream};
use crate::pack::target::Target;
use crate::process::signals::Signals;
use crate::process::threads::{NiceArgs, ThreadsArgs};
use base::BaseArgs;
use by_path::ByPathArgs;
use kiln::{PackRequest, Unmatched};
use kiln_builder::{
    BuildOptions, Choices, Compression, Dedupe, Fragments, IdentityOptions, MetadataChoice, PhaseClock, Preset,
    Progress, Reasons, SMALL_FILE_LEN, WorkOptions, store_hot,
};
use kiln_format::{BlockBits, Escaped, KernelVersion};
use kiln_output::Existing;
use kiln_source::Source;
use layout_args::LayoutArgs;
use preset::{Extents, PresetArg};
use sources::SourceArgs;
use std::mem::ManuallyDrop;
use std::str::FromStr;
pub use tree_args::{TreeArgs, named, owner};
use uuid::Uuid;

/// Pack directories, archives and images into an image
///
/// The image appears under its name when it is complete, or not at all. The same input and options give the same bytes, whatever
/// the machine and the number of threads. SOURCE_DATE_EPOCH, where set, is the latest time in the image.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln pack [OPTIONS] SRC IMAGE\n       kiln pack [OPTIONS] SRC... [--at DIR SRC]... -o IMAGE",
    after_help = "\
Examples:
  kiln pack rootfs/ rootfs.erofs
  kiln pack rootfs.tar.zst rootfs.erofs
  kiln pack base.tar.gz changes/ --at /opt/tool tool.squashfs -o all.erofs
  kiln pack --reference layer1.erofs layer2.erofs -o merged.erofs
  kiln pack --preset archive rootfs/ rootfs.erofs
  kiln pack -z lz4hc,12 -C 64k --kernel 5.15 rootfs/ rootfs.erofs
  kiln pack --layers --image app:1.2 image.tar layers/
  kiln pack --estimate rootfs/
  kiln pack --explain --dry-run rootfs/ rootfs.erofs
  kiln pack --kernel 6.15 --fragments all --packed-pcluster 32k rootfs/ rootfs.erofs
  kiln pack --hint '*.so=lz4' --hint '/boot/=none' rootfs/ rootfs.erofs
  kiln pack --exclude '*.o' --exclude /target/ --all-root --mtime 0 src/ src.erofs
  kiln pack rootfs/ - | ssh host 'cat > rootfs.erofs'
  find src -newer stamp -printf '%P\\n' | kiln pack --from-list - src/ new.erofs"
)]
pub struct Args {
    #[command(flatten)]
    sources: SourceArgs,

    #[command(flatten)]
    base: BaseArgs,

    /// Where to start; the options below override it
    #[arg(long, value_enum, default_value_t)]
    preset: PresetArg,

    /// Compression: lz4, lz4hc, lzma, deflate or zstd, with a level, or none. No match reaches further back than dictsize:
    /// deflate 256 to 32k, zstd 1k to 1m (both take the next power of two below), lzma 4k to 8m. It is the memory that
    /// readers need; the default grows with -C, and one longer than what is compressed as one piece gains nothing
    #[arg(short = 'z', value_name = "ALGORITHM[,LEVEL][,dictsize=SIZE]")]
    compression: Option<String>,

    /// The largest pcluster: what is compressed as one piece
    #[arg(short = 'C', value_name = "SIZE", value_parser = size::parse)]
    pcluster_len: Option<u64>,

    /// Try these for each file, on samples, and take the one that makes it smallest, as far as --try-budget goes
    #[arg(long = "try", value_name = "ALGORITHM[,LEVEL][,dictsize=SIZE],...")]
    tries: Option<String>,

    /// What compression may cost with --try, by a model of CPU time that is the same on all machines: FACTOR times what it
    /// costs otherwise
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, requires = "tries", default_value = "2")]
    try_budget: u32,

    /// Use only what Linux X.Y, 5.4 or later, can mount
    #[arg(long, value_name = "X.Y")]
    kernel: Option<KernelVersion>,

    /// What is stored once though it occurs several times; the default is the preset's, or files where lz4 or
    /// nothing compresses
    #[arg(long, value_enum)]
    dedupe: Option<DedupeArg>,

    /// Memory for what can do with less: half for the index of parts, which then finds fewer of them, the rest for data on its
    /// way. The list of files and the threads' encoders come on top
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "512M")]
    memory: u64,

    /// Files that are packed, which is compressed together: off, small (up to 128K), tails (these and the ends of longer
    /// files), all, or those up to a size (needs Linux 6.1)
    #[arg(long, value_name = "off|small|tails|all|SIZE", value_parser = parse_fragments)]
    fragments: Option<Fragments>,

    /// The largest pcluster of packed files; the default is as for other files
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    packed_pcluster: Option<u64>,

    /// How files tell where their compressed data is; the default is encoded with --kernel 6.15 or later
    #[arg(long, value_enum)]
    extents: Option<Extents>,

    /// The end of a compressed file lies beside its inode where there is room: one read for a small file (needs Linux 5.17)
    #[arg(long)]
    tail_packing: bool,

    /// Large directories are compressed: they are packed like files (needs Linux 6.1)
    #[arg(long)]
    compress_dirs: bool,

    /// Inodes and what lies beside them are compressed in pieces of SIZE (default 32K), large directories too (needs
    /// Linux 6.17); without an algorithm of its own as -z says
    #[arg(long, value_name = "SIZE[:ALGORITHM[,LEVEL]]", num_args = 0..=1, require_equals = true,
          default_missing_value = DEFAULT_METADATA)]
    compress_metadata: Option<MetadataArg>,

    /// The image's UUID; the default comes from its contents
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,

    /// The image's label: at most 15 bytes
    #[arg(short = 'L', long, default_value = "", hide_default_value = true)]
    label: Label,

    /// Replace IMAGE if it exists, or write to it if it is a block device or with --offset
    #[arg(long)]
    force: bool,

    /// Pack each layer of an image of a container into an image of its own for overlayfs, IMAGE/DIGEST.erofs by the layer's digest. IMAGE
    /// is a directory then, which is made if need be
    #[arg(long, conflicts_with_all = ["at", "root", "device", "reference", "estimate", "explain", "uuid", "blob_device", "vmdk", "offset",
          "from_list", "xattrs", "xattr_include", "xattr_exclude", "fs_config", "pseudo", "device_table", "hot_as"])]
    layers: bool,

    /// Build nothing; pack a sample, and tell what each preset would make of SRC: size, time, oldest kernel
    #[arg(long, conflicts_with_all = ["preset", "force", "explain", "dry_run", "hot_as"])]
    estimate: bool,

    /// Tell of each file how it is stored and why, on standard output, when the image is built
    #[arg(long)]
    explain: bool,

    /// Do everything but keep the image; it needs its room until the end
    #[arg(long)]
    dry_run: bool,

    /// Skip what cannot be read, store files that change meanwhile as long as they were and as they are read, list both, and exit
    /// with 3
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    progress: ProgressArgs,

    /// One JSON document on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    by_path: ByPathArgs,

    #[command(flatten)]
    layout: LayoutArgs,

    // The last: its heading goes on to the end.
    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum DedupeArg {
    /// Files of equal contents, and equal parts of compressed files (needs Linux 6.1)
    Parts,
    /// Files of equal contents
    Files,
    /// Nothing
    Off,
}

impl From<DedupeArg> for Dedupe {
    fn from(arg: DedupeArg) -> Self {
        match arg {
            DedupeArg::Parts => Dedupe::Parts,
            DedupeArg::Files => Dedupe::Files,
            DedupeArg::Off => Dedupe::Off,
        }
    }
}

/// What is compressed as one piece of metadata where nothing else is named.
const DEFAULT_METADATA: &str = "32K";

/// Value of `--compress-metadata`.
#[derive(Clone)]
struct MetadataArg {
    len: u64,
    algorithm: Option<String>,
}

impl FromStr for MetadataArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (len, algorithm) = text.split_once(':').map_or((text, None), |(len, rest)| (len, Some(rest.to_owned())));
        Ok(Self { len: size::parse(len)?, algorithm })
    }
}

fn parse_fragments(text: &str) -> Result<Fragments, String> {
    match text {
        "off" | "0" => Ok(Fragments::Off),
        "small" => Ok(Fragments::UpTo(SMALL_FILE_LEN)),
        "tails" => Ok(Fragments::Tails(SMALL_FILE_LEN)),
        "all" => Ok(Fragments::UpTo(u64::MAX)),
        len => size::parse(len).map(Fragments::UpTo),
    }
}

/// A factor, in percent.
fn parse_factor(text: &str) -> Result<u32, &'static str> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1.0..=1000.0).contains(factor));
    factor.map(|factor| (factor * 100.0).round() as u32).ok_or("use a number from 1 to 1000")
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let operands = args.sources.operands(args.estimate)?;
    let Some(image) = operands.image else { return estimate::run(args, &operands) };
    if args.layers {
        return layers::run(args, &operands, image);
    }
    // What is referred to decides how long blocks are.
    let open = |signals: Option<&Signals>| args.sources.open(&operands, args.layout.spool.as_deref(), signals);
    let referred = if args.sources.reference { Some(referable(open(None)?)?) } else { None };
    let block_len = referred.as_ref().and_then(|source| source.block_bits()).map(BlockBits::len);
    let mut options = options(args, args.preset.into(), block_len)?;
    let by_path = args.by_path.resolve(&options)?;
    let (filter, policy) = (args.tree.filter()?, args.tree.policy()?);
    args.nice.apply()?;
    // A FIFO that nothing reads makes this wait, as in any program: a signal ends it.
    let destination = Destination::find(image)?;
    let stream = destination.stream();
    if (args.json || args.explain) && stream.is_some_and(Stream::is_stdout) {
        let message = "the image goes to standard output, so --json and --explain, which print there, are not possible";
        return Err(Failure::Usage(message.into()));
    }
    let is_backup = args.preset == PresetArg::Backup;
    // Stamps are of a file that has its name, and nothing else in it.
    let is_file = matches!(destination, Destination::File(_)) && args.layout.offset == 0 && !args.dry_run;
    let by_default = is_backup && is_file && args.layout.blob_device.is_none();
    let stamps = args.base.stamps(stream.is_none().then_some(image), by_default)?;
    let name = stream.map_or(image, Stream::name).to_owned();
    let quiet = args.progress.quiet || stream.is_some_and(Stream::is_stderr);
    let signals = Signals::catch()?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let mut target = Target::create(destination, existing, args.layout.offset, args.layout.spool.as_deref())?;
    if let Some(path) = &args.layout.blob_device {
        target = target.with_blob(path, existing)?;
    }
    if let Some(path) = &args.layout.vmdk {
        target = target.with_descriptor(path, image, existing)?;
    }
    options.work.scratch_dir = target.scratch_dir().to_owned();
    let source = referred.map_or_else(|| open(Some(&signals)), Ok)?;
    let base = args.base.open()?;
    let before = PhaseClock::start();
    let outputs = target.ids();
    let request = PackRequest {
        source: &*source,
        base: base.as_ref(),
        filter: &filter,
        policy: &policy,
        outputs: &outputs,
        is_backup,
        stop: signals.stop(),
    };
    let job = Job { request, image, signals: &signals };
    // The system takes back the memory of a tree and of what is told of it sooner than they are freed file by file.
    let scan = ManuallyDrop::new(job.scan(&options)?);
    stamps.check(&scan, existing)?;
    let unmatched = by_path.resolve(&scan.tree, &mut options);
    let hot = &args.by_path.hot;
    let hot_as = hot.choice(&by_path.order)?;
    let hot_files = store_hot(&scan.tree, hot_as, &|_| None, &mut options).map_err(|error| job.failure(error))?;
    target.refer_to(scan.tree.stores().devices, options.block_bits)?;
    before.finish("scan");
    let meter = args.progress.meter();
    let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
    let built = job.build(&scan.tree, target.out(), &options, &progress);
    drop(meter);
    let (mut summary, reasons) = built.map_err(|failure| target.failure(failure))?;
    let reasons = ManuallyDrop::new(reasons);
    let after = PhaseClock::start();
    let mut written = None;
    if !args.dry_run {
        target.commit(&summary, &signals)?;
        after.finish("sync");
        written = stamps.write(image, &scan, existing)?;
    }
    summary.phases = [before.phases(), summary.phases, after.phases()].concat();
    if !quiet {
        tell_unmatched(&unmatched);
        hot.tell(&hot_files);
        tell_stamps(base.as_ref(), &scan, written);
    }
    let src = args.sources.only_source(&operands);
    let report = Report { src, image: &name, scan: Some(&scan), order: &by_path.order, summary: &summary };
    finish(args, &report, &reasons, quiet)
}

/// A source to whose data an image can refer.
fn referable(source: Box<dyn Source>) -> Result<Box<dyn Source>, Failure> {
    match source.block_bits() {
        Some(_) => Ok(source),
        None => Err(Failure::Usage(format!(
            "--reference: {}: an image can refer to tar archives and EROFS images only",
            source.path().display()
        ))),
    }
}

/// Say which choices by path are about nothing: most likely they are mistakes.
pub fn tell_unmatched(unmatched: &Unmatched) {
    for (what, list) in
        [("paths of --order are not in the image", &unmatched.paths), ("hints match nothing", &unmatched.hints)]
    {
        if let Some(first) = list.first() {
            let more = if list.len() > 1 { ", ..." } else { "" };
            note(format_args!("{} {what}: {}{more}", list.len(), Escaped(first)));
        }
    }
}

/// The preset, and what the options that name more make of it. `block_len` is the default of the block size, if it is another one.
fn choices(args: &Args, preset: Preset, block_len: Option<u64>) -> Result<Choices, Failure> {
    let metadata: Option<Result<_, Failure>> = args.compress_metadata.as_ref().map(|MetadataArg { len, algorithm }| {
        let method = algorithm.as_deref().map(|text| preset::method("--compress-metadata: ", text));
        Ok(MetadataChoice { pcluster_len: *len, method: method.transpose()? })
    });
    Ok(Choices {
        preset,
        kernel: args.kernel,
        block_len: args.layout.block_size.or(block_len),
        compression: match args.compression.as_deref() {
            Some("none") => Some(Compression::Off),
            Some(text) => Some(Compression::By(preset::method("-z ", text)?)),
            None => None,
        },
        pcluster_len: args.pcluster_len,
        dedupe: args.dedupe.map(Dedupe::from),
        fragments: args.fragments,
        packed_pcluster_len: args.packed_pcluster,
        encoded_extents: args.extents.map(|extents| extents == Extents::Encoded),
        tail_packing: args.tail_packing,
        pack_directories: args.compress_dirs,
        metadata: metadata.transpose()?,
        tries: args.tries.as_deref().map_or(Ok(Vec::new()), |list| preset::methods("--try ", list))?,
        try_budget_percent: args.try_budget,
    })
}

fn options(args: &Args, preset: Preset, block_len: Option<u64>) -> Result<BuildOptions, Failure> {
    let choices = choices(args, preset, block_len)?;
    let options = choices.build_options().map_err(|error| preset::refusal(&error, &choices))?;
    let options = args.layout.apply(options)?;
    Ok(BuildOptions {
        work: WorkOptions {
            threads: args.threads.threads(),
            memory: usize::try_from(args.memory).unwrap_or(usize::MAX),
            keep_going: args.keep_going,
            ..options.work
        },
        identity: IdentityOptions {
            uuid: args.uuid.map(Uuid::into_bytes),
            label: args.label.padded(),
            source_date_epoch: source_date_epoch()?,
            ..options.identity
        },
        ..options
    })
}

fn finish(args: &Args, report: &Report<'_>, reasons: &Reasons<'_>, quiet: bool) -> Result<Exit, Failure> {
    let exit = tell_skipped(report);
    if !quiet {
        report.tell();
    }
    match (args.explain, args.json) {
        (true, true) => explain::print_json(reasons, &PackJson::new(report))?,
        (true, false) => explain::tell(reasons)?,
        (false, true) => print_document(&PackJson::new(report))?,
        (false, false) => {}
    }
    Ok(exit)
}

/// Say what is not in the image as it is in the source.
fn tell_skipped(report: &Report<'_>) -> Exit {
    report.scan.into_iter().for_each(tell_notes);
    let unreadable = report.scan.map_or(&[][..], |scan| &scan.skipped);
    unreadable.iter().for_each(|skipped| note(format_args!("skipped: {}", InSource::new(report.src, skipped))));
    match (tell_left_out(report.summary), unreadable.is_empty()) {
        (Exit::Done, false) => Exit::Skipped,
        (exit, _) => exit,
    }
}
