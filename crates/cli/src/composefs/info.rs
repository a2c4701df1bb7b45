//! `kiln composefs info`

use super::image::failed;
use crate::console::report::Out;
use crate::exit::{Exit, Failure};
use crate::process::threads::ThreadsArgs;
use clap::Subcommand;
use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use kiln_read::{Image, ImageOptions};
use kilnfs::composefs::store::Store;
use kilnfs::composefs::tree::{FileData, NodeIdx};
use kilnfs::composefs::{CfsTree, dump, objects_below, read_image};
use kilnfs::digest::fsverity::FsVerity;
use kilnfs::digest::{Algorithm, Digest};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Inspect composefs images
///
/// All but measure-file read images, and print what composefs-info prints.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln composefs info ls --filter usr rootfs.cfs
  kiln composefs info missing-objects --basedir objects/ rootfs.cfs
  kiln composefs info measure-file rootfs.cfs"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List files, with targets of symbolic links and objects
    #[command(after_help = "Example:\n  kiln composefs info ls --filter usr rootfs.cfs")]
    Ls(ImagesArgs),
    /// List the objects that the images need, each once
    #[command(after_help = "Example:\n  kiln composefs info objects *.cfs")]
    Objects(ImagesArgs),
    /// List the objects that the images need and the store does not have
    #[command(after_help = "Example:\n  kiln composefs info missing-objects --basedir objects/ rootfs.cfs")]
    MissingObjects(MissingArgs),
    /// Print a dump of each image, which makes the same image again
    #[command(after_help = "Example:\n  kiln composefs info dump rootfs.cfs")]
    Dump(ImagesArgs),
    /// Print the fs-verity digest of any files
    #[command(after_help = "Example:\n  kiln composefs info measure-file rootfs.cfs")]
    MeasureFile(MeasureArgs),
}

/// Images to read.
#[derive(clap::Args)]
pub struct ImagesArgs {
    /// Images
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,

    /// Only the file NAME of the root directory, and everything below it; repeat for more
    #[arg(long, value_name = "NAME")]
    pub filter: Vec<OsString>,
}

#[derive(clap::Args)]
struct MissingArgs {
    #[command(flatten)]
    images: ImagesArgs,

    /// Store of the objects, or a repository of composefs-rs
    #[arg(long, value_name = "DIR")]
    basedir: PathBuf,
}

#[derive(clap::Args)]
struct MeasureArgs {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Hash function: `sha256` or `sha512`
    #[arg(long, value_name = "NAME", value_parser = super::versions::parse_algorithm, default_value = "sha256")]
    digest_algorithm: Algorithm,

    #[command(flatten)]
    threads: ThreadsArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let mut out = Out::new();
    match &args.what {
        What::Ls(args) => ls(args, &mut out)?,
        What::Objects(args) => list_objects(args, None, &mut out)?,
        What::MissingObjects(MissingArgs { images, basedir }) => list_objects(images, Some(basedir), &mut out)?,
        What::Dump(args) => print_dump(args, &mut out)?,
        What::MeasureFile(args) => measure(&args.files, args.digest_algorithm, args.threads.threads(), &mut out)?,
    }
    out.finish()?;
    Ok(Exit::Done)
}

impl ImagesArgs {
    /// Calls `each` with the tree of each image.
    fn each(&self, mut each: impl FnMut(CfsTree) -> Result<(), Failure>) -> Result<(), Failure> {
        if let Some(filter) = self.filter.iter().find(|filter| filter.as_bytes().contains(&b'/')) {
            return Err(Failure::Usage(format!("Filter must be a single name: {}", filter.display())));
        }
        self.images.iter().try_for_each(|path| each(read(path)?))
    }

    /// Returns true for the names in the root that are asked for.
    fn is_wanted(&self, name: &[u8]) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|filter| filter.as_bytes() == name)
    }

    fn root_entries(&self, tree: &CfsTree) -> Vec<NodeIdx> {
        tree.entries(NodeIdx::ROOT).filter(|&node| self.is_wanted(tree.name(node))).collect()
    }
}

/// Reads a composefs image back.
pub fn read(path: &Path) -> Result<CfsTree, Failure> {
    let image = Image::open_path(path, &[], &ImageOptions::default());
    let tree = image.map_err(Into::into).and_then(|image| read_image(&image));
    tree.map_err(failed(path))
}

/// Prints paths: those of directories with a slash, those of links with their targets, others with their objects.
pub fn ls(args: &ImagesArgs, out: &mut Out) -> Result<(), Failure> {
    args.each(|tree| {
        let mut stack = args.root_entries(&tree);
        stack.reverse();
        while let Some(node) = stack.pop() {
            path_line(&tree.path(node), out)?;
            match tree.data(node) {
                FileData::Directory => out.write_all(b"/\t")?,
                FileData::Symlink(target) => {
                    out.write_all(b"\t-> ")?;
                    escaped(target, out)?;
                }
                FileData::External { object: Some(object), .. } => {
                    out.write_all(b"\t@ ")?;
                    escaped(object, out)?;
                }
                _ => {}
            }
            out.write_all(b"\n")?;
            let first = stack.len();
            stack.extend(tree.entries(node));
            stack[first..].reverse();
        }
        Ok(())
    })
}

/// Prints the paths of objects; those that are not in the store at `missing_from`, if there is one.
pub fn list_objects(args: &ImagesArgs, missing_from: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let mut found = BTreeSet::new();
    args.each(|tree| {
        found.append(&mut objects_below(&tree, args.root_entries(&tree)));
        Ok(())
    })?;
    let store = missing_from.map(|path| Store::open(path).map_err(failed(path))).transpose()?;
    for object in &found {
        if let Some(store) = &store
            && store.has_path(object).map_err(failed(store.path()))?
        {
            continue;
        }
        out.name(object)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Prints dumps.
pub fn print_dump(args: &ImagesArgs, out: &mut Out) -> Result<(), Failure> {
    args.each(|tree| Ok(dump::write_some(&tree, |name| args.is_wanted(name), out)?))
}

/// Prints the digests of files.
pub fn measure(files: &[PathBuf], algorithm: Algorithm, threads: Threads, out: &mut Out) -> Result<(), Failure> {
    let jobs = files.iter().map(|path| Costed { job: path, cost: 1 });
    let make_worker = || Ok(|path: &PathBuf| digest_of(path, algorithm));
    ordered::run(threads, 1024, jobs, make_worker, |digest: Digest| Ok(writeln!(out, "{digest}")?))
}

fn digest_of(path: &Path, algorithm: Algorithm) -> Result<Digest, Failure> {
    let failure = |action| move |source| Failure::File { path: path.to_owned(), action, source };
    let file = File::open(path).map_err(failure("open"))?;
    let mut hasher = FsVerity::new(algorithm);
    io::copy(&mut BufReader::with_capacity(256 << 10, file), &mut hasher).map_err(failure("read"))?;
    Ok(hasher.finish())
}

/// Prints a path as composefs-info does: on one line, whatever bytes it has.
fn path_line(path: &[u8], out: &mut Out) -> io::Result<()> {
    for (at, part) in path.split(|&byte| byte == b' ').enumerate() {
        out.write_all(if at == 0 { b"" } else { b" " })?;
        escaped(part, out)?;
    }
    Ok(())
}

/// Prints a target or an object as composefs-info does, spaces escaped, too.
fn escaped(path: &[u8], out: &mut Out) -> io::Result<()> {
    for &byte in path {
        match byte {
            b'\\' => out.write_all(b"\\\\")?,
            b'\n' => out.write_all(b"\\n")?,
            b'\r' => out.write_all(b"\\r")?,
            b'\t' => out.write_all(b"\\t")?,
            0x21..=0x7e => out.write_all(&[byte])?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}
