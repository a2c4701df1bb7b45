//! `kiln du`

mod page;
mod treemap;

use crate::console::document::Document;
use crate::console::report::{Bytes, JsonList, Out};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use kiln_read::{DirUsage, DiskUsage, FollowLast, Image, Threads, TreeUsage};
use page::Space;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Show the disk usage of directories in an image
///
/// Shared data counts once, for the first directory in a walk: hard links, deduplicated data, blocks of files that
/// are packed together. Metadata is part of the sums.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln du -s image.erofs /usr /var
  kiln du --depth 1 image.erofs
  kiln du --html space.html image.erofs
  kiln du --json image.erofs | jq -r '.directories[] | [.on_disk, .path] | @tsv' | sort -n")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Directories or files to sum up, from the root of the image
    #[arg(default_value = "/")]
    paths: Vec<OsString>,

    /// Show only the sum of each path
    #[arg(short, long, conflicts_with = "depth")]
    summarize: bool,

    /// Show this many levels of directories
    #[arg(short, long, value_name = "LEVELS")]
    depth: Option<usize>,

    /// Show sizes as ls(1) does, before compression and with holes
    #[arg(long)]
    apparent: bool,

    /// Show bytes instead of units such as MiB
    #[arg(short, long)]
    bytes: bool,

    /// Write FILE, a page about the space of the image, for a browser
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "paths", "summarize", "depth"])]
    html: Option<PathBuf>,

    /// Replace existing output, or write to a block device
    #[arg(long, requires = "html")]
    force: bool,

    /// Print one JSON document
    #[arg(long, conflicts_with_all = ["apparent", "bytes"])]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let image = args.image.open_metadata()?;
    if let Some(html) = &args.html {
        return write_page(args, &image, html);
    }
    let depth = if args.summarize { 0 } else { args.depth.unwrap_or(usize::MAX) };
    let mut disk = DiskUsage::new(&image);
    let mut printer = Printer::new(args)?;
    for path in &args.paths {
        let (inode, path) = args.image.resolve(&image, path, FollowLast::Follow)?;
        let mut printed = Ok(());
        let measured = disk.measure(&inode, &path, &mut |dir| {
            if dir.depth <= depth {
                printed = printer.print(&dir);
            }
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        printed?;
        measured.map_err(|error| args.image.failure(error))?;
    }
    printer.finish()?;
    Ok(Exit::Done)
}

/// Writes the page of an image.
fn write_page(args: &Args, image: &Image, html: &Path) -> Result<Exit, Failure> {
    let document = Document::create(html, args.force)?;
    let failure = |error| args.image.failure(error);
    let space = image.inode(image.root_nid()).and_then(|root| Space::measure(image, &root)).map_err(failure)?;
    let usage = image.usage(Threads::PROCESSORS).map_err(failure)?;
    let name = args.image.image.file_name().unwrap_or_default().to_string_lossy();
    document.finish(&space.page(&name, image.source_len(), &usage))?;
    Ok(Exit::Done)
}

enum Printer<'a> {
    Text(&'a Args, Out),
    Json(JsonList),
}

impl<'a> Printer<'a> {
    fn new(args: &'a Args) -> Result<Self, Failure> {
        Ok(if args.json { Printer::Json(JsonList::start("directories")?) } else { Printer::Text(args, Out::new()) })
    }

    fn print(&mut self, dir: &DirUsage<'_>) -> Result<(), Failure> {
        let (args, out) = match self {
            Printer::Json(list) => return list.push(&DirJson::new(dir)),
            Printer::Text(args, out) => (args, out),
        };
        let bytes = if args.apparent { dir.sums.apparent } else { dir.sums.on_disk };
        match args.bytes {
            true => write!(out, "{bytes}\t")?,
            false => write!(out, "{:>10}  ", Human(bytes).to_string())?,
        }
        out.name(if dir.path.is_empty() { b"/" } else { dir.path })?;
        Ok(writeln!(out)?)
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Printer::Text(_, out) => out.finish(),
            Printer::Json(list) => list.finish(),
        }
    }
}

#[derive(Serialize)]
struct DirJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    depth: usize,
    files: u64,
    apparent: u64,
    on_disk: u64,
}

impl DirJson {
    fn new(dir: &DirUsage<'_>) -> Self {
        let TreeUsage { files, apparent, on_disk } = dir.sums;
        let path = Bytes(dir.path);
        Self { path: path.lossy(), path_b64: path.b64_if_lossy(), depth: dir.depth, files, apparent, on_disk }
    }
}
