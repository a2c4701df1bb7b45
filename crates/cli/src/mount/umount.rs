//! `kiln umount`

use crate::exit::{Exit, Failure};
use kiln_mount::MountError;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);

/// Unmount an image
///
/// If processes use the mount, the error names them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln umount /mnt
  kiln umount --wait 60 /mnt")]
pub struct Args {
    /// Directory where an image is mounted
    dir: PathBuf,

    /// Wait up to N seconds until nobody uses the mount
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    wait: u32,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let deadline = Instant::now() + Duration::from_secs(args.wait.into());
    loop {
        match kiln_mount::unmount(&args.dir) {
            Ok(()) => return Ok(Exit::Done),
            Err(MountError::Busy { .. }) if Instant::now() < deadline => sleep(PAUSE),
            Err(error) => return Err(Failure::Mount(error)),
        }
    }
}
