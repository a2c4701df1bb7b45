//! `kiln compact`

use super::CommonArgs;
use super::moved::Moved;
use crate::exit::{Exit, Failure};
use kiln_tree::storage::DataOrder;
use std::path::PathBuf;

/// Make a new image without what nothing refers to
///
/// Stored data is moved, and not compressed again. What belongs to no file is left out: what updates in place have left behind, and what is packed
/// together and mostly unused. The tree is the same, and so is how it is stored.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln compact updated.erofs tight.erofs")]
pub struct Args {
    /// The image that is there
    image: PathBuf,

    /// The image to make; - is standard output
    out: PathBuf,

    #[command(flatten)]
    common: CommonArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    Moved { image: &args.image, out: &args.out, order: &DataOrder::Path, hot: None, common: &args.common }.make()
}
