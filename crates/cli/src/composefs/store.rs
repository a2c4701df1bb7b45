//! `kiln composefs store`

use super::image::failed;
use super::info;
use crate::console::report::{Out, note};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use crate::process::threads::ThreadsArgs;
use clap::Subcommand;
use kilnfs::composefs::objects;
use kilnfs::composefs::store::{Removal, Store, StoreError};
use kilnfs::composefs::tree::object_path;
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Check stores of objects, and remove what no image needs
#[derive(clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kiln composefs store verify objects/
  kiln composefs store gc --dry-run objects/ *.cfs"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare each object with the digest that is its name; exit code 4 tells that some are others
    #[command(after_help = "Example:\n  kiln composefs store verify objects/")]
    Verify(VerifyArgs),
    /// Remove all objects that none of the images needs
    #[command(after_help = "Example:\n  kiln composefs store gc --dry-run objects/ *.cfs")]
    Gc(GcArgs),
}

#[derive(clap::Args)]
struct VerifyArgs {
    /// Store, or a repository of composefs-rs
    store: PathBuf,

    #[command(flatten)]
    threads: ThreadsArgs,
}

#[derive(clap::Args)]
struct GcArgs {
    /// Store
    store: PathBuf,

    /// All images whose objects stay
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,

    /// Only print the objects that would be removed
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Verify(args) => verify(args),
        What::Gc(args) => gc(args),
    }
}

fn verify(args: &VerifyArgs) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let verified = Store::open(&args.store).and_then(|store| store.verify(args.threads.threads(), signals.stop()));
    let verified = verified.map_err(|error| failure(&args.store, error, &signals))?;
    let mut out = Out::new();
    for (digest, problem) in &verified.problems {
        writeln!(out, "{}: {problem}", object_path(digest))?;
    }
    out.finish()?;
    if verified.sound == 0 && verified.problems.is_empty() && !verified.others.is_empty() {
        return Err(no_store(&args.store));
    }
    for other in &verified.others {
        note(format_args!("{}: no object of a store", other.display()));
    }
    note(format_args!("{} sound objects, {}", verified.sound, Human(verified.bytes)));
    Ok(if verified.problems.is_empty() { Exit::Done } else { Exit::ErrorsFound })
}

fn gc(args: &GcArgs) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let mut used = HashSet::new();
    for image in &args.images {
        used.extend(objects(&info::read(image)?));
        if let Some(number) = signals.caught() {
            return Err(Failure::Signal(number));
        }
    }
    let removal = if args.dry_run { Removal::DryRun } else { Removal::Remove };
    let unused = Store::open(&args.store).and_then(|store| store.remove_unused(&used, removal));
    let unused = unused.map_err(|error| failure(&args.store, error, &signals))?;
    let missing = (used.len() as u64).saturating_sub(unused.kept);
    if missing > 0 {
        note(format_args!("{}: {missing} objects of the images are not in it", args.store.display()));
    }
    let mut out = Out::new();
    for object in &unused.objects {
        writeln!(out, "{object}")?;
    }
    out.finish()?;
    let word = if args.dry_run { "unused" } else { "removed" };
    note(format_args!("{} objects {word}, {}; {} kept", unused.objects.len(), Human(unused.bytes), unused.kept));
    Ok(Exit::Done)
}

fn no_store(store: &Path) -> Failure {
    Failure::Usage(format!("{}: no store: it has files, and none is an object", store.display()))
}

fn failure(store: &Path, error: StoreError, signals: &Signals) -> Failure {
    match (error, signals.caught()) {
        (StoreError::Stopped, Some(number)) => Failure::Signal(number),
        (error, _) => failed(store)(error),
    }
}
