//! `kiln oci`: images of containers.

mod convert;
mod inspect;
mod layers;
mod pack;

use crate::exit::{Exit, Failure};
use clap::Subcommand;

/// Inspect and make container images
///
/// A layout is a directory as the OCI image format defines it, an archive of one, or the output of `docker save`.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln oci inspect layout/
  kiln oci pack --tag app:1.2 rootfs/ layout/
  kiln oci convert image.tar layout/"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Inspect(inspect::Args),
    Pack(pack::Args),
    Convert(convert::Args),
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Inspect(args) => inspect::run(args),
        What::Pack(args) => pack::run(args),
        What::Convert(args) => convert::run(args),
    }
}
