//! Options of `kiln pack`.

use super::base::BaseArgs;
use super::by_path::ByPathArgs;
use super::failure::source_date_epoch;
use super::layout_args::LayoutArgs;
use super::layout_keys::{LayoutKeys, MetadataKey};
use super::out_args::OutArgs;
use super::preset::{self, Extents, PresetArg};
use super::sources::SourceArgs;
use super::tree_args::TreeArgs;
use crate::console::progress::QuietArgs;
use crate::console::size;
use crate::exit::Failure;
use crate::headings::{RUNNING, SOURCES, STORAGE};
use crate::process::memory;
use crate::process::work::WorkArgs;
use crate::verity::VerityArgs;
use kiln_builder::{
    BuildOptions, Choices, Compression, Dedupe, Fragments, MetadataChoice, MetadataCompression, Preset, SMALL_FILE_LEN,
};
use kiln_format::KernelVersion;
use kiln_format::feature::Feature;
use kiln_tree::storage::DataOrder;
use kilnfs::{ImageLabel, Packer, Threads};
use std::path::PathBuf;
use uuid::Uuid;

/// Pack directories, archives and images into an image
///
/// The image appears under its name when it is complete. Same input and options give the same bytes.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln pack [OPTIONS] SRC IMAGE\n       kiln pack [OPTIONS] SRC... [--at DIR SRC]... -o IMAGE",
    after_help = "\
Examples:
  kiln pack base.tar.gz changes/ --at /opt/tool tool.squashfs -o all.erofs"
)]
pub struct Args {
    #[command(flatten, next_help_heading = SOURCES)]
    pub(super) sources: SourceArgs,

    /// Start from this preset; other options override it
    #[arg(long, value_enum, default_value_t, help_heading = None)]
    pub(super) preset: PresetArg,

    /// Compress by ALGORITHM[,LEVEL] (see `kiln help compression`)
    #[arg(short = 'z', long, value_name = "METHOD", help_heading = None)]
    compress: Option<String>,

    /// Largest physical cluster of compressed data
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = size::parse, help_heading = None)]
    cluster_size: Option<u64>,

    /// Use only features of Linux X.Y, 5.4 or later
    #[arg(long, value_name = "X.Y", help_heading = None)]
    kernel: Option<KernelVersion>,

    /// Label of the image: at most 15 bytes
    #[arg(short = 'L', long, default_value = "", hide_default_value = true, help_heading = None)]
    label: ImageLabel,

    /// UUID of the image; default: derived from its contents
    #[arg(short = 'U', long, help_heading = None)]
    uuid: Option<Uuid>,

    /// Estimate size, time and oldest kernel of every preset
    #[arg(long, help_heading = None, conflicts_with_all = ["preset", "force", "explain", "dry_run", "hot_as",
          "verity"])]
    pub(super) estimate: bool,

    /// Print for each file how it is stored, and why
    #[arg(long, help_heading = None)]
    pub(super) explain: bool,

    /// Do everything, but keep no image
    #[arg(long, help_heading = None)]
    pub(super) dry_run: bool,

    /// Pack each layer of a container image into IMAGE/DIGEST.erofs
    #[arg(long, help_heading = None, conflicts_with_all = ["at", "root", "device", "reference", "estimate", "explain",
          "uuid", "blob_device", "vmdk", "offset", "from_list", "xattrs", "xattr_include", "xattr_exclude", "hot_as"])]
    pub(super) layers: bool,

    /// With --layers, fill this cache of containerd
    #[arg(long, value_name = "DIR", help_heading = None, requires = "layers", conflicts_with = "output")]
    pub(super) containerd_cache: Option<PathBuf>,

    #[command(flatten)]
    pub(super) tree: TreeArgs,

    /// Store duplicates once
    #[arg(long, value_enum, value_name = "parts|files|off", hide_possible_values = true, help_heading = STORAGE)]
    dedupe: Option<DedupeArg>,

    /// Compress files together: off, small, tails, all, or up to SIZE
    #[arg(long, value_name = "WHICH", value_parser = parse_fragments, help_heading = STORAGE)]
    fragments: Option<Fragments>,

    #[command(flatten, next_help_heading = STORAGE)]
    pub(super) by_path: ByPathArgs,

    /// Try these methods for each file, and take the best
    #[arg(long = "try", value_name = "METHOD,...", help_heading = STORAGE)]
    tries: Option<String>,

    /// Limit CPU time of --try to FACTOR times the usual
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, requires = "tries", default_value = "2",
          help_heading = STORAGE)]
    try_budget: u32,

    #[command(flatten, next_help_heading = STORAGE)]
    pub(super) layout: LayoutArgs,

    #[command(flatten, next_help_heading = STORAGE)]
    pub(super) base: BaseArgs,

    #[command(flatten, next_help_heading = STORAGE)]
    pub(super) verity: VerityArgs,

    /// Soft limit of memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "512M", help_heading = RUNNING)]
    memory: u64,

    /// Number of threads that read the source
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), default_value_t = 8,
          help_heading = RUNNING)]
    readers: u16,

    /// Skip what cannot be read, list it, and exit with 3
    #[arg(long, help_heading = RUNNING)]
    pub(super) keep_going: bool,

    #[command(flatten, next_help_heading = RUNNING)]
    pub(super) out: OutArgs,

    #[command(flatten, next_help_heading = RUNNING)]
    pub(super) work: WorkArgs,

    #[command(flatten, next_help_heading = RUNNING)]
    pub(super) quiet: QuietArgs,
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
        let keys = self.layout.keys();
        let choices = self.choices(&keys, preset, block_len)?;
        let options = choices.build_options().map_err(|error| preset::refusal(&error, &choices))?;
        let source_date_epoch = source_date_epoch()?;
        Ok(self.layout.apply(keys, options)?.with(|options| {
            options.work.threads = self.work.threads();
            options.work.readers = Threads::at_least_one(self.readers.into());
            memory::limit(self.memory);
            options.work.memory = usize::try_from(self.memory).unwrap_or(usize::MAX);
            options.work.keep_going = self.keep_going;
            options.identity.uuid = self.uuid.map(Uuid::into_bytes);
            options.identity.label = self.label.padded();
            options.identity.source_date_epoch = source_date_epoch;
        }))
    }

    /// Returns a packer with these options and choices by path, and the order of data.
    ///
    /// # Errors
    /// Files that cannot be read, and invalid hints, orders, filters and policies.
    pub(super) fn packer(&self, options: BuildOptions) -> Result<(Packer, DataOrder), Failure> {
        let packer = if self.preset == PresetArg::Backup { Packer::new().backup() } else { Packer::new() };
        let (packer, order) = self.by_path.apply(packer, &options)?;
        Ok((packer.options(options).filter(self.tree.filter()?).policy(self.tree.policy()?), order))
    }

    /// Returns the choices: those of `preset`, unless options override them. `block_len` is the default of the block
    /// size, if it is not the usual one.
    fn choices(&self, keys: &LayoutKeys, preset: Preset, block_len: Option<u64>) -> Result<Choices, Failure> {
        Ok(Choices {
            preset,
            kernel: self.kernel,
            block_len: self.layout.block_size.or(block_len),
            compression: match self.compress.as_deref() {
                Some("none") => Some(Compression::Off),
                Some(text) => Some(Compression::By(preset::method("--compress ", text)?)),
                None => None,
            },
            pcluster_len: self.cluster_size,
            dedupe: self.dedupe.map(Dedupe::from),
            fragments: self.fragments,
            packed_pcluster_len: keys.packed_cluster,
            encoded_extents: keys.extents.map(|extents| extents == Extents::Encoded),
            tail_packing: keys.tail_packing,
            pack_directories: keys.compress_dirs,
            metadata: self.metadata(keys)?,
            tries: self.tries.as_deref().map_or(Ok(Vec::new()), |list| preset::methods("--try ", list))?,
            try_budget_percent: self.try_budget,
        })
    }

    /// Returns the compression of metadata, if there is a choice of it.
    fn metadata(&self, keys: &LayoutKeys) -> Result<Option<MetadataCompression>, Failure> {
        match &keys.metadata {
            Some(MetadataKey::Off) => Ok(Some(MetadataCompression::Off)),
            Some(MetadataKey::By { len, method }) => {
                let method = method.as_deref().map(|text| preset::method("--layout metadata: ", text)).transpose()?;
                Ok(Some(MetadataCompression::By(MetadataChoice { pcluster_len: *len, method })))
            }
            // It would pack large directories, too, and beside a packed inode these kernels do not find prefixes.
            None if !keys.xattr_prefixes.is_empty() && !self.has_plain_prefixes() => Ok(Some(MetadataCompression::Off)),
            None => Ok(None),
        }
    }

    /// Returns true if the kernel finds prefixes of attributes beside a packed inode.
    fn has_plain_prefixes(&self) -> bool {
        self.kernel.is_some_and(|kernel| kernel >= Feature::PlainXattrPrefixes.since())
    }
}
