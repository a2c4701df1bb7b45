//! `kiln repair`

use super::failure;
use super::lost::damage_of;
use crate::console::progress::{QuietArgs, ShownArgs};
use crate::console::report::note;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use crate::process::threads::{NiceArgs, ThreadsArgs};
use crate::verity::sealing::set_aside;
use crate::verity::{ChangedVerityArgs, Changing, Hashing};
use kiln_output::{AtomicFile, Existing};
use kiln_read::{FileSource, ReadAt};
use kiln_revise::ReviseError;
use kiln_revise::update::{Repair, open_for_update};
use std::path::PathBuf;
use std::sync::Arc;

/// Go back to the newest whole generation of a damaged image
///
/// An image that was cut, or whose front is lost, may have older generations that are whole. The newest one in
/// which everything can be read becomes the current one, or the one that --generation names, whatever is wrong with
/// it; the exit code is then 4 if it is damaged. In place, one sector is written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln log backup.erofs
  kiln repair backup.erofs
  kiln repair --generation 7 -o seven.erofs backup.erofs")]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    /// Use this generation of an updated image (see `kiln log`)
    #[arg(long, value_name = "N")]
    generation: Option<u32>,

    /// New image to write; IMAGE stays as it is
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace existing output, or write to a block device
    #[arg(long, requires = "output")]
    force: bool,

    #[command(flatten)]
    verity: ChangedVerityArgs,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    progress: ShownArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.nice.apply()?;
    let signals = Signals::catch()?;
    let fail = |error: ReviseError| failure(error, &signals, &args.image);
    // Nobody updates it meanwhile.
    let file = match &args.output {
        None => Some(open_for_update(&args.image).map_err(fail)?),
        Some(_) => None,
    };
    let changing = match &file {
        Some(file) => Some(Changing::begin(&args.verity, &args.image, file)?),
        None if args.verity.drop_verity || args.verity.new.wanted().is_some() => {
            return Err(Failure::Usage("--verity and --drop-verity are not for --output".to_owned()));
        }
        None => None,
    };
    let unreadable = |source| Failure::Read { image: args.image.clone(), source };
    let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(&args.image).map_err(unreadable)?);
    let repair = Repair::of(&args.image, source).map_err(fail)?;
    let image = args.image.display();
    if repair.is_needless() {
        let message = "its last generation is there: nothing to repair (kiln rollback shows an older one)";
        return Err(Failure::Usage(format!("{image}: {message}")));
    }
    if let Some(damage) = damage_of(repair.found()).filter(|_| !args.quiet.quiet) {
        note(format_args!("{image}: {damage}"));
    }
    let Some((number, problems)) = choose(args, &repair).map_err(fail)? else {
        let message = "no generation is whole: --generation N shows one in spite of its damage";
        return Err(Failure::Usage(format!("{image}: {message}")));
    };
    match (&args.output, &changing) {
        (Some(path), _) => {
            let existing = if args.force { Existing::Replace } else { Existing::Keep };
            let new = AtomicFile::create(path, existing)?;
            repair.copy(number, &new).map_err(fail)?;
            set_aside(path, None)?;
            new.commit()?;
        }
        (None, Some(changing)) => repair.show(number, changing).map_err(fail)?,
        (None, None) => {}
    }
    let hashing = Hashing { work: None, quiet: args.quiet.quiet, signals: &signals };
    let tree = changing.map(|changing| changing.seal(hashing)).transpose()?.flatten();
    let shown = args.output.as_ref().unwrap_or(&args.image).display();
    if !args.quiet.quiet {
        note(format_args!("{shown}: shows the tree of generation {number}"));
        if let Some(tree) = tree {
            tree.tell_all(&args.image);
        }
    }
    match problems {
        Some(0) => Ok(Exit::Done),
        _ => {
            note(format_args!("{shown}: generation {number} is damaged: kiln check tells where"));
            Ok(Exit::ErrorsFound)
        }
    }
}

/// Returns the generation to show, and how many problems it has, if it can be opened. `None`: there is none without
/// problems.
fn choose(args: &Args, repair: &Repair<'_>) -> Result<Option<(u32, Option<u64>)>, ReviseError> {
    let meter = args.progress.meter(args.quiet.quiet);
    let look = |number| repair.problems(number, args.threads.threads(), &|bytes| meter.advance(bytes));
    if let Some(number) = args.generation {
        return Ok(Some((number, look(number)?)));
    }
    for generation in repair.found().whole.iter().rev() {
        if look(generation.number)? == Some(0) {
            return Ok(Some((generation.number, Some(0))));
        }
    }
    Ok(None)
}
