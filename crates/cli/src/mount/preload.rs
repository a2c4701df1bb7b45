//! `kiln preload`

use super::lists;
use crate::console::report::{PathJson, SkippedJson, note, print_document};
use crate::console::size::{self, Human};
use crate::console::text;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use kiln_mount::{Preload, Preloaded, default_preload};
use serde::Serialize;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Most paths that are printed one by one.
const TOLD_MAX: usize = 10;

/// Read listed files of a mount in advance
///
/// Inodes and directories are read in the order of the list, and the kernel is told to read the ranges of files
/// ahead. Works for any mounted filesystem.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln preload /mnt boot.list
  kiln preload --wait --max 64M /mnt boot.list")]
pub struct Args {
    /// Directory where the image is mounted
    mountpoint: PathBuf,

    /// Hot list, or paths from there on, one a line; - is standard input
    list: PathBuf,

    /// Return when everything is in memory
    #[arg(long)]
    wait: bool,

    /// Read at most SIZE of files; default: half of the memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max: Option<u64>,

    /// Print nothing but errors and skipped inputs
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PreloadedJson {
    mountpoint: PathJson,
    inodes: u64,
    bytes: u64,
    left_out_bytes: u64,
    skipped: Vec<SkippedJson>,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::catch()?;
    let list = lists::hot_or_plain(&args.list)?;
    let how = if args.wait { Preload::Read } else { Preload::Advise };
    let done =
        kiln_mount::preload(&args.mountpoint, &list, how, args.max.unwrap_or_else(default_preload), signals.stop());
    let failed = |source| Failure::File { path: args.mountpoint.clone(), action: "open", source };
    let Preloaded { inodes, bytes, left_out, failed } = done.map_err(failed)?;
    if let Some(number) = signals.caught() {
        return Err(Failure::Signal(number));
    }
    let exit = if failed.is_empty() { Exit::Done } else { Exit::Skipped };
    if args.json {
        let skipped = |(path, error): &(PathBuf, io::Error)| SkippedJson::new(path.as_os_str().as_bytes(), error);
        print_document(&PreloadedJson {
            mountpoint: PathJson::new(args.mountpoint.as_os_str().as_bytes()),
            inodes,
            bytes,
            left_out_bytes: left_out,
            skipped: failed.iter().map(skipped).collect(),
        })?;
        return Ok(exit);
    }
    for (path, error) in failed.iter().take(TOLD_MAX) {
        note(format_args!("{}: not preloaded: {error}", text::escape(path.as_os_str().as_bytes())));
    }
    if failed.len() > TOLD_MAX {
        note(format_args!("{} more were not preloaded", failed.len() - TOLD_MAX));
    }
    if !args.quiet {
        let verb = if args.wait { "in memory" } else { "being read" };
        note(format_args!("{}: {inodes} inodes, {} of files {verb}", args.mountpoint.display(), Human(bytes)));
        if left_out > 0 {
            note(format_args!("{} of the list are left out: a higher --max takes them", Human(left_out)));
        }
    }
    Ok(exit)
}
