//! Options of `kiln pack`.

use super::base::BaseArgs;
use super::by_path::ByPathArgs;
use super::failure::source_date_epoch;
use super::layout_args::LayoutArgs;
use super::out_args::OutArgs;
use super::preset::{self, Extents, PresetArg};
use super::sources::SourceArgs;
use super::tree_args::TreeArgs;
use crate::console::progress::QuietArgs;
use crate::console::size;
use crate::exit::Failure;
use crate::process::work::WorkArgs;
use kiln::{ImageLabel, Packer};
use kiln_builder::{BuildOptions, Choices, Compression, Dedupe, Fragments, MetadataChoice, Preset, SMALL_FILE_LEN};
use kiln_format::KernelVersion;
use kiln_source::filter::DataOrder;
use std::str::FromStr;
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
    pub(super) sources: SourceArgs,

    #[command(flatten)]
    pub(super) base: BaseArgs,

    /// Where to start; the options below override it
    #[arg(long, value_enum, default_value_t)]
    pub(super) preset: PresetArg,

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
    label: ImageLabel,

    #[command(flatten)]
    pub(super) out: OutArgs,

    /// Pack each layer of an image of a container into an image of its own for overlayfs, IMAGE/DIGEST.erofs by the layer's digest. IMAGE
    /// is a directory then, which is made if need be
    #[arg(long, conflicts_with_all = ["at", "root", "device", "reference", "estimate", "explain", "uuid", "blob_device", "vmdk", "offset",
          "from_list", "xattrs", "xattr_include", "xattr_exclude", "fs_config", "pseudo", "device_table", "hot_as"])]
    pub(super) layers: bool,

    /// Build nothing; pack a sample, and tell what each preset would make of SRC: size, time, oldest kernel
    #[arg(long, conflicts_with_all = ["preset", "force", "explain", "dry_run", "hot_as"])]
    pub(super) estimate: bool,

    /// Tell of each file how it is stored and why, on standard output, when the image is built
    #[arg(long)]
    pub(super) explain: bool,

    /// Do everything but keep the image; it needs its room until the end
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Skip what cannot be read, store files that change meanwhile as long as they were and as they are read, list both, and exit
    /// with 3
    #[arg(long)]
    pub(super) keep_going: bool,

    #[command(flatten)]
    pub(super) work: WorkArgs,

    #[command(flatten)]
    pub(super) quiet: QuietArgs,

    #[command(flatten)]
    pub(super) by_path: ByPathArgs,

    #[command(flatten)]
    pub(super) layout: LayoutArgs,

    // The last: its heading goes on to the end.
    #[command(flatten)]
    pub(super) tree: TreeArgs,
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

/// Default size of a piece of metadata that is compressed by itself.
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

impl Args {
    /// Returns the options of the build, without choices by path.
    ///
    /// # Errors
    /// Options that cannot be had together.
    pub(super) fn options(&self, preset: Preset, block_len: Option<u64>) -> Result<BuildOptions, Failure> {
        let choices = self.choices(preset, block_len)?;
        let options = choices.build_options().map_err(|error| preset::refusal(&error, &choices))?;
        Ok(BuildOptions {
            threads: self.work.threads(),
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            uuid: self.uuid.map(Uuid::into_bytes),
            label: self.label.padded(),
            source_date_epoch: source_date_epoch()?,
            keep_going: self.keep_going,
            ..self.layout.apply(options)?
        })
    }

    /// Returns a packer with these options and choices by path, and the order of data.
    ///
    /// # Errors
    /// Files that cannot be read, and invalid hints, orders, filters and policies.
    pub(super) fn packer(&self, options: BuildOptions) -> Result<(Packer, DataOrder), Failure> {
        let (packer, order) = self.by_path.apply(Packer::new(), &options)?;
        Ok((packer.options(options).filter(self.tree.filter()?).policy(self.tree.policy()?), order))
    }

    /// Returns the choices: those of `preset`, unless options override them. `block_len` is the default of the block size,
    /// if it is not the usual one.
    fn choices(&self, preset: Preset, block_len: Option<u64>) -> Result<Choices, Failure> {
        let metadata: Option<Result<_, Failure>> =
            self.compress_metadata.as_ref().map(|MetadataArg { len, algorithm }| {
                let method = algorithm.as_deref().map(|text| preset::method("--compress-metadata: ", text));
                Ok(MetadataChoice { pcluster_len: *len, method: method.transpose()? })
            });
        Ok(Choices {
            preset,
            kernel: self.kernel,
            block_len: self.layout.block_size.or(block_len),
            compression: match self.compression.as_deref() {
                Some("none") => Some(Compression::Off),
                Some(text) => Some(Compression::By(preset::method("-z ", text)?)),
                None => None,
            },
            pcluster_len: self.pcluster_len,
            dedupe: self.dedupe.map(Dedupe::from),
            fragments: self.fragments,
            packed_pcluster_len: self.packed_pcluster,
            encoded_extents: self.extents.map(|extents| extents == Extents::Encoded),
            tail_packing: self.tail_packing,
            pack_directories: self.compress_dirs,
            metadata: metadata.transpose()?,
            tries: self.tries.as_deref().map_or(Ok(Vec::new()), |list| preset::methods("--try ", list))?,
            try_budget_percent: self.try_budget,
        })
    }
}
