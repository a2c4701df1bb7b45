//! `kiln info`

mod stats;

use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::process::threads::ThreadsArgs;
use kiln_format::Algorithm;
use kiln_read::Image;
use serde::Serialize;
use stats::StatsJson;
use std::io::{self, Write};
use uuid::Uuid;

/// Show features, algorithms and oldest kernel of an image
///
/// The build time is what the superblock says. Inodes that store no modification time have it, so kiln records the
/// commonest time of the files there, and the same tree gives the same image at any time; `kiln pack --build-time`
/// records another one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln info image.erofs
  kiln info --stats image.erofs")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Count files, extents, what reads need, shared data and padding, too; reads all metadata
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    threads: ThreadsArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open_metadata()?;
    if let Some(kind) = args.image.view_kind()? {
        return tell_source(args, kind, image.superblock().inos);
    }
    let mut info = Info::new(&image);
    if args.stats {
        let usage = image.usage(args.threads.threads()).map_err(|error| args.image.failure(error))?;
        info.stats = Some(StatsJson::new(&usage));
    }
    if args.json {
        print_document(&info)?;
    } else {
        let mut out = Out::new();
        info.print(&mut out)?;
        out.finish()?;
    }
    Ok(Exit::Done)
}

/// Facts about an archive, or an image of another format.
#[derive(Serialize)]
struct SourceInfo {
    kind: &'static str,
    /// Length of the file; `None` for a directory.
    bytes: Option<u64>,
    inodes: u64,
}

fn tell_source(args: &Args, kind: &'static str, inodes: u64) -> Result<Exit, Failure> {
    let found = std::fs::metadata(&args.image.image).ok().filter(std::fs::Metadata::is_file);
    let info = SourceInfo { kind, bytes: found.map(|found| found.len()), inodes };
    if args.json {
        print_document(&info)?;
        return Ok(Exit::Done);
    }
    let mut out = Out::new();
    writeln!(out, "Kind:          {kind}, which FUSE mounts; the kernel's driver mounts EROFS images only")?;
    if let Some(bytes) = info.bytes {
        writeln!(out, "Size:          {} ({bytes} bytes)", Human(bytes))?;
    }
    writeln!(out, "Inodes:        {inodes}")?;
    out.finish()?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Info {
    uuid: String,
    label: String,
    bytes: u64,
    block_size: u64,
    blocks: u64,
    inodes: u64,
    root_nid: u64,
    meta_blkaddr: u64,
    xattr_blkaddr: u64,
    packed_nid: Option<u64>,
    metabox_nid: Option<u64>,
    extra_devices: u16,
    composefs: bool,
    /// Seconds since 1970.
    epoch: i64,
    build_time: i64,
    feature_compat: u32,
    feature_incompat: u32,
    features: Vec<FeatureJson>,
    oldest_kernel: String,
    algorithms: Vec<AlgorithmJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<StatsJson>,
}

#[derive(Serialize)]
struct FeatureJson {
    name: &'static str,
    since: String,
}

#[derive(Serialize)]
struct AlgorithmJson {
    name: &'static str,
    /// Its configuration, if it has one.
    detail: String,
}

impl Info {
    fn new(image: &Image) -> Self {
        let sb = image.superblock();
        let label = sb.volume_name.split(|&b| b == 0).next().unwrap_or_default();
        let feature = |f: kiln_format::feature::Feature| FeatureJson { name: f.name(), since: f.since().to_string() };
        Self {
            uuid: Uuid::from_bytes(sb.uuid).to_string(),
            label: String::from_utf8_lossy(label).into_owned(),
            bytes: image.source_len(),
            block_size: sb.block_bits.len(),
            blocks: sb.blocks,
            inodes: sb.inos,
            root_nid: sb.root_nid.0,
            meta_blkaddr: sb.meta_blkaddr.0,
            xattr_blkaddr: sb.xattr_blkaddr.0,
            packed_nid: sb.packed_nid.map(|nid| nid.0),
            metabox_nid: sb.metabox_nid.map(|nid| nid.0),
            extra_devices: sb.extra_devices,
            composefs: image.is_composefs(),
            epoch: sb.epoch,
            build_time: sb.epoch.saturating_add(sb.build_time.into()),
            feature_compat: sb.compat.bits(),
            feature_incompat: sb.incompat.bits(),
            features: sb.features().into_iter().map(feature).collect(),
            oldest_kernel: sb.oldest_kernel().to_string(),
            algorithms: algorithms(image),
            stats: None,
        }
    }

    fn print(&self, out: &mut Out) -> io::Result<()> {
        writeln!(out, "UUID:          {}", self.uuid)?;
        if !self.label.is_empty() {
            write!(out, "Label:         ")?;
            out.name(self.label.as_bytes())?;
            writeln!(out)?;
        }
        let used = self.blocks.saturating_mul(self.block_size);
        match used < self.bytes {
            true => writeln!(out, "Size:          {} ({used} bytes), in {}", Human(used), Human(self.bytes))?,
            false => writeln!(out, "Size:          {} ({} bytes)", Human(self.bytes), self.bytes)?,
        }
        writeln!(out, "Blocks:        {} of {} bytes", self.blocks, self.block_size)?;
        writeln!(out, "Inodes:        {}", self.inodes)?;
        writeln!(out, "Root:          nid {}", self.root_nid)?;
        writeln!(
            out,
            "Metadata:      from block {}, shared xattrs from block {}",
            self.meta_blkaddr, self.xattr_blkaddr
        )?;
        for (name, nid) in [("Packed inode:  ", self.packed_nid), ("Metabox:       ", self.metabox_nid)] {
            if let Some(nid) = nid {
                writeln!(out, "{name}nid {nid}")?;
            }
        }
        if self.extra_devices > 0 {
            writeln!(out, "Extra devices: {}", self.extra_devices)?;
        }
        if self.composefs {
            writeln!(out, "Made by:       composefs; its larger files are objects outside of the image")?;
        }
        writeln!(out, "Build time:    {}", text::time(self.build_time))?;
        writeln!(out, "Feature bits:  compat {:#x}, incompat {:#x}", self.feature_compat, self.feature_incompat)?;
        for (idx, algorithm) in self.algorithms.iter().enumerate() {
            let head = if idx == 0 { "Algorithms:    " } else { "               " };
            writeln!(out, "{head}{}{}", algorithm.name, algorithm.detail)?;
        }
        for (idx, feature) in self.features.iter().enumerate() {
            let head = if idx == 0 { "Features:      " } else { "               " };
            writeln!(out, "{head}{} (Linux {})", feature.name, feature.since)?;
        }
        writeln!(out, "Oldest kernel: Linux {}", self.oldest_kernel)?;
        self.stats.as_ref().map_or(Ok(()), |stats| stats.print(out))
    }
}

fn algorithms(image: &Image) -> Vec<AlgorithmJson> {
    let cfgs = image.compr_cfgs();
    let detail = |algorithm| match algorithm {
        Algorithm::Lz4 => cfgs.lz4.map(|lz4| {
            format!(", distance up to {}, pclusters up to {} blocks", lz4.max_distance, lz4.max_pclusterblks)
        }),
        Algorithm::Lzma => cfgs.lzma_dict_size.map(|size| format!(", dictionary of {}", Human(size.into()))),
        Algorithm::Deflate => cfgs.deflate_windowbits.map(|bits| format!(", window of {}", Human(1 << bits))),
        Algorithm::Zstd => cfgs.zstd_windowlog.map(|log| format!(", window of {}", Human(1 << log))),
    };
    let with_detail =
        |algorithm: Algorithm| detail(algorithm).map(|detail| AlgorithmJson { name: algorithm.name(), detail });
    Algorithm::ALL.into_iter().filter_map(with_detail).collect()
}
