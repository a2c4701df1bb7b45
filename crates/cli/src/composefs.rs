//! `kiln composefs`: images of composefs, and stores of their objects.

pub mod create;
pub mod image;
pub mod info;
pub mod mount;
mod store;
pub mod versions;

use crate::exit::{Exit, Failure};
use clap::Subcommand;

/// Make, inspect and mount images of composefs, and manage stores of their objects
///
/// Such an image has names, metadata and small files. All other files are objects in a store, named by their fs-verity
/// digests. The digest of the image is an id of the whole tree.
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln composefs create --digest-store objects/ rootfs/ rootfs.cfs
  kiln composefs create --print-digest-only rootfs.tar
  kiln composefs info dump rootfs.cfs
  kiln composefs mount --objects objects/ rootfs.cfs /mnt
  kiln composefs store verify objects/"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Create(Box<create::Args>),
    Info(info::Args),
    Mount(mount::Args),
    Store(store::Args),
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Create(args) => create::run(args),
        What::Info(args) => info::run(args),
        What::Mount(args) => mount::run(args),
        What::Store(args) => store::run(args),
    }
}
