//! `kiln relayout` and `kiln compact`: an image whose stored data lies elsewhere in another one.

pub mod compact;
mod moved;

use crate::console::progress::QuietArgs;
use crate::exit::{Exit, Failure};
use crate::pack::hot::HotArgs;
use crate::pack::list_order;
use crate::pack::out_args::{ForceArg, SpoolDirArg};
use crate::process::work::WorkArgs;
use kiln_source::filter::DataOrder;
use moved::Moved;
use std::path::PathBuf;
use uuid::Uuid;

/// Move what programs read first to the front, in a new image
///
/// Stored data is moved, and not compressed again. What the ranges of --order need comes first, in one stretch, in the order of the list: extents of
/// files and of what is packed together. Inodes and directories of the list come first among the metadata. Then comes all else, by path.
/// The tree is the same, and so is how it is stored: what cannot be moved (chunks, data beside inodes) is stored anew in the same way, and counted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln relayout --order boot.list rootfs.erofs fast.erofs
  kiln relayout --order boot.list --hot-as none --hot-budget 20M rootfs.erofs fast.erofs")]
pub struct Args {
    /// The image that is there
    image: PathBuf,

    /// The image to make; - is standard output
    out: PathBuf,

    /// What comes first: a hot list, or paths as a whole, one a line or zero-terminated; - is standard input
    #[arg(long, value_name = "LIST")]
    order: Option<PathBuf>,

    #[command(flatten)]
    hot: HotArgs,

    #[command(flatten)]
    common: CommonArgs,
}

/// Options of both commands.
#[derive(clap::Args)]
struct CommonArgs {
    /// The new image's UUID; the default comes from its contents
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,

    #[command(flatten)]
    force: ForceArg,

    /// Go on where contents that are stored anew cannot be read, or do not have the digests that IMAGE stores for them: the former are skipped, the
    /// latter stored as they were read, with the old digest. Both are listed, and the exit code is 3
    #[arg(long)]
    keep_going: bool,

    #[command(flatten)]
    spool: SpoolDirArg,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let order = match &args.order {
        Some(path) => list_order(path)?,
        None => DataOrder::Path,
    };
    if matches!(order, DataOrder::Shuffled { .. }) {
        return Err(Failure::Usage("--order shuffle: an order of whole files, which kiln pack stores anew".into()));
    }
    Moved { image: &args.image, out: &args.out, order: &order, hot: Some(&args.hot), common: &args.common }.make()
}
