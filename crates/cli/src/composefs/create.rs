//! `kiln composefs create`

use super::image::{Conversion, Output, failed, read_dump};
use super::versions::{id, parse_algorithm, parse_version};
use crate::console::progress::QuietArgs;
use crate::console::report::{Out, note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::out_args::OutArgs;
use crate::pack::{notice_layout, open_source, parse_kind, tell_notes};
use crate::process::signals::Signals;
use crate::process::threads::{NiceArgs, ThreadsArgs};
use clap::ValueEnum;
use kiln_source::oci::{ImageChoice, Platform};
use kiln_source::{ScanOptions, SourceKind, SourceOptions};
use kilnfs::composefs::CfsTree;
use kilnfs::composefs::from_tree::container::container_tree;
use kilnfs::composefs::from_tree::{HardLinks, TreeOptions, XattrChoice};
use kilnfs::composefs::image::{ImageOptions, ImageSummary, Version};
use kilnfs::digest::Algorithm;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Make a composefs image of a directory, an archive, an image or a dump
///
/// Reads all sources of `kiln pack`. Files of more than 64 bytes are objects, which --digest-store keeps. The same tree
/// gives the same image everywhere, and the same as mkcomposefs with these options. A container image gives the id that
/// `cfsctl oci compute-id` prints (see --container-rules): its root takes the attributes of /usr, /run is empty, and of
/// attributes only security.capability is kept. An id is only comparable with its version and its algorithm, so all
/// three are told: `v1 fsverity-sha256-12 HEX`. By default, the hash function is that of the dump, or SHA-256.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln composefs create --digest-store objects/ rootfs/ rootfs.cfs
  kiln composefs create --print-digest-only --digest-algorithm sha512 rootfs.tar
  kiln composefs create --print-digest-only --digest-algorithm sha512 --image app:1.2 --from oci layout/
  kiln composefs create --from-file rootfs.dump rootfs.cfs")]
pub struct Args {
    /// Directory, archive or image to read, or a dump with --from-file; - is standard input
    src: PathBuf,

    /// Image to write; - is standard output
    #[arg(required_unless_present = "print_digest_only", conflicts_with = "print_digest_only")]
    out: Option<PathBuf>,

    /// Read SRC as a dump, and write exactly what it says
    #[arg(
        long,
        conflicts_with_all = [
            "digest_store", "use_epoch", "skip_devices", "skip_xattrs", "user_xattrs", "hardlinks", "from",
            "container_rules"
        ]
    )]
    from_file: bool,

    /// Read every source as this kind (see `kiln help sources`)
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    from: Option<SourceKind>,

    /// Container image to use: its name, tag or digest
    #[arg(long, value_name = "NAME|DIGEST")]
    image: Option<String>,

    /// Platform of the container image to use
    #[arg(long, value_name = "OS/ARCH")]
    platform: Option<Platform>,

    /// Store the objects in this directory, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    digest_store: Option<PathBuf>,

    /// Version of an image without whiteouts: 0 as mkcomposefs, 1 as composefs-rs
    #[arg(long, value_name = "0|1", value_parser = parse_version, default_value = "1")]
    min_version: Version,

    /// Version of an image with whiteouts, if it is higher
    #[arg(long, value_name = "0|1", value_parser = parse_version, default_value = "1")]
    max_version: Version,

    /// Hash function: `sha256` or `sha512`
    #[arg(long, value_name = "NAME", value_parser = parse_algorithm)]
    digest_algorithm: Option<Algorithm>,

    /// Print the id
    #[arg(long)]
    print_digest: bool,

    /// Print the id, and write no image
    #[arg(long)]
    print_digest_only: bool,

    /// Make the tree that composefs-rs makes of a container image: auto, yes or no
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, default_value_t)]
    container_rules: RulesArg,

    /// Set all times of modification to 0
    #[arg(long)]
    use_epoch: bool,

    /// Leave out block and character devices, whiteouts included
    #[arg(long)]
    skip_devices: bool,

    /// Leave out extended attributes
    #[arg(long, conflicts_with = "user_xattrs")]
    skip_xattrs: bool,

    /// Leave out extended attributes but user.*
    #[arg(long)]
    user_xattrs: bool,

    /// Files with several names: keep the names, or make a file of each as mkcomposefs does
    #[arg(long, value_enum, default_value_t)]
    hardlinks: LinksArg,

    #[command(flatten)]
    out_args: OutArgs,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Value of `--container-rules`.
#[derive(Clone, Copy, Default, ValueEnum)]
enum RulesArg {
    /// For sources that are container images.
    #[default]
    Auto,
    Yes,
    No,
}

/// Value of `--hardlinks`.
#[derive(Clone, Copy, Default, ValueEnum)]
enum LinksArg {
    #[default]
    Keep,
    Break,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.nice.apply()?;
    if args.json && args.out.as_deref() == Some(Path::new("-")) {
        return Err(Failure::Usage("the image goes to standard output, so --json is not possible".into()));
    }
    let signals = Signals::catch()?;
    let output = Output::create(args.out.as_deref(), args.out_args.existing())?;
    let tree = match args.from_file {
        true => read_dump(&args.src, &mut |warning| note(format_args!("{}: {warning}", args.src.display())))?,
        false => scan(args, &signals)?,
    };
    if let Some(number) = signals.caught() {
        return Err(Failure::Signal(number));
    }
    let of_dump = || if args.from_file { tree.algorithm() } else { None };
    let algorithm = args.digest_algorithm.or_else(of_dump).unwrap_or_default();
    let options =
        ImageOptions { min_version: args.min_version, max_version: args.max_version, algorithm: Some(algorithm) };
    let summary = output.write(&tree, &options)?;
    tell(args, &summary)?;
    Ok(Exit::Done)
}

/// Scans the source, and stores its objects.
fn scan(args: &Args, signals: &Signals) -> Result<CfsTree, Failure> {
    let (name, platform) = (args.image.clone(), args.platform.clone());
    let image = ImageChoice { name, platform, ..ImageChoice::default() };
    let options = SourceOptions { image, ..args.out_args.spool.source_options(Some(signals)) };
    if args.from.is_none() {
        notice_layout(&args.src, "use --from oci");
    }
    let source = open_source(&args.src, args.from, &options, Some(signals))?;
    let threads = args.threads.threads();
    let scan = source.scan(&ScanOptions { threads, ..ScanOptions::new(signals.stop()) });
    let scan = scan.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
    tell_notes(&scan);
    let is_container = match args.container_rules {
        RulesArg::Auto => scan.is_container,
        RulesArg::Yes => true,
        RulesArg::No => false,
    };
    let tree = match is_container {
        true => container_tree(scan.tree).map_err(failed(&args.src))?,
        false => scan.tree,
    };
    let conversion = Conversion {
        options: TreeOptions {
            use_epoch: args.use_epoch,
            skip_devices: args.skip_devices,
            xattrs: match (is_container, args.user_xattrs) {
                _ if args.skip_xattrs => XattrChoice::None,
                (true, true) => XattrChoice::CapabilityAndUser,
                (true, false) => XattrChoice::Capability,
                (false, true) => XattrChoice::User,
                (false, false) => XattrChoice::All,
            },
            hard_links: match args.hardlinks {
                LinksArg::Keep => HardLinks::Kept,
                LinksArg::Break => HardLinks::Broken,
            },
        },
        algorithm: args.digest_algorithm.unwrap_or_default(),
        store: args.digest_store.as_deref(),
        threads,
        stop: signals.stop(),
    };
    conversion.convert(&tree, &args.src).map_err(|failure| match signals.caught() {
        Some(number) => Failure::Signal(number),
        None => failure,
    })
}

#[derive(Serialize)]
struct CreatedJson {
    id: String,
    version: u32,
    algorithm: Option<&'static str>,
    digest: Option<String>,
    bytes: u64,
    inodes: u64,
}

fn tell(args: &Args, summary: &ImageSummary) -> Result<(), Failure> {
    let ImageSummary { len, inodes, .. } = *summary;
    if args.json {
        return print_document(&CreatedJson {
            id: id(summary),
            version: summary.version as u32,
            algorithm: summary.digest.map(|digest| digest.algorithm().fsverity_name()),
            digest: summary.digest.map(|digest| digest.to_string()),
            bytes: len,
            inodes,
        });
    }
    if args.print_digest || args.print_digest_only {
        let mut out = Out::new();
        writeln!(out, "{}", id(summary))?;
        out.finish()?;
    }
    if !args.quiet.quiet && args.out.is_some() {
        note(format_args!("{inodes} inodes, {}: {}", Human(len), id(summary)));
    }
    Ok(())
}
