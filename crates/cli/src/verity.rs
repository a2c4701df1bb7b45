//! `kiln verity`: hash trees of dm-verity.

mod format;
mod padded;
mod salt;
mod show;
mod sign;
mod signed;
pub mod verify;

use crate::exit::{Exit, Failure};
use crate::root_hash::failure;
use clap::Subcommand;
use kiln_read::{FileSource, Image, ImageOptions};
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
}

/// Looks at the superblock of an image. Any other file has a tree as well.
fn erofs(path: &Path) -> Option<Erofs> {
    let image = Image::open_path(path, &[], &ImageOptions::default().with_any_checksum()).ok()?;
    let sb = image.superblock();
    Some(Erofs { end: sb.blocks.checked_mul(sb.block_bits.len())?, uuid: sb.uuid })
}
