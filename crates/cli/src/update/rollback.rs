//! `kiln rollback`

use super::{failure, now, refuse_left_over};
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use kiln_revise::ReviseError;
use kiln_revise::update::{About, BehindImage, Update, open_for_update};
use std::path::PathBuf;

/// Show an older tree of an image again
///
/// The tree of a generation becomes what the image shows, as a new generation: nothing is lost, and the way back is another rollback. What has the
/// image mounted keeps the tree that it shows.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln rollback backup.erofs
  kiln rollback --to 0 backup.erofs")]
pub struct Args {
    /// The image: a file or a block device; symbolic links are followed
    image: PathBuf,

    /// The generation, see `kiln generations`; the default is the one before the last
    #[arg(long, value_name = "N")]
    to: Option<u32>,

    /// Overwrite what lies behind the image in its file, whatever it is
    #[arg(long)]
    force: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let fail = |error: ReviseError| failure(error, &signals, &args.image);
    let file = open_for_update(&args.image).map_err(fail)?;
    refuse_left_over(&args.image)?;
    let behind = if args.force { BehindImage::Anything } else { BehindImage::OwnRemains };
    let update = file.target().and_then(|target| Update::begin(target, behind)).map_err(fail)?;
    let last = update.generations().last().map_or(0, |last| last.number);
    let refuse =
        || Failure::Usage(format!("{}: was never updated: there is nothing to go back to", args.image.display()));
    let to = args.to.map_or_else(|| last.checked_sub(1).ok_or_else(refuse), Ok)?;
    let about = About { time: now()?, label: format!("rollback --to {to}") };
    let added = update.roll_back(to, &about).map_err(fail)?;
    if !args.quiet {
        let (image, number) = (args.image.display(), added.number);
        note(format_args!("{image}: generation {number} shows the tree of generation {to} again"));
    }
    Ok(Exit::Done)
}
