//! `kiln verity format`

use super::append::append;
use super::made::{Hashing, MadeTree, make};
use super::padded::Padded;
use super::salt::{self, Salt};
use super::sealing::tell_set_aside;
use super::{block_size, erofs, failure, open};
use crate::console::progress::QuietArgs;
use crate::console::report::{Out, print_document};
use crate::console::size;
use crate::exit::{Exit, Failure};
use crate::pack::out_args::ForceArg;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_output::{AtomicFile, write_all_at};
use kiln_read::ReadAt;
use kiln_verity::beside::{read_root_hash, root_hash_path, set_aside};
use kiln_verity::sidecar::Sidecar;
use kiln_verity::{Algorithm, Digest, Parameters, Superblock, Tree, find_behind};
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

    /// Size of a block of IMAGE, from 512 to 64K; default: 4096, or that of its blocks if they are smaller
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    data_block_size: Option<u64>,

    /// Size of a block of the tree, from 512 to 64K; default: as of IMAGE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    hash_block_size: Option<u64>,

    /// Write the root hash to FILE
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,

    /// Write root hash and offset to IMAGE.dmverity, for containerd
    #[arg(long, conflicts_with = "tree")]
    sidecar: bool,

    #[command(flatten)]
    replace: ForceArg,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    work: WorkArgs,
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
    let hashing = Hashing { work: Some(&args.work), quiet: args.quiet.quiet, signals: &signals };
    let data = Padded { source: open(&args.image)?, len: end, padded_len: data_len };
    let tree = make(&data, &covered.parameters, &args.image, hashing)?;
    let superblock = tree.superblock(args.uuid);
    match &args.tree {
        Some(path) => beside(args, path, &tree, &superblock)?,
        None => append(&args.image, end, covered.is_device, &tree, &superblock)?,
    }
    let made = MadeTree::new(&tree, args.tree.as_deref(), end);
    let (root_hash, existing) = (tree.root_hash(), args.replace.existing());
    if args.tree.is_none() {
        set_aside_others(args, root_hash)?;
    }
    if let Some(path) = &args.root_hash_file {
        let file = AtomicFile::create(path, existing)?;
        let written = write_all_at(&file, root_hash.to_string().as_bytes(), 0);
        written.map_err(|source| Failure::File { path: path.clone(), action: "write", source })?;
        file.commit()?;
    }
    if args.sidecar {
        let sidecar = Sidecar { root_hash: *root_hash, hash_off: made.hash_off };
        sidecar.write(&Sidecar::path_of(&args.image), existing).map_err(|error| failure(&args.image, error))?;
    }
    if !args.quiet.quiet {
        made.tell(&args.image);
    }
    if args.work.json {
        print_document(&made.json(&args.image))?;
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
    let size = |size: Option<u64>, default| size.map_or(default, |size| u32::try_from(size).unwrap_or(u32::MAX));
    let data_block_size = size(args.data_block_size, block_size(erofs.as_ref().map(|erofs| erofs.block_len)));
    let mut parameters = Parameters {
        algorithm: args.algorithm,
        data_block_size,
        hash_block_size: size(args.hash_block_size, data_block_size),
        data_blocks: 1,
        salt: args.salt.bytes(erofs.map(|erofs| erofs.uuid))?,
    };
    if let Err(error) = parameters.check(0) {
        return Err(Failure::Usage(format!("--{}: {}", error.field.replace('_', "-"), error.reason)));
    }
    if end == 0 {
        return refuse("empty: there is nothing to cover");
    }
    if args.tree.is_some() && !end.is_multiple_of(data_block_size.into()) {
        return refuse("its length is no multiple of the block size: pad it, or use --data-block-size 512");
    }
    parameters.data_blocks = end.div_ceil(data_block_size.into());
    Ok(Covered { end, is_device, parameters })
}

/// Sets aside what tells of another tree than the one behind the image.
fn set_aside_others(args: &Args, root_hash: &Digest) -> Result<(), Failure> {
    let (root_hash_path, sidecar_path) = (root_hash_path(&args.image), Sidecar::path_of(&args.image));
    let sidecar = Sidecar::read(&sidecar_path).ok().flatten();
    let is_same = [
        (&root_hash_path, read_root_hash(&root_hash_path) == Some(*root_hash)),
        (&sidecar_path, args.sidecar || sidecar.is_some_and(|sidecar| sidecar.root_hash == *root_hash)),
    ];
    let kept = is_same.iter().filter(|(path, is_same)| *is_same || args.root_hash_file.as_ref() == Some(path));
    let kept: Vec<&Path> = kept.map(|(path, _)| path.as_path()).collect();
    set_aside(&args.image, &kept)?.iter().for_each(tell_set_aside);
    Ok(())
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
