//! `kiln verity format`

use super::padded::Padded;
use super::salt::{self, Salt};
use super::{erofs, failure, open};
use crate::console::progress::QuietArgs;
use crate::console::report::{Out, note, print_document};
use crate::console::size::{self, Human};
use crate::exit::{Exit, Failure};
use crate::pack::out_args::ForceArg;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_output::{AtomicFile, write_all_at};
use kiln_read::ReadAt;
use kiln_verity::sidecar::Sidecar;
use kiln_verity::{Algorithm, Control, Parameters, Superblock, Tree, VerityError, find_behind};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Make the hash tree of an image
///
/// The tree is appended to IMAGE itself, behind its data, which do not change; with TREE it becomes a file of its own.
/// The same image gets the same tree, unless you choose another salt. Prints the root hash, which is all that you
/// must keep safe. A later `kiln update` makes the tree stale.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln verity format image.erofs --root-hash-file image.roothash
  kiln verity format image.erofs image.verity --salt content
  kiln verity format layer.erofs --sidecar")]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    /// File for the tree, instead of the end of IMAGE
    tree: Option<PathBuf>,

    /// Salt of all digests: `zero` (32 zeros, as containerd), `content` (from the UUID of IMAGE), `none`, or bytes
    #[arg(long, value_name = "zero|content|none|HEX", default_value = "zero", value_parser = salt::parse)]
    salt: Salt,

    /// UUID of the tree; default: from the root hash, so that damage of it is found
    #[arg(long)]
    uuid: Option<Uuid>,

    /// Hash function: `sha256` or `sha512`
    #[arg(long, default_value = "sha256")]
    algorithm: Algorithm,

    /// Size of a block of IMAGE, from 512 to 64K
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = size::parse)]
    data_block_size: u64,

    /// Size of a block of the tree, from 512 to 64K
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = size::parse)]
    hash_block_size: u64,

    /// Write the root hash to FILE, too
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,

    /// Write IMAGE.dmverity, by which containerd finds root hash and tree
    #[arg(long, conflicts_with = "tree")]
    sidecar: bool,

    #[command(flatten)]
    replace: ForceArg,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// The document of `--json`.
#[derive(Serialize)]
struct MadeJson {
    root_hash: String,
    tree: String,
    hash_offset: u64,
    tree_bytes: u64,
    data_bytes: u64,
    padding_bytes: u64,
}

/// Bytes of an image that its tree covers.
struct Covered {
    /// End of the data.
    end: u64,
    is_device: bool,
    parameters: Parameters,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let covered = covered(args)?;
    let (end, data_len) = (covered.end, covered.parameters.data_len());
    let data = Padded { source: open(&args.image)?, len: end, padded_len: data_len };
    let meter = args.work.meter(args.quiet.quiet);
    meter.set(0, data_len);
    let progress = |bytes| meter.advance(bytes);
    let control = Control { threads: args.work.threads(), stop: signals.stop(), progress: &progress };
    let tree = Tree::of_data(&data, &covered.parameters, &control);
    drop(meter);
    let tree = tree.map_err(|error| match (error, signals.caught()) {
        (VerityError::Interrupted, Some(number)) => Failure::Signal(number),
        (error, _) => failure(&args.image, error),
    })?;
    let superblock = tree.superblock(args.uuid);
    let hash_off = match &args.tree {
        Some(path) => {
            beside(args, path, &tree, &superblock)?;
            0
        }
        None => {
            append(args, &covered, &tree, &superblock)?;
            data_len
        }
    };
    let (root_hash, existing) = (tree.root_hash(), args.replace.existing());
    if let Some(path) = &args.root_hash_file {
        let file = AtomicFile::create(path, existing)?;
        let written = write_all_at(&file, root_hash.to_string().as_bytes(), 0);
        written.map_err(|source| Failure::File { path: path.clone(), action: "write", source })?;
        file.commit()?;
    }
    if args.sidecar {
        let sidecar = Sidecar { root_hash: *root_hash, hash_off };
        sidecar.write(&Sidecar::path_of(&args.image), existing).map_err(|error| failure(&args.image, error))?;
    }
    let tree_len = tree.stored_len(hash_off);
    if !args.quiet.quiet {
        let (len, data) = (Human(tree_len), Human(data_len));
        let place = args
            .tree
            .as_ref()
            .map_or_else(|| format!("behind it at byte {hash_off}"), |path| format!("in {}", path.display()));
        note(format_args!("{}: hash tree of {len} for {data}, {place}", args.image.display()));
    }
    if args.work.json {
        print_document(&MadeJson {
            root_hash: root_hash.to_string(),
            tree: args.tree.as_ref().unwrap_or(&args.image).display().to_string(),
            hash_offset: hash_off,
            tree_bytes: tree_len,
            data_bytes: data_len,
            padding_bytes: data_len - end,
        })?;
    } else {
        let mut out = Out::new();
        writeln!(out, "{root_hash}")?;
        out.finish()?;
    }
    Ok(Exit::Done)
}

/// Returns what the tree covers: a file up to its end or up to the tree that it has, of a device the image.
fn covered(args: &Args) -> Result<Covered, Failure> {
    let image = &args.image;
    let file_failure = |source| Failure::File { path: image.clone(), action: "look at", source };
    let is_device = std::fs::metadata(image).map_err(file_failure)?.file_type().is_block_device();
    let (source, erofs) = (open(image)?, erofs(image));
    let old = find_behind(&source, erofs.as_ref().map(|erofs| erofs.end)).map_err(|error| failure(image, error))?;
    if let Some(hash_off) = old
        && args.tree.is_none()
        && !args.replace.force
    {
        return Err(Failure::HasTree { image: image.clone(), hash_off });
    }
    let refuse = |why: &str| Err(Failure::Usage(format!("{}: {why}", image.display())));
    let end = match (is_device, &erofs) {
        (true, Some(erofs)) => erofs.end,
        (true, None) => return refuse("a device without an EROFS image: nothing says where its data end"),
        (false, _) => old.map_or_else(|| source.len().map_err(file_failure), Ok)?,
    };
    let size = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    let mut parameters = Parameters {
        algorithm: args.algorithm,
        data_block_size: size(args.data_block_size),
        hash_block_size: size(args.hash_block_size),
        data_blocks: 1,
        salt: args.salt.bytes(erofs.map(|erofs| erofs.uuid))?,
    };
    if let Err(error) = parameters.check(0) {
        return Err(Failure::Usage(format!("--{}: {}", error.field.replace('_', "-"), error.reason)));
    }
    if end == 0 {
        return refuse("empty: there is nothing to cover");
    }
    if args.tree.is_some() && !end.is_multiple_of(args.data_block_size) {
        return refuse("its length is no multiple of the block size: pad it, or use --data-block-size 512");
    }
    parameters.data_blocks = end.div_ceil(args.data_block_size);
    Ok(Covered { end, is_device, parameters })
}

/// Writes the tree to a file of its own.
fn beside(args: &Args, path: &Path, tree: &Tree, superblock: &Superblock) -> Result<(), Failure> {
    let file = AtomicFile::create(path, args.replace.existing())?;
    let mut out = BufWriter::new(file.file());
    let written = tree.write(superblock, 0, &mut out).and_then(|()| out.flush());
    written.map_err(|source| Failure::File { path: path.to_owned(), action: "write", source })?;
    drop(out);
    Ok(file.commit()?)
}

/// Appends the tree to the image, in place of one that is there. The superblock comes last; after a failure the image
/// has no tree.
fn append(args: &Args, covered: &Covered, tree: &Tree, superblock: &Superblock) -> Result<(), Failure> {
    let hash_off = covered.parameters.data_len();
    let failed = |action| move |source| Failure::File { path: args.image.clone(), action, source };
    let file = File::options().write(true).read(true).open(&args.image).map_err(failed("open"))?;
    if covered.is_device {
        let room = open(&args.image)?.len().map_err(failed("look at"))?.saturating_sub(hash_off);
        if room < tree.stored_len(hash_off) {
            let error = std::io::ErrorKind::StorageFull.into();
            return Err(failed("append a hash tree")(error));
        }
        // A tree that is there becomes invalid first.
        write_all_at(&file, &[0; 512], hash_off).map_err(failed("write"))?;
        return tree.write_at(superblock, hash_off, &file).map_err(failed("write"));
    }
    // What is cut off is an older tree, or nothing.
    let written = file.set_len(covered.end).and_then(|()| file.set_len(hash_off));
    let written = written.and_then(|()| tree.write_at(superblock, hash_off, &file));
    written.map_err(|source| {
        // The first error is the one to report.
        let _ = file.set_len(covered.end);
        failed("append a hash tree")(source)
    })
}
