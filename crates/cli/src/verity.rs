//! `kiln verity`: hash trees of dm-verity.

mod append;
mod args;
mod changing;
mod format;
mod made;
mod padded;
pub mod patched;
mod salt;
pub mod sealing;
mod show;
mod sign;
mod signed;
pub mod verify;

pub use args::{BesideKind, ChangedVerityArgs, RequireVerityArg, SaltArg, TreePlace, TreeWanted, VerityArgs};
pub use changing::Changing;
pub use made::{Hashing, MadeTree, MadeTreeJson};

use crate::console::report::note;
use crate::exit::{Exit, Failure, NOT_CARRIED};
use crate::root_hash::failure;
use clap::Subcommand;
use kiln_read::{FileSource, Image, ImageOptions};
use kiln_verity::{BLOCK_SIZE_MIN, beside, find_tree};
use std::path::Path;

/// Make, verify, show and sign hash trees of dm-verity
///
/// A hash tree has a digest of each block of an image. Whoever trusts its root hash can verify any block. Trees are
/// those of `veritysetup`, byte for byte.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln verity format image.erofs --root-hash-file image.roothash
  kiln verity verify image.erofs --root-hash image.roothash
  kiln verity sign image.roothash --key key.pem --certificate certificate.pem"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Format(format::Args),
    Verify(verify::Args),
    Show(show::Args),
    Sign(sign::Args),
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Format(args) => format::run(args),
        What::Verify(args) => verify::run(args),
        What::Show(args) => show::run(args),
        What::Sign(args) => sign::run(args),
    }
}

/// Opens a file or a block device.
fn open(path: &Path) -> Result<FileSource, Failure> {
    FileSource::open(path).map_err(|source| Failure::Read { image: path.to_owned(), source })
}

/// The image at a path, if it is one of EROFS: its end, and its UUID.
struct Erofs {
    end: u64,
    uuid: [u8; 16],
    block_len: u64,
}

/// Looks at the superblock of an image. Any other file has a tree as well.
fn erofs(path: &Path) -> Option<Erofs> {
    let image = Image::open_path(path, &[], &ImageOptions::default().with_any_checksum()).ok()?;
    let sb = image.superblock();
    Some(Erofs { end: sb.blocks.checked_mul(sb.block_bits.len())?, uuid: sb.uuid, block_len: sb.block_bits.len() })
}

/// Returns true if an image has a hash tree, behind or beside it.
pub fn has_tree(image: &Path) -> bool {
    let Ok(source) = FileSource::open(image) else { return false };
    let end = erofs(image).map(|erofs| erofs.end);
    // Something that cannot be read as a tree is one, too: it is not carried over.
    find_tree(image, &source, end).map_or(true, |found| found.is_some()) || !beside::found(image).is_empty()
}

/// Notes that a new image has no hash tree, though `image` has one.
pub fn tell_not_carried(image: &Path) {
    note(format_args!("{}: {NOT_CARRIED}", image.display()));
}

/// Largest block of a tree, unless another one is asked for.
const BLOCK_SIZE: u32 = 4096;

/// Returns the size of blocks of data and of the tree of an image with blocks of `block_len`: a mapped device has no
/// smaller blocks, and the kernel mounts no image whose blocks are smaller than those of its device.
fn block_size(block_len: Option<u64>) -> u32 {
    let block_len = block_len.and_then(|len| u32::try_from(len).ok()).unwrap_or(BLOCK_SIZE);
    block_len.clamp(BLOCK_SIZE_MIN, BLOCK_SIZE)
}
