//! `kiln rollback`

use super::{failure, now, refuse_left_over};
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::process::signals::Signals;
use crate::verity::{ChangedVerityArgs, Changing, Hashing};
use kiln_read::find_generations;
use kiln_revise::ReviseError;
use kiln_revise::update::{About, BehindImage, Update, open_for_update};
use std::path::PathBuf;

/// Go back to an earlier generation of an image
///
/// The tree of a generation, by default the one before the last, becomes the current one, as a new generation.
/// Nothing is lost, and the way back is another rollback. Mounts keep the tree that they show.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln rollback backup.erofs
  kiln rollback --generation 0 backup.erofs")]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    /// Use this generation of an updated image (see `kiln log`)
    #[arg(long, value_name = "N")]
    generation: Option<u32>,

    #[command(flatten)]
    verity: ChangedVerityArgs,

    /// Overwrite bytes that lie behind the image in its file
    #[arg(long)]
    discard_tail: bool,

    /// Print nothing but errors and skipped inputs
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let fail = |error: ReviseError| failure(error, &signals, &args.image);
    let file = open_for_update(&args.image).map_err(fail)?;
    refuse_left_over(&args.image)?;
    let behind = if args.discard_tail { BehindImage::Anything } else { BehindImage::OwnRemains };
    let refuse =
        || Failure::Usage(format!("{}: was never updated: there is nothing to go back to", args.image.display()));
    if args.generation.is_none() {
        let image = ImageArgs { image: args.image.clone(), ..ImageArgs::default() };
        let found = find_generations(&image.source()?).map_err(|error| image.failure(error))?;
        if found.whole.len() < 2 && found.damage.is_none() {
            return Err(refuse());
        }
    }
    let changing = Changing::begin(&args.verity, &args.image, &file)?;
    let update = Update::begin(changing.target()?, behind).map_err(fail)?;
    let last = update.generations().last().map_or(0, |last| last.number);
    let to = args.generation.map_or_else(|| last.checked_sub(1).ok_or_else(refuse), Ok)?;
    let about = About { time: now()?, label: format!("rollback --generation {to}") };
    let added = update.roll_back(to, &about).map_err(fail)?;
    drop(update);
    let tree = changing.seal(Hashing { work: None, quiet: args.quiet, signals: &signals })?;
    if !args.quiet {
        let (image, number, shown) = (args.image.display(), added.number, added.restored.unwrap_or(to));
        note(format_args!("{image}: generation {number} shows the tree of generation {shown} again"));
        if let Some(tree) = tree {
            tree.tell_all(&args.image);
        }
    }
    Ok(Exit::Done)
}
