//! `kiln hotlist show`

use super::super::lists;
use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use kiln_read::hotlist::HotList;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Show files, ranges and bytes of a list
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln hotlist show boot.list
  kiln hotlist show --json boot.list")]
pub struct Args {
    /// Hot list to show; - is standard input
    list: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ShownJson {
    /// Files with data.
    files: usize,
    ranges: usize,
    /// Bytes of files, each counted once.
    bytes: u64,
    metadata_entries: usize,
    last_micros: u64,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let list = lists::hot(&args.list)?;
    let entries = list.entries();
    let metadata_entries = entries.iter().filter(|entry| entry.is_metadata()).count();
    let distinct = list.without(&HotList::default());
    let shown = ShownJson {
        files: list.files().len(),
        ranges: entries.len() - metadata_entries,
        bytes: distinct.entries().iter().fold(0, |sum, entry| sum.saturating_add(entry.len)),
        metadata_entries,
        last_micros: entries.iter().map(|entry| entry.micros).max().unwrap_or(0),
    };
    if args.json {
        print_document(&shown)?;
        return Ok(Exit::Done);
    }
    let mut out = Out::new();
    writeln!(out, "files     {}", shown.files)?;
    writeln!(out, "ranges    {}", shown.ranges)?;
    writeln!(out, "bytes     {} ({})", shown.bytes, Human(shown.bytes))?;
    writeln!(out, "metadata  {} inodes and directories", shown.metadata_entries)?;
    writeln!(out, "last      {}.{:06} s", shown.last_micros / 1_000_000, shown.last_micros % 1_000_000)?;
    out.finish()?;
    Ok(Exit::Done)
}
