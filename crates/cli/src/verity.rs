//! `kiln verity`: hash trees of dm-verity.

mod format;
mod padded;
mod salt;
mod show;
mod sign;
mod signed;
mod verify;

use crate::exit::{Exit, Failure};
use clap::Subcommand;
use kiln_read::{FileSource, Image, ImageOptions};
use kiln_verity::{Digest, VerityError};
use std::path::{Path, PathBuf};

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

/// Returns an error about `path`.
fn failure(path: &Path, source: VerityError) -> Failure {
    match source {
        VerityError::Output(source) => source.into(),
        source => Failure::Verity { path: path.to_owned(), source: Box::new(source) },
    }
}

/// Parses a root hash, or reads it from a file.
fn root_hash(text: &str) -> Result<Digest, Failure> {
    if let Ok(digest) = text.parse() {
        return Ok(digest);
    }
    let path = PathBuf::from(text);
    let content = std::fs::read_to_string(&path);
    let content = content.map_err(|source| Failure::File { path: path.clone(), action: "read a root hash", source })?;
    content.trim().parse().map_err(|reason| Failure::Usage(format!("{}: no root hash: {reason}", path.display())))
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
