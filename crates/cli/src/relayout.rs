//! `kiln relayout`: an image whose stored data lies elsewhere in another one.

mod moved;

use crate::console::progress::QuietArgs;
use crate::exit::{Exit, Failure};
use crate::pack::hot::HotArgs;
use crate::pack::list_order;
use crate::pack::out_args::{ForceArg, SpoolDirArg};
use crate::process::work::WorkArgs;
use crate::verity::{RequireVerityArg, VerityArgs};
use kiln_tree::storage::DataOrder;
use moved::Moved;
use std::path::PathBuf;
use uuid::Uuid;

/// Rewrite an image without unreferenced data, or in another order
///
/// Stored data is moved, not compressed again. The new image leaves out data of older generations and of packed
/// files that are mostly unused. With --order, data and metadata of the list come first, each in one stretch. Data
/// that cannot be moved, such as chunks and data beside inodes, is stored again in the same format, and counted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln relayout updated.erofs tight.erofs
  kiln relayout --order boot.list rootfs.erofs fast.erofs
  kiln relayout --order boot.list --hot-as none --hot-budget 20M rootfs.erofs fast.erofs")]
pub struct Args {
    /// Image to rewrite
    image: PathBuf,

    /// Image to write; - is standard output
    out: PathBuf,

    /// Put data of listed files first (see `kiln help order`)
    #[arg(long, value_name = "LIST")]
    order: Option<PathBuf>,

    #[command(flatten)]
    hot: HotArgs,

    /// UUID of the image; default: derived from its contents
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,

    #[command(flatten)]
    verity: VerityArgs,

    #[command(flatten)]
    require_verity: RequireVerityArg,

    #[command(flatten)]
    force: ForceArg,

    /// Skip what cannot be read, list it, and exit with 3
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
        return Err(Failure::Usage("--order shuffle: an order of whole files, for kiln pack only".into()));
    }
    Moved { args, order: &order }.make()
}
