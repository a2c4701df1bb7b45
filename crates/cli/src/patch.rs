//! `kiln patch`: patches from one image to another.

mod apply;
mod applying;
mod device;
mod in_place;
mod journal;
pub mod left_over;
mod make;
mod new_image;
mod room;
mod status;
mod target;

use crate::exit::{Exit, Failure};
use clap::Subcommand;

/// Make and apply patches between images
///
/// A patch is small if the files of two images differ little, even where their compressed bytes have
/// nothing in common.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln patch make v1.erofs v2.erofs v1-v2.patch
  kiln patch apply v1.erofs v1-v2.patch v2.erofs"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Make(make::Args),
    Apply(apply::Args),
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Make(args) => make::run(args),
        What::Apply(args) => apply::run(args),
    }
}
