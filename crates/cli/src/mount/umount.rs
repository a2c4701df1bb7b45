//! `kiln umount`

use crate::exit::{Exit, Failure};
use std::path::PathBuf;

/// Unmount an image
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln umount /mnt")]
pub struct Args {
    /// Directory where an image is mounted
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    kiln_mount::unmount(&args.dir).map_err(Failure::Mount)?;
    Ok(Exit::Done)
}
