//! `kiln apply`

use super::applying::{Applying, PatchInput, file_failure};
use super::make::{failure, open};
use super::{in_place, new_image, status};
use crate::console::progress::{QuietArgs, ShownArgs};
use crate::exit::{Exit, Failure};
use crate::pack::out_args::FORCE_HELP;
use crate::pack::output::Destination;
use crate::process::signals::Signals;
use crate::process::threads::{NiceArgs, ThreadsArgs};
use kiln_delta::{DeltaError, Patch};
use kiln_output::Existing;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// Make the new image of the old one and a patch
///
/// OLD is checked first: nothing is written if the patch was made for another image, or needs encoders that this program does not have. NEW is
/// verified (BLAKE3) before it gets its name; it appears when it is complete, or not at all. Of an image of 64 MiB and more, what was made
/// stays beside NEW, under a hidden name, when the command fails, is interrupted, or the system crashes: the same command goes on from there. Through
/// a pipe, the exit code tells whether NEW is right; a block device is written with --force only.
///
/// With --in-place, NEW takes the place of OLD, in a file or on a block device that nothing has mounted. What changes is first written to a
/// journal, which takes as much room. After a crash OLD is there as it was, or the same command completes NEW, and so
/// does --complete without the patch; until then the first 4 KiB are zeros, and nothing mounts it. A journal is of one
/// target, which is compared with it before anything is written.
///
/// Exit codes of --status: 0 OLD is the new image, 10 the old one as it was, 11 unfinished, 12 unknown.
///
/// Memory: 64 MiB, and what the encoder takes.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln apply [OPTIONS] <OLD> <PATCH> <NEW>\n       kiln apply [OPTIONS] --in-place <OLD> <PATCH>\n       kiln apply [OPTIONS] --in-place --complete <OLD>\n       kiln apply [OPTIONS] --in-place --status <OLD> [PATCH]",
    after_help = "\
Examples:
  kiln apply v1.erofs v1-v2.patch v2.erofs
  curl -s https://example.org/v1-v2.patch | kiln apply v1.erofs - v2.erofs
  kiln apply v1.erofs v1-v2.patch - | ssh host 'cat > v2.erofs'
  kiln apply --in-place /dev/vdb v1-v2.patch
  kiln apply --in-place --status /dev/vdb; test $? -ne 11 || kiln apply --in-place --complete /dev/vdb"
)]
pub struct Args {
    /// The image that the patch was made for
    old: PathBuf,

    /// What `kiln delta` has written; - is standard input
    #[arg(required_unless_present_any = ["complete", "status"])]
    patch: Option<PathBuf>,

    /// The image to make; - is standard output
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    new: Option<PathBuf>,

    /// Make the new image where the old one is
    #[arg(long)]
    in_place: bool,

    /// With --in-place: complete what an earlier run has begun, by its journal alone
    #[arg(long, requires = "in_place", conflicts_with_all = ["patch", "status"])]
    complete: bool,

    /// With --in-place: print what OLD is, and change nothing: `new`, `old`, `unfinished` or `unknown`, by its journal,
    /// and by PATCH if it is named
    #[arg(long, requires = "in_place")]
    status: bool,

    /// With --status: one JSON document on standard output
    #[arg(long, requires = "status")]
    json: bool,

    /// With --in-place: the journal, by default beside OLD, and in /var/tmp for a block device; it is removed in the end
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    #[arg(long, help = FORCE_HELP, conflicts_with = "in_place")]
    force: bool,

    #[command(flatten)]
    threads: ThreadsArgs,

    #[command(flatten)]
    nice: NiceArgs,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    progress: ShownArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.journal.is_some() && !args.in_place {
        return Err(Failure::Usage("--journal is for --in-place".into()));
    }
    args.nice.apply()?;
    let signals = Signals::catch()?;
    let Args { old, quiet: QuietArgs { quiet }, progress, .. } = args;
    let journal = args.journal.as_deref();
    let Some(path) = &args.patch else {
        if args.status {
            return status::run(old, None, journal, &signals, args.json);
        }
        in_place::complete(old, journal, &signals, *quiet)?;
        return Ok(Exit::Done);
    };
    let input: PatchInput = match path == Path::new("-") {
        true => Box::new(BufReader::new(io::stdin())),
        false => Box::new(BufReader::new(File::open(path).map_err(file_failure(path, "open"))?)),
    };
    let of_patch = |error| match error {
        error @ (DeltaError::WrongOld { .. } | DeltaError::Image { .. } | DeltaError::ImageBytes { .. }) => {
            failure(error, &signals, old, None, path)
        }
        DeltaError::Interrupted => failure(DeltaError::Interrupted, &signals, old, None, path),
        error @ DeltaError::Write { .. } => failure(error, &signals, old, None, args.new.as_ref().unwrap_or(old)),
        error => Failure::Delta { path: path.clone(), source: error },
    };
    let patch = Patch::open(input).map_err(of_patch)?.with_threads(args.threads.threads());
    if args.status {
        return status::run(old, Some(patch), journal, &signals, args.json);
    }
    let applying = Applying { patch, old, quiet: *quiet, shown: progress, signals: &signals, of_patch: &of_patch };
    let Some(new) = &args.new else {
        in_place::run(applying, journal)?;
        return Ok(Exit::Done);
    };
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let making = new_image::Making { applying, source: open(&args.old)?, existing };
    match Destination::find(new)? {
        Destination::Stream(stream) => making.into_stream(&stream)?,
        Destination::BlockDevice(path) => making.onto_device(&path)?,
        Destination::File(path) => making.into_file(&path)?,
    }
    Ok(Exit::Done)
}
