//! `kiln patch apply`

use super::applying::{Applying, PatchInput, file_failure};
use super::make::{failure, open};
use super::{in_place, new_image, status};
use crate::console::progress::QuietArgs;
use crate::console::report::print_document;
use crate::exit::{Exit, Failure};
use crate::pack::out_args::FORCE_HELP;
use crate::pack::output::Destination;
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_delta::in_place::InPlace;
use kiln_delta::{DeltaError, Patch};
use kiln_format::Hex;
use kiln_output::Existing;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// Apply a patch to an image
///
/// OLD is checked first, and NEW is verified (BLAKE3) before it appears under its name. After a failure, the same
/// command goes on where it stopped. With --in-place, NEW takes the place of OLD, in a file or on a block device:
/// changes go to a journal first, and after a crash the same command, or --complete, completes NEW. Takes 64 MiB of
/// memory, and that of the encoder.
#[derive(clap::Args)]
#[command(
    override_usage = "kiln patch apply [OPTIONS] <OLD> <PATCH> <NEW>
       kiln patch apply [OPTIONS] --in-place <OLD> <PATCH>
       kiln patch apply [OPTIONS] --in-place --complete <OLD>
       kiln patch apply [OPTIONS] --in-place --status <OLD> [PATCH]",
    after_help = "\
Examples:
  kiln patch apply v1.erofs v1-v2.patch v2.erofs
  curl -s https://example.org/v1-v2.patch | kiln patch apply v1.erofs - v2.erofs
  kiln patch apply v1.erofs v1-v2.patch - | ssh host 'cat > v2.erofs'
  kiln patch apply --in-place /dev/vdb v1-v2.patch
  kiln patch apply --in-place --status /dev/vdb"
)]
pub struct Args {
    /// Image that the patch was made for
    old: PathBuf,

    /// Patch to apply; - is standard input
    #[arg(required_unless_present_any = ["complete", "status"])]
    patch: Option<PathBuf>,

    /// Image to write; - is standard output
    #[arg(required_unless_present = "in_place", conflicts_with = "in_place")]
    new: Option<PathBuf>,

    /// Write the new image over the old one
    #[arg(long)]
    in_place: bool,

    /// Complete an interrupted --in-place from its journal alone
    #[arg(long, requires = "in_place", conflicts_with_all = ["patch", "status"])]
    complete: bool,

    /// Print the state of OLD: new, old, unfinished or unknown
    #[arg(long, requires = "in_place")]
    status: bool,

    /// Journal of --in-place; default: beside OLD, for devices in /var/tmp
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    #[arg(long, help = FORCE_HELP, conflicts_with = "in_place")]
    force: bool,

    #[command(flatten)]
    work: WorkArgs,

    #[command(flatten)]
    quiet: QuietArgs,
}

/// For programs, on standard output.
#[derive(Serialize)]
struct AppliedJson {
    outcome: &'static str,
    new_bytes: Option<u64>,
    copied_bytes: Option<u64>,
    encoded_bytes: Option<u64>,
    /// Of the hash tree behind NEW.
    root_hash: Option<String>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.journal.is_some() && !args.in_place {
        return Err(Failure::Usage("--journal is for --in-place".into()));
    }
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let Args { old, quiet: QuietArgs { quiet }, work, .. } = args;
    let journal = args.journal.as_deref();
    let Some(path) = &args.patch else {
        if args.status {
            return status::run(old, None, journal, &signals, work.json);
        }
        return finish(args, &in_place::complete(old, journal, &signals, *quiet)?, None);
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
    let patch = Patch::open(input).map_err(of_patch)?.with_threads(work.threads());
    if args.status {
        return status::run(old, Some(patch), journal, &signals, work.json);
    }
    let root_hash = patch.header().new_tree.as_ref().map(|tree| Hex(&tree.root_hash).to_string());
    let applying = Applying { patch, old, quiet: *quiet, work, signals: &signals, of_patch: &of_patch };
    let Some(new) = &args.new else {
        return finish(args, &in_place::run(applying, journal)?, root_hash);
    };
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let making = new_image::Making { applying, source: open(&args.old)?, existing };
    let destination = Destination::find(new)?;
    if work.json {
        destination.refuse_json("image")?;
    }
    let applied = match destination {
        Destination::Stream(stream) => making.into_stream(&stream)?,
        Destination::BlockDevice(path) => making.onto_device(&path)?,
        Destination::File(path) => making.into_file(&path)?,
    };
    finish(args, &InPlace::Applied(applied), root_hash)
}

/// Prints the outcome for programs, if that was asked for.
fn finish(args: &Args, done: &InPlace, root_hash: Option<String>) -> Result<Exit, Failure> {
    if args.work.json {
        let (outcome, applied) = match done {
            InPlace::Applied(applied) => ("applied", Some(applied)),
            InPlace::Resumed => ("resumed", None),
            InPlace::WasThere => ("present", None),
        };
        print_document(&AppliedJson {
            outcome,
            new_bytes: applied.map(|applied| applied.new_len),
            copied_bytes: applied.map(|applied| applied.copied),
            encoded_bytes: applied.map(|applied| applied.encoded),
            root_hash,
        })?;
    }
    Ok(Exit::Done)
}
